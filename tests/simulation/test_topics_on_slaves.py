"""What a slave knows of topics that were made, deleted and made again at its master a moment ago."""

import asyncio
import contextlib
import re

import pytest

from dittomq.client import AsyncClient, Message, NotStored, Producer
from dittomq.errors import DittoError, InvalidField, QueueNotFound, TopicNotFound
from dittomq.metadata.formats import TOPICS
from dittomq.routes import PERMISSION_READ, PERMISSION_WRITE
from tests.simulation.group import Group, play
from tests.simulation.operator import look_at
from tests.support.virtual_time import played_by


async def read(mq: AsyncClient, node: str, topic: str = "orders", offset: int = 0) -> list[tuple[int, bytes]]:
    page = await mq.reader(topic, 0, broker="a", node=node).pull(offset)
    return [(message.queue_offset, message.body) for message in page.messages]


async def create(mq: AsyncClient, topic: str = "orders") -> None:
    [created] = await mq.admin.create_topic(topic, 1)
    assert created.error is None


async def topics(mq: AsyncClient) -> list[str]:
    [listed] = await mq.admin.list_topics()
    return sorted(topic.name for topic in listed.value or ())


async def publish(mq: AsyncClient, *bodies: bytes) -> None:
    async with mq.producer() as producer:
        for body in bodies:
            await producer.publish_message(Message("orders", body, 0))


@played_by(play)
async def test_a_topic_that_was_just_made_and_never_written_can_be_pulled_from_a_slave(group: Group, mq: AsyncClient) -> None:
    await asyncio.sleep(5)
    await create(mq)
    began = group.now

    page = await mq.reader("orders", 0, broker="a", node="a/1").pull(0)

    assert (page.messages, page.next_offset) == ((), 0)
    assert group.now - began < 2.0


