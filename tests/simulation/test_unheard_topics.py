"""Messages wait for a topic that was made shortly before a failover: the new master never heard of it, and delivers them."""

import asyncio

from dittomq.client import AsyncClient, Message
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by


async def create(mq: AsyncClient, *topics: str) -> None:
    for topic in topics:
        [created] = await mq.admin.create_topic(topic, 2)
        assert created.error is None


async def create_unheard(mq: AsyncClient, topic: str) -> None:
    """The slave has just asked for the topics, and asks for the next ones a second later."""
    await create(mq, "orders")
    await asyncio.sleep(12)
    await create(mq, "heard")
    await asyncio.sleep(0.3)
    await create(mq, topic)


async def fail_over(group: Group, mq: AsyncClient) -> list[str]:
    """a/1 leads; the topics that it begins with."""
    await group.kill("a0")
    await group.fail_over("a/1")
    return await topics(mq)


async def topics(mq: AsyncClient) -> list[str]:
    [listed] = await mq.admin.list_topics()
    return [topic.name for topic in listed.value or ()]


async def read(mq: AsyncClient, topic: str, queue: int) -> list[str]:
    return [message.body.decode() for message in (await mq.reader(topic, queue, node="a/1", max_messages=100).pull(0)).messages]


@played_by(play)
async def test_delayed_messages_of_a_topic_unheard_of_are_delivered(group: Group, mq: AsyncClient) -> None:
    await create_unheard(mq, "bills")
    async with mq.producer() as producer:
        for body, queue, delay_ms in ((b"level", 0, 5_000), (b"timer", 1, 7_300), (b"soon", 1, 6_100)):
            await producer.publish_message(Message("bills", body, queue, delay_ms=delay_ms))

    assert await fail_over(group, mq) == ["heard", "orders"]
    await asyncio.sleep(9)

    assert await topics(mq) == ["bills", "heard", "orders"]
    assert (await read(mq, "bills", 0), await read(mq, "bills", 1)) == (["level"], ["soon", "timer"])


@played_by(play)
async def test_committed_message_of_a_topic_unheard_of_is_delivered(group: Group, mq: AsyncClient) -> None:
    await create_unheard(mq, "bills")
    async with mq.producer() as producer:
        transaction = await producer.transaction(Message("bills", b"paid", 0), "billing")
        await transaction.__aenter__()
    assert transaction.receipt is not None

    assert await fail_over(group, mq) == ["heard", "orders"]
    await mq.transactions.end(transaction.receipt.token, commit=True)
    await asyncio.sleep(2)

    assert await read(mq, "bills", 0) == ["paid"]


@played_by(play)
async def test_topic_deleted_before_a_failover_does_not_come_back(group: Group, mq: AsyncClient) -> None:
    await create(mq, "orders", "bills")
    async with mq.producer() as producer:
        await producer.publish("bills", "lost", delay_s=30)
        await producer.publish("bills", "lost too", delay_s=31.7)
    await asyncio.sleep(12)
    await mq.admin.delete_topic("bills")
    await asyncio.sleep(3)

    await fail_over(group, mq)
    await asyncio.sleep(40)

    assert await topics(mq) == ["orders"]


@played_by(play)
async def test_topic_deleted_after_a_failover_does_not_come_back(group: Group, mq: AsyncClient) -> None:
    await create(mq, "orders", "bills")
    await asyncio.sleep(12)
    async with mq.producer() as producer:
        await producer.publish("bills", "lost", delay_s=30)

    await fail_over(group, mq)
    await mq.admin.delete_topic("bills")
    await asyncio.sleep(40)

    assert await topics(mq) == ["orders"]


@played_by(play)
async def test_unheard_topic_that_was_made_and_deleted_does_not_come_back(group: Group, mq: AsyncClient) -> None:
    await create_unheard(mq, "bills")
    async with mq.producer() as producer:
        await producer.publish("bills", "first", delay_s=5)
        await producer.publish("bills", "lost", delay_s=30)

    assert await fail_over(group, mq) == ["heard", "orders"]
    await asyncio.sleep(8)
    assert "bills" in await topics(mq)
    await mq.admin.delete_topic("bills")
    await asyncio.sleep(40)

    assert await topics(mq) == ["heard", "orders"]
