"""What a recovering master copies of a slave's log, and what it does not take."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.fetching import RangeServing
from dittomq.commitlog.store import Store
from dittomq.copies import Beginning
from dittomq.errors import OffsetOutOfRange, StreamDropped
from dittomq.lineage import LineageEntry
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.events import Hello, RangePiece
from dittomq.replication.group_of_start import LeadershipRules
from dittomq.replication.leadership_decisions import Lead
from dittomq.replication.standings import KnownBefore
from dittomq.routes import Opening
from services.master.recovery import Peers, Recovery, RecoveryParts
from tests.support.lanes import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.starts import EMPTY, asked, hello
from tests.support.stores import Machine, begin_epoch, frame, whole_log

R = TypeVar("R")

ONE_SLAVE = LeadershipRules(replicas_expected=1, in_sync_replicas=2, sync_flush=True, recover_wait_s=5.0)


@dataclass(frozen=True, slots=True)
class Slave:
    """A slave's log, as a master reads it from afar."""

    store: Store

    def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, past_damage: bool = False) -> AsyncGenerator[RangePiece, None]:
        return RangeServing(lambda: (self.store,), InlineLane(), "c", "a", lambda _: None).fetch(start, end, past_damage=past_damage)

    async def beginning(self) -> Beginning:
        return Beginning(self.store.min_offset)


class BusyLane(InlineLane):
    """Has other work before the first that it is given; something else happens meanwhile."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self._meanwhile: list[Callable[[], None]] = [meanwhile]

    async def call(self, work: Callable[[], R]) -> R:
        while self._meanwhile:
            self._meanwhile.pop()()
        return await super().call(work)


def log_of(*bodies: str, incarnation: int = 7_000) -> Store:
    """What a master wrote in the first epoch. It is as long as any other of as many messages."""
    store = Machine(random.Random(1)).open()
    begin_epoch(store, LineageEntry(Epoch(1), 0, incarnation, store.end))
    store.append([frame(body.encode().ljust(9)) for body in bodies], 1)
    store.sync()
    return store


async def on_an_empty_disk(heard: Hello, slave: Store) -> tuple[Store, Recovery, asyncio.Task[object]]:
    """A master that has heard that slave, and 10 s for what it does then."""

    async def nothing(*_: object) -> None: ...

    async def no_tables(_: str) -> Epoch:
        return NO_EPOCH

    async def announce(_: Opening, addresses: list[str]) -> list[KnownBefore]:
        return []

    store, clock = Machine(random.Random(2)).open(), LoopClock()
    leadership = asked(ONE_SLAVE, EMPTY, clock.monotonic())
    recovery = Recovery(leadership, EMPTY, RecoveryParts(store, InlineLane(), Dispatcher(store, InlineLane()), clock))
    recovery.slave_heard(heard)
    peers = Peers(lambda _: Slave(slave), no_tables, nothing, nothing, lambda: None, announce)
    running: asyncio.Task[object] = asyncio.create_task(recovery.run(peers))
    await asyncio.sleep(10.0)
    return store, recovery, running


def test_the_log_of_a_slave_is_copied_whole() -> None:
    async def story() -> None:
        slave = log_of("first", "second")

        store, _, running = await on_an_empty_disk(hello(1, slave.end, slave.lineage), slave)

        assert isinstance(await running, Lead)
        assert (whole_log(store), store.lineage) == (whole_log(slave), slave.lineage)

    run(story())


def damaged_log_of(end: PhysicalOffset) -> Store:
    """What another master wrote in an epoch of the same number, of which nothing is whole here."""
    store = Machine(random.Random(1)).open()
    begin_epoch(store, LineageEntry(Epoch(1), 0, 8_000, store.end))
    store.leave_hole(store.end, end)
    store.sync()
    return store


@pytest.mark.parametrize("is_whole", [True, False])
def test_what_a_slave_has_from_another_master_since_its_hello_is_not_taken_for_what_it_said_that_it_has(is_whole: bool) -> None:
    async def story() -> None:
        before = log_of("first", "second")
        now = log_of("third", "fourth", incarnation=8_000) if is_whole else damaged_log_of(before.end)
        said = hello(1, before.end, before.lineage)

        store, recovery, running = await on_an_empty_disk(said, now)

        assert (store.end, running.done()) == (0, False)
        with pytest.raises(StreamDropped, match="what it has according to its hello could not be fetched"):
            recovery.slave_heard(said)
        running.cancel()

    run(story())


def test_bytes_that_came_while_they_were_read_are_not_called_those_of_the_master_before() -> None:
    async def story() -> None:
        slave = log_of("first", "second")
        new = log_of("third", "fourth", incarnation=8_000)

        def follow_the_other() -> None:
            slave.cut(slave.min_offset)
            slave.adopt_lineage(new.lineage)
            slave.write_chunk(new.min_offset, whole_log(new))

        ranges = RangeServing(lambda: (slave,), BusyLane(follow_the_other), "c", "a", lambda _: None)

        with pytest.raises(OffsetOutOfRange):
            [piece async for piece in ranges.fetch(slave.min_offset, slave.end)]

    run(story())