@played_by(play)
async def test_a_queue_that_was_just_added_and_never_written_can_be_pulled_from_a_slave(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await asyncio.sleep(15)
    await mq.admin.update_topic("orders", read_queues=2, write_queues=2)
    began = group.now

    page = await mq.reader("orders", 1, broker="a", node="a/1").pull(0)

    assert (page.messages, page.next_offset) == ((), 0)
    assert group.now - began < 2.0


@played_by(play)
async def test_a_topic_that_may_be_read_since_a_moment_can_be_pulled_from_a_slave(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await mq.admin.update_topic("orders", permission=PERMISSION_WRITE)
    await asyncio.sleep(15)
    await mq.admin.update_topic("orders", permission=PERMISSION_READ | PERMISSION_WRITE)

    page = await mq.reader("orders", 0, broker="a", node="a/1").pull(0)

    assert (page.messages, page.next_offset) == ((), 0)


@played_by(play)
async def test_slave_reports_a_just_deleted_topic_as_unknown(group: Group, mq: AsyncClient) -> None:
    """Also where it could never be read."""
    await create(mq)
    await mq.admin.update_topic("orders", permission=PERMISSION_WRITE)
    await asyncio.sleep(15)
    await mq.admin.delete_topic("orders")

    with pytest.raises(TopicNotFound):
        await mq.reader("orders", 0, broker="a", node="a/1").pull(0)


@played_by(play)
async def test_topic_reaches_slaves_in_a_second_and_survives_the_masters_disk(group: Group, mq: AsyncClient) -> None:
    await asyncio.sleep(5)
    await create(mq)
    await asyncio.sleep(1.5)
    await group.replace_disk("a0")
    await group.fail_over("a/1")
    await group.in_sync(mq, "a/1")

    [listed] = await mq.admin.list_topics()

    assert [topic.name for topic in listed.value or ()] == ["orders"]


@played_by(play)
async def test_a_slave_without_its_master_says_how_old_its_topics_are(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await asyncio.sleep(20)
    group.world.network.cut("a0", "a1")
    await asyncio.sleep(60)
    await create(mq, "bills")

    with pytest.raises(TopicNotFound) as raised:
        await mq.reader("bills", 0, broker="a", node="a/1").pull(0)

    found = re.search(r'topic "bills" does not exist in a/1, whose topics are (\d+) s old', str(raised.value))
    assert found, str(raised.value)
    assert 60 <= int(found[1]) <= 75


@played_by(play)
async def test_recreated_topic_shows_no_old_message_on_any_replica(group: Group, mq: AsyncClient) -> None:
    """Whatever disk is lost."""
    await create(mq)
    await publish(mq, b"old 0", b"old 1", b"old 2")
    await asyncio.sleep(12)
    assert await read(mq, "a/1") == [(0, b"old 0"), (1, b"old 1"), (2, b"old 2")]

    await mq.admin.delete_topic("orders")
    await create(mq)
    await publish(mq, b"new")
    await asyncio.sleep(12)
    for name in ("a/0", "a/1"):
        assert await read(mq, name, offset=3) == [(3, b"new")]
        assert (await mq.reader("orders", 0, broker="a", node=name).pull(4)).min_offset == 3

    for lost, other in (("a1", "a0"), ("a0", "a1")):
        await group.replace_disk(lost)
        if lost == "a0":
            await group.fail_over("a/1")
        while not await holds_all(mq, lost, other):  # noqa: ASYNC110  # the master may count the disk before for a while
            await asyncio.sleep(0.1)
        await group.in_sync(mq, f"a/{other[1]}")
        for name in ("a/0", "a/1"):
            page = await mq.reader("orders", 0, broker="a", node=name).pull(3)
            assert (page.min_offset, page.max_offset, [message.body for message in page.messages]) == (3, 4, [b"new"])


@played_by(play)
async def test_a_topic_that_was_deleted_under_load_stays_away_when_its_master_starts_again(group: Group, mq: AsyncClient) -> None:
    await create(mq)

    async def publish_on(producer: Producer) -> None:
        with contextlib.suppress(DittoError):
            while True:
                await producer.publish("orders", b"one more", queue=0)

    async with mq.producer(retry_s=1.0) as first, mq.producer(retry_s=1.0) as second, asyncio.TaskGroup() as tasks:
        for producer in (first, second):
            tasks.create_task(publish_on(producer))
        await asyncio.sleep(1)
        await mq.admin.delete_topic("orders")

    await group.kill("a0")
    group.node("a0").start()
    await asyncio.sleep(1)
    await group.in_sync(mq)
    await asyncio.sleep(5)

    [listed] = await mq.admin.list_topics()
    assert list(listed.value or ()) == []


def rot(group: Group, name: str) -> None:
    assert group.node(name).disk.names.files[TOPICS.path].flip(0, 0xFF)


@pytest.mark.parametrize("topics", [{"orders", "bills", "new"}, {"orders"}], ids=["made", "deleted"])
@played_by(play)
async def test_a_rotten_topic_table_of_a_master_undoes_no_change_that_a_slave_has(
    group: Group, mq: AsyncClient, /, topics: set[str]
) -> None:
    for topic in ("orders", "bills"):
        await create(mq, topic)
    await publish(mq, b"one")
    for topic in topics - {"orders", "bills"}:
        await create(mq, topic)
    for topic in {"orders", "bills"} - topics:
        await mq.admin.delete_topic(topic)
    await asyncio.sleep(3)
    await group.kill("a0")
    rot(group, "a0")

    group.node("a0").start()
    await asyncio.sleep(1)
    await group.in_sync(mq)

    [listed] = await mq.admin.list_topics()
    assert {topic.name for topic in listed.value or ()} == topics


@played_by(play)
async def test_queue_added_just_before_the_master_died_is_read_from_its_slave(group: Group, mq: AsyncClient) -> None:
    """Also after its promotion."""
    await create(mq)
    await asyncio.sleep(5)
    [updated] = await mq.admin.update_topic("orders", read_queues=2, write_queues=2)
    assert updated.value is not None
    assert updated.value.changed
    async with mq.producer() as producer:
        await producer.publish_message(Message("orders", b"new", 1))
    await group.kill("a0")
    await asyncio.sleep(40)  # the slave serves all that it has by then

    slave = mq.reader("orders", 1, broker="a", node="a/1")
    assert ("a", 1) in await mq.queues("orders")
    assert [message.body for message in (await slave.pull(0)).messages] == [b"new"]
    with pytest.raises(QueueNotFound):
        await mq.reader("orders", 2, broker="a", node="a/1").pull(0)
    await group.fail_over("a/1")
    await asyncio.sleep(15)

    assert ("a", 1) in await mq.queues("orders")
    assert [message.body for message in (await slave.pull(0)).messages] == [b"new"]


@played_by(play)
async def test_an_update_reaches_producers_and_slaves_and_says_where_nothing_changed(group: Group, mq: AsyncClient) -> None:
    await create(mq)
    await mq.admin.update_topic("orders", read_queues=3, write_queues=3)
    [again] = await mq.admin.update_topic("orders", write_queues=3)
    [refused] = await mq.admin.update_topic("orders", read_queues=2)
    [nowhere] = await mq.admin.update_topic("order", write_queues=3)
    async with mq.producer() as producer:
        used = {(await producer.publish("orders", b"x")).queue for _ in range(6)}
    await mq.admin.update_topic("orders", permission=4)
    await asyncio.sleep(15)

    assert again.value is not None
    assert not again.value.changed
    assert isinstance(refused.error, InvalidField)
    assert isinstance(nowhere.error, TopicNotFound)
    assert used == {0, 1, 2}
    page = await mq.reader("orders", 2, broker="a", node="a/1").pull(0)
    assert len(page.messages) == 2
    async with mq.producer(retry_s=1.0) as producer:
        with pytest.raises(NotStored, match="takes no writes"):
            await producer.publish("orders", b"x")


@played_by(play)
async def test_topic_is_created_again_after_its_master_died_creating_it(group: Group, mq: AsyncClient) -> None:
    """A slave was promoted."""
    await create(mq, "known")
    await asyncio.sleep(2.0)
    group.world.network.cut("a0", "a1")
    await create(mq)
    await group.kill("a0")
    group.world.network.heal("a0", "a1")
    await group.fail_over("a/1", allow_data_loss=True)
    assert await topics(mq) == ["known"]

    group.node("a0").start()
    await group.in_sync(mq, "a/1")
    await create(mq)

    await publish(mq, b"first")
    assert await read(mq, "a/1") == [(0, b"first")]
    assert await topics(mq) == ["known", "orders"]


async def holds_all(mq: AsyncClient, slave: str, master: str) -> bool:
    copy, log = await look_at(mq, slave), await look_at(mq, master)
    return copy is not None and log is not None and copy.end >= log.end
