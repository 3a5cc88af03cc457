"""A group of real processes under random faults for as long as one likes, with producers, readers and the checker of what both were told.

The seed chooses the faults; when each meets what, the machine decides, so a run cannot be replayed to the byte.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dittomq.testing import LocalCluster, Shape
from tests.soak.faults import NAMESERVER, Faults, Order
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.partitioned_network import NoNamespacesError, PartedCluster, PartedNetwork, parted_network
from tests.support.real_group import RealGroup, group_of, shape

_SOME = 40
_MOST_OPEN = 2
_BURSTS = (1, 32)
_TIMEOUT_S = 120.0
# Nothing may be confirmed by one copy alone: then no fault here may lose what was confirmed.
_STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}


def soak(folder: Path, seed: int, seconds: float, say: Callable[[str], object]) -> int:
    """Run for so long, tell the story; returns how many messages were acknowledged.

    AssertionError for a broken promise, or a group that does not recover.
    """
    chance = random.Random(seed)
    began = time.monotonic()
    of = shape(chance.choice((2, 2, 3)), master=_STRICT, slave=_STRICT, automatic=True)
    with _group(folder, of, say) as (group, network):
        run = _Soak(group, chance, network, lambda what: say(f"{time.monotonic() - began:7.1f} s  {what}"))
        with run.traffic():
            while time.monotonic() - began < seconds:
                run.some_faults()
                run.calm()
        run.history.check(_TIMEOUT_S)
        return run.history.acknowledged()


@contextlib.contextmanager
def _group(folder: Path, of: Shape, say: Callable[[str], object]) -> Iterator[tuple[RealGroup, PartedNetwork | None]]:
    """In a network that can be parted, where there can be one."""
    names = (NAMESERVER, *(f"a/{number}" for number in range(of.slaves + 1)))
    with contextlib.ExitStack() as entered:
        cluster, network = LocalCluster(folder / "cluster", of), None
        try:
            network = entered.enter_context(parted_network(names))
            cluster = PartedCluster(folder / "cluster", of, network)
        except NoNamespacesError as why:
            say(f"no node is parted from others: {why}")
        yield entered.enter_context(group_of(cluster)), network


class _Soak:
    def __init__(self, group: RealGroup, chance: random.Random, network: PartedNetwork | None, say: Callable[[str], object]) -> None:
        self.history = History(group)
        self._group = group
        self._chance = chance
        self._say = say
        self._faults = Faults(group, chance, network)

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
                if isinstance(fault, Order):
                    self._faults.open.remove(fault)

    def calm(self) -> None:
        """Put everything right; then the group must settle by itself."""
        time.sleep(self._chance.uniform(0.0, 1.5))
        while self._faults.open:
            self._end_one()
        if ended := self._group.cluster.start():  # as a supervisor does
            self._say(f"had ended, started again: {', '.join(ended)}")
        leads = self._group.wait_led_by_all(_TIMEOUT_S)
        self.history.wait_for_more(_SOME, _TIMEOUT_S)
        self.history.check_holders()
        self._faults.spare_disks = 1
        self._say(f"{leads} leads all copies, {self.history.acknowledged():,} messages acknowledged")

    def _end_one(self) -> None:
        fault = self._faults.open.pop(self._chance.randrange(len(self._faults.open)))
        fault.end()
        self._say(f"put right: {', '.join(fault.nodes)}")
