"""When a nameserver's answers leave: after the write that holds what they tell."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import pytest

from dittomq.doors.clock import OsClock
from dittomq.offsets import Epoch
from dittomq.routes import Opening
from services.nameserver.keeping import Keeper
from services.nameserver.openings import Openings
from services.nameserver.openings_file import opened
from tests.support.failing_storage import CrashingStorage
from tests.support.stores import Machine

P = TypeVar("P")
R = TypeVar("R")


class HeldLane:
    """Begins each piece of work when `may_go` says so."""

    def __init__(self) -> None:
        self.begun = 0
        self.may_go = asyncio.Semaphore(0)

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        raise NotImplementedError

    async def call(self, work: Callable[[], R]) -> R:
        self.begun += 1
        await self.may_go.acquire()
        return work()


class Kept:
    """A keeper at work on a disk that takes what `lane` lets through."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.machine = Machine(random.Random(1))
        with opened(storage := CrashingStorage(self.machine.storage()), "/data"):
            self.storage = storage
        self.lane = HeldLane()
        self.openings = Openings()
        self.keeper = Keeper(self.openings, self.storage, self.lane, OsClock())
        self.tasks = tasks
        self.running = tasks.create_task(self.keeper.run())

    def told(self, group: str, epoch: int) -> asyncio.Task[bool]:
        self.openings.learn(group, Opening(Epoch(epoch), 0), ())
        return self.tasks.create_task(self.keeper.keep(group))


async def turns() -> None:
    """All that can happen without another word has happened."""
    for _ in range(20):
        await asyncio.sleep(0)


def act(story: Callable[[Kept], Awaitable[None]]) -> None:
    async def acted() -> None:
        async with asyncio.TaskGroup() as tasks:
            kept = Kept(tasks)
            await story(kept)
            kept.running.cancel()

    asyncio.run(acted())


def test_an_answer_leaves_after_the_write_that_holds_what_it_tells_and_not_after_an_earlier_one() -> None:
    async def story(kept: Kept) -> None:
        first = kept.told("a", 1)
        await turns()
        second = kept.told("a", 2)
        await turns()
        assert not first.done()

        kept.lane.may_go.release()
        await turns()
        assert not second.done()
        kept.lane.may_go.release()

        assert await second
        with opened(kept.machine.beside(), "/data") as rows:
            assert rows == (("a", Opening(Epoch(2), 0)),)

    act(story)


def test_those_who_come_during_a_write_share_the_next() -> None:
    async def story(kept: Kept) -> None:
        kept.told("first", 1)
        await turns()
        others = [kept.told(f"g{number}", 1) for number in range(500)]
        for _ in range(2):
            kept.lane.may_go.release()
            await turns()

        assert all([await other for other in others])
        assert kept.lane.begun == 2

    act(story)


def test_another_group_does_not_wait_for_a_write() -> None:
    async def story(kept: Kept) -> None:
        settled = kept.told("settled", 1)
        kept.lane.may_go.release()
        assert await settled
        kept.told("a", 1)
        await turns()

        assert await kept.keeper.keep("settled")
        kept.lane.may_go.release()

    act(story)


@pytest.mark.parametrize("room", [0, 60_000])
def test_what_could_not_be_kept_is_not_tried_again_at_once_for_everybody_who_asks(room: int) -> None:
    async def story(kept: Kept) -> None:
        kept.storage.free = room
        kept.lane.may_go = asyncio.Semaphore(100)

        answers = [await kept.told("a", epoch) for epoch in range(1, 50)]

        assert (any(answers), kept.lane.begun) == (False, 1)

    act(story)
