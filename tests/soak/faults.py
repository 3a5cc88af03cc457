"""What happens to the processes of a real group in a soak: each fault has a beginning and an end, and tells what it does."""

import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dittomq.errors import DittoError
from tests.support.real_group import RealGroup

NAMESERVER = "nameserver"


class Fault(Protocol):
    """One thing that goes wrong, or is asked for, and is put right again."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that no other fault may meet meanwhile."""
        ...

    def begin(self) -> str:
        """Let it happen; returns what it was, in words."""
        ...

    def end(self) -> None:
        """Put it right."""
        ...


@dataclass(frozen=True, slots=True)
class Gone:
    """Processes are killed, one right after the other, or ended as a supervisor ends them."""

    group: RealGroup
    nodes: tuple[str, ...]
    cleanly: bool = False

    def begin(self) -> str:
        for name in filter(self.group.cluster.is_alive, self.nodes):
            if self.cleanly:
                self.group.cluster.stop_node(name)
            else:
                self.group.cluster.kill(name)
        return f"{'stopped' if self.cleanly else 'killed'}: {', '.join(self.nodes)}"

    def end(self) -> None:
        for name in self.nodes:
            self.group.cluster.start_node(name)


@dataclass(frozen=True, slots=True)
class DiskReplaced:
    """A process is killed and comes back on an empty disk."""

    group: RealGroup
    nodes: tuple[str]

    def begin(self) -> str:
        self.group.cluster.kill(self.nodes[0])
        shutil.rmtree(self.group.cluster.data_dir(self.nodes[0]))
        return f"killed, and its disk is gone: {self.nodes[0]}"

    def end(self) -> None:
        self.group.cluster.start_node(self.nodes[0])


@dataclass(frozen=True, slots=True)
class Frozen:
    """A process stands still."""

    group: RealGroup
    nodes: tuple[str]

    def begin(self) -> str:
        self.group.signal(self.nodes[0], signal.SIGSTOP)
        return f"stands still: {self.nodes[0]}"

    def end(self) -> None:
        self.group.signal(self.nodes[0], signal.SIGCONT)


@dataclass(frozen=True, slots=True)
class Promotion:
    """The master is killed and another one told to lead, as often as it takes; the old one comes back."""

    group: RealGroup
    nodes: tuple[str, ...]
    old: str
    heirs: tuple[str, ...]

    def begin(self) -> str:
        self.group.cluster.kill(self.old)
        told = [_ask(self.group, heir, stopped=True) for heir in self.heirs]
        return f"killed: {self.old}; promoted: {'; '.join(told)}"

    def end(self) -> None:
        self.group.cluster.start_node(self.old)


@dataclass(frozen=True, slots=True)
class ChangeOfPlaces:
    """A slave is told to take its running master's place."""

    group: RealGroup
    nodes: tuple[str]

    def begin(self) -> str:
        return f"told to lead: {_ask(self.group, self.nodes[0], stopped=False)}"

    def end(self) -> None:
        """It is over when it was answered."""


def _ask(group: RealGroup, heir: str, *, stopped: bool) -> str:
    try:
        change = group.mq.admin.change_role(heir, old_master_is_stopped=stopped)
    except DittoError as refused:
        return f"{heir}, refused: {refused}"
    return f"{heir}, epoch {change.epoch}"


@dataclass(slots=True)
class Faults:
    """Draws faults for nodes that none meets now. `leader` tells who takes writes, of the nodes that answer.

    `spare_disks`: so many disks may be lost until it is set again, when every copy has all that was confirmed.
    """

    group: RealGroup
    chance: random.Random
    leader: Callable[[], str]
    spare_disks: int = 1
    open: list[Fault] = field(default_factory=list)

    @property
    def free(self) -> list[str]:
        """Brokers that no open fault meets."""
        met = {name for fault in self.open for name in fault.nodes}
        return [name for name in self.group.copies if name not in met]

    def draw(self) -> Fault | None:
        """Another fault, None when what was drawn has nobody to meet."""
        one_at_a_time = (self._killed, self._restarted, self._frozen, self._nameserver, self._promoted, self._changed, self._disk_replaced)
        [draw] = self.chance.choices((*one_at_a_time, self._all_killed), weights=(4, 2, 3, 1, 2, 3, 2, 1))
        return draw()

    def _one(self) -> str:
        return self.chance.choice(self.free) if self.free else ""

    def _killed(self) -> Fault | None:
        return Gone(self.group, (name,)) if (name := self._one()) else None

    def _all_killed(self) -> Fault | None:
        return Gone(self.group, tuple(self.free)) if len(self.free) == len(self.group.copies) else None

    def _restarted(self) -> Fault | None:
        return Gone(self.group, (name,), cleanly=True) if (name := self._one()) else None

    def _disk_replaced(self) -> Fault | None:
        name = self._one()
        if not name or not self.spare_disks or not self.group.cluster.is_alive(name):
            return None
        self.spare_disks -= 1
        return DiskReplaced(self.group, (name,))

    def _frozen(self) -> Fault | None:
        return Frozen(self.group, (name,)) if (name := self._one()) else None

    def _nameserver(self) -> Fault | None:
        gone = any(NAMESERVER in fault.nodes for fault in self.open)
        return None if gone else Gone(self.group, (NAMESERVER,))

    def _promoted(self) -> Fault | None:
        old = self.leader()
        heirs = [name for name in self.free if name != old]
        if old not in self.free or not heirs:
            return None
        self.chance.shuffle(heirs)
        return Promotion(self.group, (old,), old, tuple(heirs))

    def _changed(self) -> Fault | None:
        return ChangeOfPlaces(self.group, (name,)) if (name := self._one()) else None
