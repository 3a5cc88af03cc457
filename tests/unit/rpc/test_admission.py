"""Room for answers that nobody has read yet: who waits for whom, and what is given back."""

import asyncio
import contextlib
import random
from collections import Counter

import pytest

from dittomq.errors import LimitReached
from dittomq.reads import MAX_PULL_BYTES
from dittomq.rpc.admission import CONNECTION_BYTES, AdmissionControl, Share
from tests.support.metadata_node import run
from tests.support.virtual_time import under

PULLS_OF_A_CONNECTION = CONNECTION_BYTES // MAX_PULL_BYTES
SMALL_MEMORY = 16 * 2 * CONNECTION_BYTES  # two connections have it all


async def fill(room: AdmissionControl, connection: str) -> list[Share]:
    """All that a connection may have."""
    return [await room.take(connection, MAX_PULL_BYTES) for _ in range(PULLS_OF_A_CONNECTION)]


def waiting(room: AdmissionControl, connection: str, size: int = MAX_PULL_BYTES) -> asyncio.Task[Share]:
    return asyncio.create_task(room.take(connection, size))


async def settled() -> None:
    """Whoever can go on has gone on."""
    for _ in range(5):
        await asyncio.sleep(0)


@under(run)
async def test_connection_at_its_limit_waits_until_it_has_read_something() -> None:
    """Others do not wait."""
    room = AdmissionControl(SMALL_MEMORY)
    held = await fill(room, "greedy")
    one_more = waiting(room, "greedy")
    other = await room.take("other", MAX_PULL_BYTES)
    await settled()

    assert not one_more.done()
    held[0].give_back()
    assert (await one_more).size == other.size == MAX_PULL_BYTES


@under(run)
async def test_a_node_that_is_full_refuses_after_two_seconds_and_forgets_who_waited() -> None:
    room = AdmissionControl(SMALL_MEMORY)
    held = await fill(room, "one") + await fill(room, "two")
    with pytest.raises(LimitReached, match="memory for answers that nobody has read is full"):
        await room.take("three", 1)

    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    for share in held:
        share.give_back()
    assert room.taken == 0
    assert (await room.take("three", 1)).size == 1


@under(run)
async def test_connections_take_turns_when_the_node_is_full() -> None:
    room = AdmissionControl(SMALL_MEMORY)
    held = await fill(room, "one") + await fill(room, "two")
    order: list[str] = []

    async def wait(connection: str) -> None:
        await room.take(connection, MAX_PULL_BYTES)
        order.append(connection)

    async with asyncio.TaskGroup() as tasks:
        for connection in ("three", "three", "three", "four", "five"):
            tasks.create_task(wait(connection))
        await settled()
        for share in held[:5]:
            share.give_back()
            await settled()

    assert order == ["three", "four", "five", "three", "three"]


@under(run)
async def test_an_answer_smaller_than_asked_for_makes_room_at_once() -> None:
    room = AdmissionControl(SMALL_MEMORY)
    held = await fill(room, "one")
    next_one = waiting(room, "one")
    await settled()
    held[0].settle(0)
    await settled()

    assert next_one.done()


@under(run)
async def test_whoever_leaves_while_waiting_takes_nothing_whether_it_was_granted_or_not() -> None:
    room = AdmissionControl(SMALL_MEMORY)
    held = await fill(room, "one")
    leaves, granted, stays = waiting(room, "one"), waiting(room, "one"), waiting(room, "one")
    await settled()
    leaves.cancel()
    await settled()
    held[0].give_back()  # granted has it now, and has not run yet
    granted.cancel()
    await settled()

    assert leaves.cancelled()
    assert granted.cancelled()
    assert stays.done()
    for share in [*held[1:], await stays]:
        share.give_back()
    assert room.taken == 0


@pytest.mark.parametrize("seed", range(20))
@under(run)
async def test_no_connection_has_more_than_its_part_and_nothing_is_lost_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    room = AdmissionControl(SMALL_MEMORY)
    taken: Counter[str] = Counter()

    async def pull(connection: str) -> None:
        await asyncio.sleep(chance.random())
        share = await room.take(connection, chance.randint(1, MAX_PULL_BYTES))
        taken[connection] += share.size
        assert taken[connection] <= CONNECTION_BYTES
        assert taken.total() <= 2 * CONNECTION_BYTES
        try:
            await asyncio.sleep(chance.random())
        finally:
            taken[connection] -= share.size
            share.give_back()

    pulls = [asyncio.create_task(pull(chance.choice("abcd"))) for _ in range(200)]
    for leaving in chance.sample(pulls, 50):
        await asyncio.sleep(0.01)
        leaving.cancel()
    for each in pulls:
        with contextlib.suppress(LimitReached, asyncio.CancelledError):
            await each
    assert room.taken == 0
    assert (await room.take("e", MAX_PULL_BYTES)).is_admitted


@under(run)
async def test_first_page_of_a_connection_does_not_wait_for_others() -> None:
    """Others hold all; its next page waits."""
    room = AdmissionControl(SMALL_MEMORY)
    for connection in ("one", "two"):
        await fill(room, connection)
    pull = waiting(room, "late")

    async with room.page("other") as share:
        share.settle(1_000)
        more = asyncio.create_task(_read_page(room, "other"))
        await settled()
        assert (pull.done(), more.done()) == (False, False)
    await more

    pull.cancel()


async def _read_page(room: AdmissionControl, connection: str) -> None:
    async with room.page(connection):
        pass
