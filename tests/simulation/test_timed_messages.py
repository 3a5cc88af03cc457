"""Messages with any time of delivery: each confirmed one comes exactly once, never before it is due, and within 100 ms of that."""

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from dittomq.client import AsyncClient, Message, NotStored
from dittomq.delays import TIMER_TOPIC
from dittomq.errors import InvalidField
from dittomq.message import StoredMessage
from tests.simulation.group import Group, bodies, play
from tests.support.virtual_time import played_by

LATE_MS = 100


async def create(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None


async def delay(mq: AsyncClient, delays_ms: dict[bytes, int]) -> dict[bytes, int]:
    """Publish a message for each; returns when each is due, ms since 1970."""
    async with mq.producer() as producer:
        receipts = await producer.publish_many([Message("orders", body, delay_ms=delay_ms) for body, delay_ms in delays_ms.items()])
    return {body: receipt.store_ms + delay_ms for (body, delay_ms), receipt in zip(delays_ms.items(), receipts, strict=True)}


async def delivered(mq: AsyncClient, node: str = "a/0") -> AsyncIterator[StoredMessage]:
    at = 0
    reader = mq.reader("orders", queue=0, node=node, max_messages=4_096)
    while page := (await reader.pull(at)).messages:
        for message in page:
            yield message
        at = page[-1].queue_offset + 1


async def check(mq: AsyncClient, due_ms: dict[bytes, int], node: str = "a/0") -> None:
    found = [message async for message in delivered(mq, node)]
    assert sorted(message.body for message in found) == sorted(due_ms)
    late = {message.body: message.store_ms - due_ms[message.body] for message in found}
    assert all(-10 <= each <= LATE_MS for each in late.values()), {body: each for body, each in late.items() if not 0 <= each <= LATE_MS}


@pytest.mark.parametrize("pending", [200, pytest.param(3_000, marks=pytest.mark.tier("nightly"))])
@played_by(play)
async def test_pending_messages_come_within_100_ms_of_their_due_times(group: Group, mq: AsyncClient, /, *, pending: int) -> None:
    await create(mq)
    chance = random.Random(7)
    due = await delay(mq, {b"%d" % at: chance.randrange(1, 60_000) for at in range(pending)})

    await asyncio.sleep(61)

    await check(mq, due)


@played_by(play)
async def test_keys_tag_and_properties_survive_all_hops(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    async with mq.producer() as producer:
        receipt = await producer.publish("orders", b"x", keys=["k1", "k2"], tag="t", properties={"p": "v"}, delay_s=47.11)
    await asyncio.sleep(48)

    [message] = [message async for message in delivered(mq)]

    assert (message.keys, message.tag, dict(message.properties)) == (("k1", "k2"), "t", {"p": "v"})
    assert receipt.topic == TIMER_TOPIC


@pytest.mark.parametrize("seed", [1, 2])
def test_failovers_neither_lose_nor_repeat_a_timed_message(seed: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await create(mq)
        chance = random.Random(seed)
        due = await delay(mq, {b"%d" % at: chance.randrange(1, 40_000) for at in range(400)})
        await asyncio.sleep(chance.uniform(1, 4))
        await group.kill("a0")
        await group.fail_over("a/1")
        group.node("a0").start()
        await group.in_sync(mq, "a/1")
        await asyncio.sleep(chance.uniform(1, 4))
        await group.kill("a1")
        await group.fail_over("a/0")
        await asyncio.sleep(42)

        found = [message async for message in delivered(mq)]
        assert sorted(message.body for message in found) == sorted(due)
        assert all(message.store_ms >= due[message.body] - 2_000 for message in found)  # each node has a clock of its own

    play(story, seed=seed)


@played_by(play)
async def test_time_of_delivery_is_kept_and_one_that_has_passed_delays_nothing(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    now = datetime.fromtimestamp(group.node("a0").clock.wall_ms() / 1_000, UTC)
    async with mq.producer() as producer:
        await producer.publish("orders", b"later", deliver_at=now + timedelta(seconds=20.5))
        await producer.publish("orders", b"at once", deliver_at=now - timedelta(days=400))
        with pytest.raises(NotStored) as raised:
            await producer.publish("orders", b"never", deliver_at=now + timedelta(days=41))
        with pytest.raises(NotStored) as naive:
            await producer.publish("orders", b"when", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001

    assert isinstance(raised.value.cause, InvalidField)
    assert isinstance(naive.value.cause, InvalidField)
    assert await bodies(mq, "a/0") == [b"at once"]
    await asyncio.sleep(21)
    assert await bodies(mq, "a/0") == [b"at once", b"later"]


@played_by(play)
async def test_clock_that_goes_back_an_hour_makes_a_timed_message_an_hour_late(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, {b"x": 12_345, b"y": 13_000})
    group.node("a0").clock.jump(-60_000)

    await asyncio.sleep(60)
    assert await bodies(mq, "a/0") == []
    await asyncio.sleep(14)

    assert await bodies(mq, "a/0") == [b"x", b"y"]


@played_by(play)
async def test_clock_that_goes_forward_delivers_timed_messages_early_and_once(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, {b"x": 612_345, b"y": 613_000})
    group.node("a0").clock.jump(3_600_000)

    await asyncio.sleep(2)

    assert await bodies(mq, "a/0") == [b"x", b"y"]
