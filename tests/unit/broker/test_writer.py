"""The writer's steps: what may happen beside a sync, and in which order callers hear of it."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from dittomq.broker.writer import Writer, WriterEvents, WriterLanes, WriterLimits
from dittomq.commitlog.store import AppendGroup, Store
from dittomq.doors.clock import OsClock
from dittomq.errors import NotMaster, StorageFailure
from dittomq.offsets import PhysicalOffset
from tests.support.inline_lane import InlineLane
from tests.support.stores import Machine, frame
from tests.support.virtual_time import played_by

R = TypeVar("R")


class HeldLane(InlineLane):
    """Begins nothing before it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.asked = asyncio.Event()

    async def call(self, work: Callable[[], R]) -> R:
        self.asked.set()
        await self.let.wait()
        return await super().call(work)


@dataclass
class Told:
    """A writer, each of whose groups is one frame, and what it told."""

    machine: Machine
    store: Store
    sync: HeldLane = field(default_factory=HeldLane)
    written: list[PhysicalOffset] = field(default_factory=list)
    flushed: list[PhysicalOffset] = field(default_factory=list)

    def __post_init__(self) -> None:
        lanes, limits = WriterLanes(InlineLane(), self.sync), WriterLimits(group_bytes=1)
        self.writer = Writer(self.store, lanes, OsClock(), limits, sync_each_group=True)

    def events(self) -> WriterEvents:
        return WriterEvents(self._on_written, self._on_flushed)

    def _on_written(self, group: AppendGroup) -> None:
        self.written.append(group.end)

    def _on_flushed(self, end: PhysicalOffset) -> None:
        assert self.written, "flushed comes after written"
        assert end <= self.written[-1]
        self.flushed.append(end)


def play(story: Callable[[Told], Coroutine[None, None, None]]) -> None:
    """Let the story happen while the writer runs."""

    async def run() -> None:
        machine = Machine(random.Random(7))
        store = machine.lead()
        told = Told(machine, store)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            running = tasks.create_task(told.writer.run(told.events()))
            await story(told)
            running.cancel()

    asyncio.run(run())


@played_by(play)
async def test_a_batch_by_itself_is_synced_where_it_was_written(told: Told) -> None:
    [run] = await (await told.writer.submit(frame(b"one"), 3))
    await told.writer.drained()

    assert told.flushed == [run.end] == [told.store.flushed]
    assert not told.sync.asked.is_set()


@played_by(play)
async def test_next_batches_are_written_during_a_sync_and_share_the_next_one(told: Told) -> None:
    futures = [await told.writer.submit(frame(body), len(body)) for body in (b"one", b"two", b"three")]

    ends = [(await future)[-1].end for future in futures]
    await told.sync.asked.wait()
    assert (told.written, told.flushed) == (ends, [])
    assert not told.writer.is_idle, "not before all is flushed"
    told.sync.let.set()
    await told.writer.drained()

    assert told.flushed[-1] == told.store.flushed == ends[-1]


def test_failed_sync_during_a_write_ends_the_writer() -> None:
    """It takes nothing more."""

    async def story(told: Told) -> None:
        futures = [await told.writer.submit(frame(body), len(body)) for body in (b"one", b"two")]
        await futures[1]
        told.machine.faults.failing_syncs = 1
        told.sync.let.set()
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(StorageFailure):
                await told.writer.submit(frame(b"three"), 5)
            assert not told.flushed

    with pytest.raises(ExceptionGroup) as raised:
        play(story)

    assert raised.group_contains(StorageFailure)


@played_by(play)
async def test_writer_has_caught_up_once_all_before_the_call_is_written(told: Told) -> None:
    """Whatever is handed over then."""
    told.sync.let.set()
    told.writer.pause()
    async with asyncio.TaskGroup() as tasks:
        before = [tasks.create_task(told.writer.submit(frame(body), 3)) for body in (b"one", b"two", b"gone")]
        await asyncio.sleep(0)
        waiting = tasks.create_task(told.writer.caught_up())
        await asyncio.sleep(0)
        before[2].cancel()
        told.writer.resume()
        number = 0
        while not waiting.done():
            assert len(told.written) < 50
            await told.writer.submit(frame(b"%d" % number), 3)
            await asyncio.sleep(0)
            number += 1
    assert number > 0
    assert all(each.result().done() for each in before[:2])
    await told.writer.drained()
    await told.writer.caught_up()


@played_by(play)
async def test_batch_that_comes_in_a_pause_waits_for_its_end(told: Told) -> None:
    """Then it is taken, or refused with nothing of it written."""
    told.sync.let.set()
    told.writer.pause()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(told.writer.submit(frame(b"one"), 3))
        await asyncio.sleep(0)
        assert (waiting.done(), told.writer.is_idle) == (False, True)
        told.writer.resume()
    [first] = await waiting.result()
    await told.writer.drained()

    told.writer.pause()
    refusal = NotMaster("a/0", "a-1:10911")
    asyncio.get_running_loop().call_soon(told.writer.resume, refusal)
    for body in (b"waited", b"came later"):
        with pytest.raises(NotMaster):
            await told.writer.submit(frame(body), len(body))
    assert told.written[-1] == first.end
