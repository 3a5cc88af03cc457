"""Watches of one node's state: who reads is told, who does not is in nobody's way."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.broker.status_watch import MAX_WATCHERS, StatusWatches, WatchOrder
from dittomq.errors import LimitReached
from dittomq.ha_status import HaStatus
from dittomq.rpc.interceptors import UnreadError
from tests.support.metadata_node import LoopClock, run
from tests.support.sample_status import STATUS
from tests.support.virtual_time import under


async def deaf(_: HaStatus) -> None:
    await asyncio.Event().wait()


async def unread(watches: StatusWatches) -> None:
    with pytest.raises(UnreadError):
        await watches.watch(WatchOrder(1.0, 0), deaf)


def test_unread_watch_is_dropped_with_another_reason_than_a_stop() -> None:
    run(unread(StatusWatches("a/0", lambda: STATUS, LoopClock())))


@under(run)
async def test_watches_that_nobody_reads_keep_no_place_from_others_for_ever() -> None:
    watches, told = StatusWatches("a/0", lambda: STATUS, LoopClock()), list[HaStatus]()

    async def listen(status: HaStatus) -> None:
        told.append(status)

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        for _ in range(MAX_WATCHERS):
            tasks.create_task(unread(watches))
        while not told:
            await asyncio.sleep(1)
            try:
                await watches.watch(WatchOrder(1.0, 1), listen)
            except LimitReached:
                continue
    assert told == [STATUS]


@under(run)
async def test_a_watch_that_is_read_late_gets_the_newest_state_and_goes_on() -> None:
    epochs, told = iter(range(1, 100)), list[int]()
    watches = StatusWatches("a/0", lambda: replace(STATUS, epoch=next(epochs)), LoopClock())

    async def slow(status: HaStatus) -> None:
        await asyncio.sleep(20)
        told.append(status.epoch)

    await watches.watch(WatchOrder(1.0, 3), slow)
    assert told == [1, 2, 3]
