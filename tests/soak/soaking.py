"""A group of real processes under random faults for as long as one likes, with producers, readers and the checker of what both were told.

The seed chooses the faults; when each meets what, the machine decides, so a run cannot be replayed to the byte.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dittomq.errors import DittoError
from tests.soak.faults import ChangeOfPlaces, Faults, Frozen
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.real_group import RealGroup, real_group, shape
from tests.support.waiting import eventually

_SOME = 40
_MOST_OPEN = 2
_BURSTS = (1, 32)
_PATIENCE_S = 120.0
_SAYS_IT_AGAIN_S = 15.0
_GIVES_UP_S = 30.0
# Nothing may be confirmed by one copy alone: then no fault here may lose what was confirmed.
_STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}


def soak(folder: Path, seed: int, seconds: float, say: Callable[[str], object]) -> int:
    """Run for so long, tell the story; returns how many messages were acknowledged.

    AssertionError for a broken promise, or a group that does not recover.
    """
    chance = random.Random(seed)
    began = time.monotonic()
    with real_group(folder, shape(chance.choice((2, 2, 3)), master=_STRICT, slave=_STRICT)) as group:
        run = _Soak(group, chance, lambda what: say(f"{time.monotonic() - began:7.1f} s  {what}"))
        with run.traffic():
            while time.monotonic() - began < seconds:
                run.some_faults()
                run.calm()
        run.history.check(_PATIENCE_S)
        return run.history.acknowledged()


class _Soak:
    def __init__(self, group: RealGroup, chance: random.Random, say: Callable[[str], object]) -> None:
        self.history = History(group)
        self._group = group
        self._chance = chance
        self._say = say
        self._faults = Faults(group, chance, self._leader)

    @contextlib.contextmanager
    def traffic(self) -> Iterator[None]:
        """Two producers, one of single messages, and a reader of each node, during the block; then all outcomes become known."""
        mq, history = self._group.mq, self.history
        with contextlib.ExitStack() as stack:
            producers = [stack.enter_context(mq.producer(timeout_s=2.0, retry_s=30.0)) for _ in _BURSTS]
            with contextlib.ExitStack() as busy:
                for name in self._group.copies:
                    busy.enter_context(history.reading(mq, name))
                streams = [busy.enter_context(history.publishing(each, burst=size)) for each, size in zip(producers, _BURSTS, strict=True)]
                yield
            for stream in streams:
                stream.settle()

    def some_faults(self) -> None:
        """Let a few happen, one or two at a time."""
        for _ in range(self._chance.randint(1, 5)):
            time.sleep(self._chance.uniform(0.0, 1.5))
            if len(self._faults.open) == _MOST_OPEN or (self._faults.open and self._chance.random() < 0.4):
                self._end_one()
            elif fault := self._faults.draw():
                self._faults.open.append(fault)
                self._say(fault.begin())
                if isinstance(fault, ChangeOfPlaces):
                    self._faults.open.remove(fault)

    def calm(self) -> None:
        """Put everything right; then the group must settle by itself, or when an operator says once more who is to lead."""
        time.sleep(self._chance.uniform(0.0, 1.5))
        while self._faults.open:
            self._end_one()
        if ended := self._group.cluster.start():  # as a supervisor does
            self._say(f"had ended, started again: {', '.join(ended)}")
        self._await_leader()
        eventually(lambda: self._group.leads_all(self._leader()), "all copies are in sync", within_s=_PATIENCE_S)
        self.history.wait_for_more(_SOME, _PATIENCE_S)
        self.history.check_holders()
        self._faults.spare_disks = 1
        self._say(f"{self._leader()} leads all copies, {self.history.acknowledged():,} messages acknowledged")

    def _await_leader(self) -> None:
        try:
            eventually(self._leader, "somebody leads", within_s=_SAYS_IT_AGAIN_S)
        except AssertionError:
            self._say("nobody leads: an operator says who is to")
            try:
                eventually(lambda: self._led(self._group.copies), "somebody leads", within_s=_GIVES_UP_S)
            except AssertionError:
                if self._faults.spare_disks:
                    raise
                ends = {name: self._group.status(name) for name in self._group.copies}
                longest = max(ends, key=lambda name: (ends[name].epoch, ends[name].end))
                self._say(f"a disk was lost: an operator lets {longest} lead with what it has")
                eventually(lambda: self._led([longest], accept_loss=True), "somebody leads", within_s=_PATIENCE_S)

    def _led(self, names: Iterable[str], *, accept_loss: bool = False) -> str:
        """Tell each to lead; who does then."""
        for name in names:
            with contextlib.suppress(DittoError):
                self._group.mq.admin.change_role(name, accept_loss=accept_loss)
        return self._leader()

    def _end_one(self) -> None:
        fault = self._faults.open.pop(self._chance.randrange(len(self._faults.open)))
        fault.end()
        self._say(f"put right: {', '.join(fault.nodes)}")

    def _leader(self) -> str:
        """The node that takes writes, "" while there is none."""
        still = {name for fault in self._faults.open if isinstance(fault, Frozen) for name in fault.nodes}
        for name in self._group.copies:
            if name not in still and self._group.cluster.is_alive(name) and self._group.writable(name):
                return name
        return ""
