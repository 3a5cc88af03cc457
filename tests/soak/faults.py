"""What happens to the processes of a real group in a soak: each fault has a beginning and an end, and tells what it does."""

import random
import shutil
import signal
from dataclasses import dataclass, field
from typing import Protocol

from dittomq.errors import DittoError
from tests.support.partitioned_network import PartedNetwork
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
class Cut:
    """What a process sends, receives, or both, is dropped on its way to or from some others."""

    network: PartedNetwork
    nodes: tuple[str]
    others: tuple[str, ...]
    there: bool
    back: bool

    def begin(self) -> str:
        self.network.part(self.nodes, self.others, there=self.there, back=self.back)
        ways = {(True, True): "both ways", (True, False): "what it sends", (False, True): "what it receives"}[self.there, self.back]
        return f"parted from {', '.join(self.others)}, {ways}: {self.nodes[0]}"

    def end(self) -> None:
        self.network.heal()  # no other cut is open


@dataclass(frozen=True, slots=True)
class Order:
    """An operator lets a node lead: with the master's help, or without asking it."""

    group: RealGroup
    nodes: tuple[str]
    planned: bool

    def begin(self) -> str:
        admin = self.group.mq.admin
        try:
            (admin.switchover if self.planned else admin.failover)(self.nodes[0])
        except DittoError as refused:
            return f"{'switchover' if self.planned else 'failover'} to {self.nodes[0]} is refused: {refused}"
        return f"{'switchover' if self.planned else 'failover'} to {self.nodes[0]}"

    def end(self) -> None:
        """It is over when it was answered."""


@dataclass(slots=True)
class Faults:
    """Draws faults for nodes that none meets now; cuts where there is a `network`.

    `spare_disks`: so many disks may be lost until it is set again, when every copy has all that was confirmed.
    """

    group: RealGroup
    chance: random.Random
    network: PartedNetwork | None
    spare_disks: int = 1
    open: list[Fault] = field(default_factory=list)

    @property
    def free(self) -> list[str]:
        """Brokers that no open fault meets."""
        met = {name for fault in self.open for name in fault.nodes}
        return [name for name in self.group.copies if name not in met]

    def draw(self) -> Fault | None:
        """Another fault, None when what was drawn has nobody to meet."""
        drawn = {
            self._killed: 4,
            self._restarted: 2,
            self._frozen: 3,
            self._cut: 3,
            self._nameserver: 1,
            self._ordered: 3,
            self._disk_replaced: 2,
            self._all_killed: 1,
        }
        [draw] = self.chance.choices(list(drawn), weights=list(drawn.values()))
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

    def _cut(self) -> Fault | None:
        name = self._one()
        if self.network is None or not name or any(isinstance(fault, Cut) for fault in self.open):
            return None
        around = [NAMESERVER, *(other for other in self.group.copies if other != name)]
        others = tuple(self.chance.sample(around, self.chance.randint(1, len(around))))
        there, back = self.chance.choice(((True, True), (True, True), (True, False), (False, True)))
        return Cut(self.network, (name,), others, there, back)

    def _nameserver(self) -> Fault | None:
        gone = any(NAMESERVER in fault.nodes for fault in self.open)
        return None if gone else Gone(self.group, (NAMESERVER,))

    def _ordered(self) -> Fault | None:
        return Order(self.group, (name,), planned=self.chance.random() < 0.7) if (name := self._one()) else None
