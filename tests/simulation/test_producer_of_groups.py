"""A producer and several broker groups: what goes where, and what becomes of it when a master dies."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from dittomq.client import AsyncClient, Message, NotStored
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


def messages(count: int, start: int = 0) -> list[Message]:
    return [Message("orders", b"%d" % at) for at in range(start, start + count)]


@played_by(play, groups=("a", "b"))
async def test_receipts_of_many_messages_come_in_their_order_from_all_groups(town: ClientTown, mq: AsyncClient) -> None:
    async def source() -> AsyncIterator[Message]:
        for at in range(3_000):
            yield Message("orders", b"%d" % at, order_key=f"k{at % 50}" if at % 2 else "")

    async with mq.producer() as orders:
        receipts = await orders.publish_many(source())

    assert len(receipts) == 3_000
    for at, receipt in enumerate(receipts):
        placed = town.logs[receipt.broker].placed[receipt.physical_offset // 100]
        assert (placed.message.body, placed.message.queue, placed.queue_offset) == (b"%d" % at, receipt.queue, receipt.queue_offset)
    assert {receipt.broker for receipt in receipts} == {"a", "b"}


@played_by(play, groups=("a", "b"))
async def test_one_order_key_stays_in_one_queue_and_in_order(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish_many(Message("orders", b"%d" % at, order_key=f"k{at % 7}") for at in range(2_000))

    for key in range(7):
        placed = [(name, one.message) for name, log in town.logs.items() for one in log.placed if int(one.message.body) % 7 == key]
        assert [int(message.body) for _, message in placed] == list(range(key, 2_000, 7))
        assert len({(name, message.queue) for name, message in placed}) == 1


@played_by(play, groups=("a", "b"))
async def test_unbound_message_goes_to_another_group_when_its_master_is_gone(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish_many(messages(10))
        town.kill("a-0")
        await asyncio.sleep(1)
        receipts = [await orders.publish("orders", b"%d" % at) for at in range(10)]

    assert {receipt.broker for receipt in receipts} == {"b"}
    assert town.now < 10


@played_by(play, groups=("a", "b"))
async def test_long_after_a_master_died_free_messages_go_to_the_other_group_without_delay(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer(retry_s=2) as orders:
        await orders.publish_many(messages(10))
        town.kill("a-0")
        await asyncio.sleep(1)
        with pytest.raises(NotStored):
            await orders.publish("orders", b"bound", queue=0)
        await asyncio.sleep(1)
        began = town.now
        receipts = [await orders.publish("orders", b"%d" % at) for at in range(40)]

    assert {receipt.broker for receipt in receipts} == {"b"}
    assert town.now - began < 1


@played_by(play, groups=("a", "b"))
async def test_returned_master_gets_its_share_though_no_nameserver_missed_it(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        await orders.publish_many(messages(10))
        town.kill("a-0")
        await asyncio.sleep(1)
        await orders.publish_many(messages(10))
        town.restart("a-0")
        await asyncio.sleep(10)
        receipts = [await orders.publish("orders", b"%d" % at) for at in range(16)]

    assert {receipt.broker for receipt in receipts} == {"a", "b"}


@played_by(play, groups=("a", "b"))
async def test_while_all_masters_are_dead_free_messages_fail_after_the_time_of_one(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer(max_waiting_bytes=100_000) as orders:
        await orders.publish("orders", b"warm")
        town.kill("a-0")
        town.kill("b-0")
        await asyncio.sleep(1)
        outcomes = await orders.publish_many(messages(10_000), on_failure="return")

    assert outcomes.tally() == (0, 0, 10_000, 0)
    assert town.now < 40


@played_by(play, groups=("a", "b"))
async def test_an_order_key_waits_for_its_own_group(town: ClientTown, mq: AsyncClient) -> None:
    async with mq.producer() as orders:
        keys = [f"k{at}" for at in range(20)]
        before = {key: (await orders.publish("orders", b"1", order_key=key)).broker for key in keys}
        town.kill("a-0")
        await asyncio.sleep(1)
        town.world.loop.call_later(3, town.restart, "a-0")
        after = {key: (await orders.publish("orders", b"2", order_key=key)).broker for key in keys}

    assert before == after


@played_by(play, groups=("a", "b"))
async def test_order_key_keeps_its_queue_while_a_new_nameserver_lacks_groups(town: ClientTown, mq: AsyncClient) -> None:
    keys = [f"k{at}" for at in range(12)]
    async with mq.producer(retry_s=1) as orders:
        before = [await orders.publish("orders", b"x", order_key=key) for key in keys]
        await asyncio.sleep(31)
        town.nameserver.warming_up = True
        town.nameserver.queues["orders"] = {"a": 4}
        after = [await orders.publish("orders", b"y", order_key=key) for key in keys]
        await asyncio.sleep(31)
        town.nameserver.warming_up = False
        settled = [await orders.publish("orders", b"z", order_key=key) for key in keys]

    assert {receipt.broker for receipt in before} == {"a", "b"}
    assert [(receipt.broker, receipt.queue) for receipt in after] == [(receipt.broker, receipt.queue) for receipt in before]
    assert {receipt.broker for receipt in settled} == {"a"}
