"""A consumer's buffer: in order, never more than its bound, and those who bring messages take turns."""

import asyncio
import itertools
import random

import pytest

from dittomq.client.message_buffer import MessageBuffer
from tests.support.metadata_node import run
from tests.support.virtual_time import under


async def bring(buffer: MessageBuffer[tuple[int, int]], who: int, count: int) -> None:
    for number in range(count):
        if buffer.is_full:
            await buffer.room()
        buffer.put((who, number))
        assert len(buffer) <= 8


async def take(buffer: MessageBuffer[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    while len(found) < count:
        if (item := buffer.take()) is None:
            await buffer.wait()
        else:
            found.append(item)
    return found


@under(run)
async def test_all_that_is_brought_is_taken_in_order() -> None:
    buffer = MessageBuffer[tuple[int, int]](8)
    async with asyncio.TaskGroup() as tasks:
        for who in range(3):
            tasks.create_task(bring(buffer, who, 50))
        found = await take(buffer, 150)

    for who in range(3):
        assert [number for each, number in found if each == who] == list(range(50))


@under(run)
async def test_those_who_bring_messages_take_turns() -> None:
    buffer = MessageBuffer[tuple[int, int]](8)
    async with asyncio.TaskGroup() as tasks:
        for who in range(3):
            tasks.create_task(bring(buffer, who, 50))
        found = await take(buffer, 150)

    stretches = [len(list(group)) for _, group in itertools.groupby(found, key=lambda item: item[0])]
    assert max(stretches[:-1]) <= 16  # the first one fills it twice


@pytest.mark.parametrize("seed", range(5))
@under(run)
async def test_whoever_is_cancelled_while_it_waits_takes_no_turn_from_others(seed: int) -> None:
    print(f"seed {seed}")
    chance, buffer = random.Random(seed), MessageBuffer[tuple[int, int]](8)
    doomed = [asyncio.ensure_future(bring(buffer, who, 1_000)) for who in range(4)]
    stays = asyncio.ensure_future(bring(buffer, 4, 100))
    found = list[tuple[int, int]]()
    while len([item for item in found if item[0] == 4]) < 100:
        found += await take(buffer, 1)
        if doomed and chance.random() < 0.05:
            doomed.pop(chance.randrange(len(doomed))).cancel()
        if chance.random() < 0.3:
            await asyncio.sleep(0)
    await stays
    for task in doomed:
        task.cancel()

    assert [number for who, number in found if who == 4] == list(range(100))


@under(run)
async def test_a_wake_ends_a_wait_without_a_message() -> None:
    buffer = MessageBuffer[int](8)
    waiting = asyncio.ensure_future(buffer.wait())
    await asyncio.sleep(0)
    buffer.wake()
    await waiting

    assert buffer.take() is None
