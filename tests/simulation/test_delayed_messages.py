"""Delayed messages of RocketMQ's levels: each confirmed one is delivered exactly once, and not before it is due."""

import asyncio

import pytest

from dittomq.client import AsyncClient, Message, NotStored
from dittomq.delays import LEVEL_DELAYS_S, MAX_DELAY_MS, SCHEDULE_TOPIC
from dittomq.errors import InvalidField, MessageTooLarge, PermissionDenied
from dittomq.metadata.formats import DELAY_OFFSETS, decode
from tests.simulation.group import Group, bodies, play
from tests.support.virtual_time import played_by


async def create(mq: AsyncClient, topic: str = "orders") -> None:
    [created] = await mq.admin.create_topic(topic, 1)
    assert created.error is None


async def delay(mq: AsyncClient, *bodies_: bytes, delay_s: float = 5) -> None:
    async with mq.producer() as producer:
        for body in bodies_:
            await producer.publish("orders", body, delay_s=delay_s)


@played_by(play)
async def test_delayed_message_is_read_when_it_is_due_and_not_before(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    async with mq.producer() as producer:
        receipt = await producer.publish("orders", "x", delay_s=5, keys=["k"], tag="t", properties={"p": "v"})
    reader = mq.reader("orders", queue=0)
    began = receipt.store_ms

    await asyncio.sleep(4.8)
    assert (await reader.pull(0)).messages == ()
    page = await reader.pull(0, wait_s=5)

    [message] = page.messages
    assert (message.body, message.keys, message.tag, dict(message.properties)) == (b"x", ("k",), "t", {"p": "v"})
    assert 5_000 <= message.store_ms - began < 5_100
    assert receipt.topic == SCHEDULE_TOPIC
    assert receipt.queue == 1


@played_by(play)
async def test_messages_of_all_levels_are_delivered_in_the_order_of_their_delays(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    delays = [seconds for seconds in LEVEL_DELAYS_S if seconds <= 60]
    async with mq.producer() as producer:
        for seconds in reversed(delays):
            await producer.publish("orders", str(seconds), delay_s=seconds)

    await asyncio.sleep(62)

    assert await bodies(mq, "a/0") == [str(seconds).encode() for seconds in delays]


@played_by(play)
async def test_what_was_delivered_before_a_failover_is_not_delivered_again(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, b"1", b"2", b"3", delay_s=5)
    await asyncio.sleep(5.5)
    await delay(mq, b"4", b"5", delay_s=5)
    await group.kill("a0")
    await group.fail_over("a/1")

    await asyncio.sleep(10)

    assert await bodies(mq, "a/1") == [b"1", b"2", b"3", b"4", b"5"]


@played_by(play)
async def test_what_a_dead_master_did_not_deliver_its_successor_does(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, b"1", b"2", delay_s=10)
    await group.kill("a0")
    await asyncio.sleep(12)
    await group.fail_over("a/1")

    await asyncio.sleep(2)

    assert await bodies(mq, "a/1") == [b"1", b"2"]


@played_by(play)
async def test_restarted_master_delivers_each_message_once(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, *(b"%d" % at for at in range(20)), delay_s=5)
    await asyncio.sleep(5.03)
    await group.kill("a0")
    group.node("a0").start()
    await asyncio.sleep(1)
    await group.in_sync(mq)

    await asyncio.sleep(10)

    assert await bodies(mq, "a/0") == [b"%d" % at for at in range(20)]


@pytest.mark.parametrize("shift_s", [-3_600, 3_600], ids=["back", "forward"])
@played_by(play)
async def test_clock_that_jumps_an_hour_delivers_once_within_twice_the_delay(group: Group, mq: AsyncClient, /, shift_s: int) -> None:
    await create(mq)
    await delay(mq, b"before", delay_s=10)
    group.node("a0").clock.jump(shift_s * 1_000)
    await delay(mq, b"behind", delay_s=10)

    await asyncio.sleep(21)

    assert await bodies(mq, "a/0") == [b"before", b"behind"]


@played_by(play)
async def test_message_of_a_deleted_topic_does_not_bring_it_back_or_hold_up_others(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await create(mq, "bills")
    async with mq.producer() as producer:
        await producer.publish("bills", "lost", delay_s=5)
        await producer.publish("orders", "kept", delay_s=5)
    await mq.admin.delete_topic("bills")

    await asyncio.sleep(6)

    assert await bodies(mq, "a/0") == [b"kept"]
    [listed] = await mq.admin.list_topics()
    assert [topic.name for topic in listed.value or ()] == ["orders"]


@pytest.mark.parametrize(
    ("delay_ms", "deliver_ms", "field"),
    [
        (-1_000, 0, "delay_ms"),
        (MAX_DELAY_MS + 1, 0, "delay_ms"),
        (1 << 62, 0, "delay_ms"),
        (1_000, 1_000, "deliver_ms"),
        (0, -1, "deliver_ms"),
        (0, 1 << 62, "deliver_ms"),
    ],
)
@played_by(play)
async def test_impossible_delay_is_refused_and_nothing_is_stored(
    group: Group, mq: AsyncClient, /, *, delay_ms: int, deliver_ms: int, field: str
) -> None:
    await create(mq)
    before = (await mq.admin.ha_status("a/0")).end
    async with mq.producer() as producer:
        with pytest.raises(NotStored) as raised:
            await producer.publish_message(Message("orders", b"x", delay_ms=delay_ms, deliver_ms=deliver_ms))

    assert isinstance(raised.value.cause, InvalidField)
    assert raised.value.cause.field == field
    assert (await mq.admin.ha_status("a/0")).end == before


@played_by(play)
async def test_clients_cannot_publish_to_a_system_topic_or_delete_it(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, b"x", delay_s=5)
    await asyncio.sleep(15)

    async with mq.producer(retry_s=1.0) as producer:
        with pytest.raises(NotStored) as raised:
            await producer.publish(SCHEDULE_TOPIC, b"y", queue=0)
    [deleted] = await mq.admin.delete_topic(SCHEDULE_TOPIC)

    assert isinstance(raised.value.cause, PermissionDenied)
    assert isinstance(deleted.error, PermissionDenied)
    [listed] = await mq.admin.list_topics()
    assert [topic.name for topic in listed.value or ()] == ["orders"]


@played_by(play)
async def test_properties_that_leave_a_delayed_copy_no_room_are_refused(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    async with mq.producer() as producer:
        with pytest.raises(NotStored) as raised:
            await producer.publish("orders", b"x", delay_s=5, properties={"p": "v" * 32_300})
    assert isinstance(raised.value.cause, MessageTooLarge)


@played_by(play)
async def test_rocketmqs_delay_offsets_follow_what_is_delivered_on_every_copy(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await delay(mq, b"1", b"2", b"3", delay_s=1)
    await delay(mq, b"4", delay_s=60)
    await asyncio.sleep(40)

    for name in ("a0", "a1"):
        file = group.node(name).disk.names.files[DELAY_OFFSETS.path]
        [row] = decode(DELAY_OFFSETS, file.read(file.size, 0)).rows.values()
        assert (row.level, row.offset, row.rocketmq_offset) == (1, 3, 0)
