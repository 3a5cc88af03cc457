"""Where a consumer group's reads go, and how old a copy may be that answers them, in whole broker groups."""

import asyncio
from typing import Any

import pytest

from dittomq.client import AsyncClient, GroupConfig, GroupUpdate
from dittomq.client.reader import Page, Reader
from dittomq.errors import StaleCopy
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

THREE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)


async def fill(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer() as producer:
        await producer.publish("orders", b"paid", queue=0)
    await asyncio.sleep(2)


@pytest.mark.parametrize("node", ["a/0", "a/1", "a/2"])
@played_by(play, shape=THREE)
async def test_a_fresh_copy_answers_who_allows_no_old_one(group: Group, mq: AsyncClient, /, node: str) -> None:
    await fill(mq)

    page = await mq.reader("orders", 0, node=node).pull(0, max_staleness_s=2.0)

    assert [message.body for message in page.messages] == [b"paid"]


@played_by(play, shape=THREE)
async def test_a_slave_without_its_master_refuses_who_allows_no_old_copy(group: Group, mq: AsyncClient) -> None:
    """And another node answers as soon as it leads."""
    await fill(mq)
    group.world.network.silence("a2", "a0")
    group.world.network.silence("a0", "a2")
    await asyncio.sleep(8)

    with pytest.raises(StaleCopy) as refused:
        await mq.reader("orders", 0, node="a/2").pull(0, max_staleness_s=2.0)
    anybody = await mq.reader("orders", 0).pull(0, max_staleness_s=2.0)
    of_any_age = await mq.reader("orders", 0, node="a/2").pull(0)

    assert refused.value.node == "a/2"
    assert refused.value.age_ms > 2_000
    assert anybody.node == "a/0"
    assert len(of_any_age.messages) == 1


@played_by(play, shape=THREE)
async def test_a_master_that_nobody_hears_is_no_fresh_copy_nor_is_its_slave(group: Group, mq: AsyncClient) -> None:
    """The slave still hears its master, who cannot know whether another one leads."""
    await fill(mq)
    for one in ("a2", "ns"):
        group.world.network.silence("a0", one)
        group.world.network.silence(one, "a0")
    await asyncio.sleep(20)
    heard = await mq.reader("orders", 0, node="a/1").pull(0, max_staleness_s=2.0)  # those two keep all others from leading
    for one in ("a1", "a2"):
        group.world.network.silence("a0", one)
        group.world.network.silence(one, "a0")
    await asyncio.sleep(8)

    for node in ("a/0", "a/1"):
        with pytest.raises(StaleCopy):
            await mq.reader("orders", 0, node=node).pull(0, max_staleness_s=2.0)
    assert heard.node == "a/1"


@played_by(play, shape=THREE)
async def test_group_update_is_known_to_slaves_and_the_node_it_names_is_suggested(group: Group, mq: AsyncClient) -> None:
    """`broker_id`: the node that is suggested to readers at the end, as `which_broker_when_consume_slowly` is to others."""
    await fill(mq)
    [created] = await mq.admin.create_group(GroupConfig("billing"))
    assert created.error is None
    reader = mq.reader("orders", 0, group="billing")
    before = [(await reader.pull(0)).node for _ in range(2)]
    await mq.admin.update_group(GroupUpdate(GroupConfig("billing", broker_id=2), ("broker_id",)))
    await asyncio.sleep(15)
    after = [(await reader.pull(0)).node for _ in range(3)]

    assert before == ["a/0", "a/0"]
    assert after == ["a/0", "a/2", "a/2"]


@played_by(play, shape=THREE)
async def test_members_of_a_group_read_where_its_settings_say(group: Group, mq: AsyncClient, /, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(mq)
    await mq.admin.create_group(GroupConfig("billing", broker_id=2))
    async with mq.producer() as producer:
        await asyncio.gather(*(producer.publish("orders", b"%d" % number, queue=0) for number in range(300)))  # more than a page
    await asyncio.sleep(15)
    pull, nodes = Reader.pull, list[str]()

    async def seen(reader: Reader, *order: Any, **more: Any) -> Page:
        page = await pull(reader, *order, **more)
        nodes.append(page.node)
        return page

    monkeypatch.setattr(Reader, "pull", seen)
    async with mq.consumer(group="billing", topics=["orders"], start="earliest") as consumer:
        async for message in consumer:
            await message.ack()
            if message.queue_offset == 300:
                break

    assert nodes[:2] == ["a/0", "a/2"]


@played_by(play, shape=THREE)
async def test_long_polling_without_a_master_asks_few_times(group: Group, mq: AsyncClient) -> None:
    """No reader spins while all that is left of a group are slaves."""
    await fill(mq)
    await group.kill("a0")
    await group.kill("a1")
    reader = mq.reader("orders", 0)
    began, pulls = group.now, 0
    while group.now - began < 120:
        page = await reader.pull(1, wait_s=15)
        pulls += 1
        assert (page.messages, page.node) == ((), "a/2")

    assert pulls <= 9
