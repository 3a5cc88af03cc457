"""What a term writes down before it goes on."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dittomq.lineage import LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade
from dittomq.routes import Opening
from services.master.degraded import DegradedRanges
from services.master.term import Opened, Term
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import SimulatedLoop
from tests.support.confirming import RULES, at


class NoQueues:
    readable = PhysicalOffset(0)

    def readable_to(self, end: PhysicalOffset) -> None:
        self.readable = end


class Degrading:
    """A term whose only slave goes, and what it wrote down of that."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.confirm = Confirm(RULES, end=at(0), confirmed=at(0), members=["a/1"], now=clock.monotonic())
        opened = Opened(Epoch(1), at(0), (), DegradedRanges())
        self.queues = NoQueues()
        self.disk = asyncio.Event()  # while it is clear, nothing gets written down
        self.disk.set()
        self.term = Term(opened, self.confirm, None, self.queues, clock)  # type: ignore[arg-type]  # nothing is written to a log here
        self.kept: list[dict[str, Any]] = []

    async def persist(self, document: bytes) -> None:
        await self.disk.wait()
        await asyncio.sleep(0)
        self.kept.append(json.loads(document))

    def written(self, end: int, messages: int) -> None:
        self.term.messages.written(at(end), messages)
        self.term.written = at(end)
        self.term.on_flushed(at(end))

    def slave_leaves(self) -> None:
        now = self.clock.monotonic()
        for since in (now - 6.0, now - 3.0):
            self.confirm.deadline_missed(self.term.written, since=since, now=since + 3.0)
        self.term.on_flushed(self.term.flushed)


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def play(story: Callable[[Degrading], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()

    async def with_recorder() -> None:
        group = Degrading(SimulatedClock(loop))
        recorder = asyncio.create_task(group.term.record_degraded(group.persist))
        try:
            await story(group)
        finally:
            recorder.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await recorder

    try:
        loop.run_until_complete(with_recorder())
    finally:
        loop.close()


def test_an_older_sync_that_is_told_behind_a_newer_one_takes_nothing_back() -> None:
    async def story(group: Degrading) -> None:
        group.written(200, 1)

        group.term.on_flushed(at(100))

        assert group.term.flushed == 200

    play(story)


def test_while_a_group_is_degraded_its_count_is_written_down_once_a_second() -> None:
    async def story(group: Degrading) -> None:
        ticks = asyncio.create_task(group.term.tick())
        group.written(100, 1)
        group.slave_leaves()
        await settled()
        for number in range(2, 42):
            group.written(100 * number, 3)
            await asyncio.sleep(0.1)

        counts = [kept["messages"] for kept in group.kept]
        assert counts == sorted(counts)
        assert 4 <= len(counts) <= 6
        assert 100 <= counts[-1] <= 121
        ticks.cancel()

    play(story)


def test_a_term_that_is_over_confirms_nothing_more_and_remembers_the_newest_epoch_with_its_opener() -> None:
    async def story(group: Degrading) -> None:
        group.written(100, 1)

        for newer in (Opening(Epoch(3), None), Opening(Epoch(3), 1), Opening(Epoch(2), 2), Opening(Epoch(3), None)):
            group.term.end(f"epoch {newer.epoch} was heard of", newer)
        group.term.slave_at("a/1", at(100), at(100))

        assert (group.term.is_over, group.term.refuses_writes, group.term.newer) == (True, "epoch 3 was heard of", Opening(Epoch(3), 1))
        assert group.confirm.confirmed == 0

    play(story)


def test_a_term_that_ends_while_it_writes_down_that_it_degrades_confirms_nothing_more() -> None:
    async def story(group: Degrading) -> None:
        group.written(100, 1)
        group.disk.clear()
        group.slave_leaves()
        await settled()
        assert group.confirm.degrade is Degrade.RECORDING

        group.term.end("epoch 2 was heard of", Opening(Epoch(2), 1))
        group.disk.set()
        await settled()

        assert (group.confirm.confirmed, group.queues.readable) == (0, 0)
        assert len(group.kept) == 1  # and it does not write that down again and again

    play(story)


@pytest.mark.parametrize(
    ("flushed", "incarnation", "has_joined"),
    [(100, 7_002, True), (60, 7_002, False), (100, 7_001, False), (100, None, False), (160, None, True), (60, None, False)],
)
def test_a_slave_has_joined_when_all_before_the_epoch_is_on_its_disk_and_the_epoch_too(
    flushed: int, incarnation: int | None, has_joined: bool
) -> None:
    async def story(group: Degrading) -> None:
        lineage = (LineageEntry(Epoch(1), 0, 7_001, at(0)), LineageEntry(Epoch(2), 0, 7_002, at(100)))
        confirm = Confirm(RULES, end=at(100), confirmed=at(100), members=[], now=group.clock.monotonic())
        opened = Opened(Epoch(2), at(100), lineage, DegradedRanges())
        term = Term(opened, confirm, None, NoQueues(), group.clock)  # type: ignore[arg-type]  # as above

        term.slave_at("a/1", received=at(160), flushed=at(flushed), incarnation=incarnation)

        assert term.joined == ({"a/1"} if has_joined else set())

    play(story)
