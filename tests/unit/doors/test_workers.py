"""Lanes of real threads."""

import asyncio
import threading
import weakref
from collections.abc import Generator, Iterator

import pytest

from dittomq.doors.workers import ThreadLane
from tests.support.virtual_time import under


@pytest.fixture
def lane() -> Iterator[ThreadLane]:
    made = ThreadLane("lane", 1)
    yield made
    made.close()


def test_work_runs_off_the_loop_in_the_order_of_the_calls(lane: ThreadLane) -> None:
    ran: list[int] = []
    threads: set[int] = set()

    def work(number: int) -> int:
        ran.append(number)
        threads.add(threading.get_ident())
        return number

    async def story() -> list[int]:
        return await asyncio.gather(*(lane.call(lambda number=number: work(number)) for number in range(50)))  # type: ignore[misc]

    assert asyncio.run(story()) == ran == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_a_lane_that_has_nothing_to_do_holds_nothing_of_what_it_did(lane: ThreadLane) -> None:
    freed = threading.Event()

    async def story() -> None:
        large = {b"large"}
        weakref.finalize(large, freed.set)
        assert await lane.call(lambda: len(large)) == 1

    asyncio.run(story())
    assert freed.wait(10)


def test_progress_is_told_on_the_loop_in_order_before_the_result(lane: ThreadLane) -> None:
    told: list[object] = []

    def steps() -> Generator[int, None, str]:
        yield 1
        yield 2
        return "end"

    async def story() -> None:
        here = threading.get_ident()
        told.append(await lane.run(steps(), lambda step: told.append((step, threading.get_ident() == here))))

    asyncio.run(story())
    assert told == [(1, True), (2, True), "end"]


@under(asyncio.run)
async def test_what_the_work_raises_is_raised_to_its_caller_and_the_lane_goes_on(lane: ThreadLane) -> None:
    def fail() -> int:
        raise OSError("no such thing")

    with pytest.raises(OSError, match="no such thing"):
        await lane.call(fail)
    assert await lane.call(lambda: 7) == 7


@under(asyncio.run)
async def test_a_caller_that_is_cancelled_does_not_stop_the_work(lane: ThreadLane) -> None:
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(30)
        ended.set()

    calling = asyncio.create_task(lane.call(work))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    may_end.set()
    assert await lane.call(lambda: 7) == 7
    assert ended.is_set()


def test_work_that_outlives_its_loop_runs_to_its_end_before_the_lane_is_closed() -> None:
    lane = ThreadLane("lane", 1)
    may_end, ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(30)
        ended.set()

    async def story() -> None:
        calling = asyncio.create_task(lane.call(work))
        await asyncio.sleep(0)
        calling.cancel()

    asyncio.run(story())
    may_end.set()
    lane.close()
    assert ended.is_set()


def test_a_wide_lane_runs_as_many_at_a_time() -> None:
    lane = ThreadLane("reads", 3)
    together = threading.Barrier(3, timeout=30)

    async def story() -> None:
        await asyncio.gather(*(lane.call(together.wait) for _ in range(3)))

    asyncio.run(story())
    lane.close()
