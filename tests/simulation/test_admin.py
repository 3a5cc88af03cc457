"""Managing topics of several broker groups, some of which do not answer."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import ConnectionRefused, InvalidField, TopicNotFound, Unavailable
from dittomq.offsets import Epoch
from dittomq.routes import PERMISSION_READ, PERMISSION_WRITE
from tests.simulation.client_scenario import ClientTown, play
from tests.support.virtual_time import played_by


@played_by(play, groups=("a", "b"))
async def test_a_topic_is_created_in_every_group_that_answers_and_the_others_are_named(town: ClientTown, mq: AsyncClient) -> None:
    town.nameserver.queues["lines"] = {"a": 8, "b": 8}
    town.kill("b-0")
    first = await mq.admin.create_topic("lines")
    await asyncio.sleep(5)
    town.restart("b-0")
    await asyncio.sleep(0.1)  # the channel to it backs off still, for up to 2 s
    again = await mq.admin.create_topic("lines")

    assert [(result.broker, result.value.created if result.value else result.error.__class__) for result in first] == [
        ("a", True),
        ("b", ConnectionRefused),
    ]
    assert [(result.broker, result.value.created if result.value else None) for result in again] == [("a", False), ("b", True)]
    assert town.brokers["b/0"].topics["lines"].write_queues == 8


@played_by(play)
async def test_a_new_topic_can_be_written_where_its_slave_told_the_nameserver_first(town: ClientTown, mq: AsyncClient) -> None:
    town.nameserver.queues["lines"] = {"a": 8}
    town.nameserver.permissions["a"] = PERMISSION_READ
    async with asyncio.TaskGroup() as meanwhile:
        creating = meanwhile.create_task(mq.admin.create_topic("lines"))
        await asyncio.sleep(1)
        town.nameserver.permissions["a"] = PERMISSION_READ | PERMISSION_WRITE
        await creating
        async with mq.producer() as producer:
            receipt = await producer.publish("lines", b"first")

    assert receipt.queue_offset == 0


@played_by(play)
async def test_change_of_a_dead_masters_topics_is_refused_within_its_deadline(town: ClientTown, mq: AsyncClient) -> None:
    """At once if the master is dead, at the deadline if it was dead when it was called."""
    town.kill("a-0")
    began = town.now
    [first] = await mq.admin.create_topic("lines")
    then = town.now
    [again] = await mq.admin.create_topic("lines")

    assert isinstance(first.error, Unavailable)
    assert isinstance(again.error, Unavailable)
    assert then - began < 1
    assert 2.4 < town.now - then < 6  # longer than a channel backs off


@played_by(play)
async def test_topic_is_not_created_at_an_old_master_while_the_new_one_is_silent(town: ClientTown, mq: AsyncClient) -> None:
    """The old master is listed still."""
    [old] = [node for node in town.nameserver.nodes if node.name == "a/0"]
    promoted = replace(old, configured_id=1, address="a-1:10911", epoch=Epoch(old.epoch + 1))
    town.nameserver.nodes = [old, promoted]
    town.kill("a-1")

    [result] = await mq.admin.create_topic("lines")

    assert [node.name for node in await mq.admin.list_brokers()] == ["a/1", "a/0"]
    assert isinstance(result.error, Unavailable)
    assert "a/1" in result.error.who
    assert "lines" not in town.master.topics


@played_by(play)
async def test_a_repair_waits_no_longer_for_a_node_that_was_away_than_any_other_call(town: ClientTown, mq: AsyncClient) -> None:
    town.kill("a-0")
    for _ in range(2):
        began = town.now
        with pytest.raises(Unavailable):
            await mq.admin.repair("a/0")

        assert town.now - began < 6


@pytest.mark.parametrize("name", ["", "a", "half \udcff:1", "a b"])
@played_by(play)
async def test_who_is_no_node_and_no_address_is_refused_with_the_nodes_that_there_are(
    town: ClientTown, mq: AsyncClient, /, name: str
) -> None:
    with pytest.raises(InvalidField, match="registered: a/0, a/1"):
        await mq.admin.ha_status(name)


@pytest.mark.parametrize("name", ["", "a b", "half \udcff"])
@played_by(play)
async def test_what_cannot_be_a_topic_is_refused_before_anybody_is_asked(town: ClientTown, mq: AsyncClient, /, name: str) -> None:
    for asked in (mq.route, mq.admin.describe_topic, mq.admin.delete_topic):
        with pytest.raises(InvalidField, match="topic name"):
            await asked(name)


@played_by(play)
async def test_while_its_master_backs_off_a_group_is_read_from_its_slave_without_waiting(town: ClientTown, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 4)
    town.brokers["a/1"].topics = dict(town.master.topics)
    town.kill("a-0")
    await mq.admin.list_topics()
    began = town.now
    [result] = await mq.admin.describe_topic("orders")

    assert result.value is not None
    assert result.value.node == "a/1"
    assert town.now - began < 0.5


@played_by(play)
async def test_nodes_are_listed_as_soon_as_the_nameserver_is_back(town: ClientTown, mq: AsyncClient) -> None:
    town.kill("ns")
    with pytest.raises(Unavailable):
        await mq.admin.list_brokers()
    await asyncio.sleep(5)
    town.restart("ns")
    await asyncio.sleep(0.1)

    assert [node.name for node in await mq.admin.list_brokers()] == ["a/0", "a/1"]


@played_by(play)
async def test_only_masters_are_asked_to_change_something(town: ClientTown, mq: AsyncClient) -> None:
    town.forget("a/0")
    [result] = await mq.admin.create_topic("lines", broker="a")
    assert isinstance(result.error, Unavailable)
    assert town.brokers["a/1"].topics == {}
    with pytest.raises(InvalidField):
        await mq.admin.create_topic("a b")
    with pytest.raises(InvalidField, match="not registered"):
        await mq.admin.create_topic("lines", broker="c")


@played_by(play)
async def test_topic_list_spans_all_pages_and_comes_from_a_slave_without_master(town: ClientTown, mq: AsyncClient) -> None:
    for name in ("t1", "t2", "t3", "t4", "t5"):
        town.nameserver.queues[name] = {"a": 8}
        await mq.admin.create_topic(name)
    town.brokers["a/1"].topics = dict(town.master.topics)
    [result] = await mq.admin.list_topics()
    assert [topic.name for topic in result.value or ()] == ["t1", "t2", "t3", "t4", "t5"]
    town.kill("a-0")
    [result] = await mq.admin.list_topics()
    assert len(result.value or ()) == 5
    [described] = await mq.admin.describe_topic("t1")
    assert described.value is not None
    assert (described.value.node, described.value.topic.read_queues) == ("a/1", 8)


@played_by(play)
async def test_a_topic_that_no_group_has_is_not_found(town: ClientTown, mq: AsyncClient) -> None:
    with pytest.raises(TopicNotFound, match="a/0"):
        await mq.admin.describe_topic("nowhere")
    assert [type(result.error) for result in await mq.admin.delete_topic("nowhere")] == [TopicNotFound]
    with pytest.raises(InvalidField, match="a/0, a/1"):
        await mq.admin.ha_status("c/0")


@played_by(play, groups=("a", "b"))
async def test_a_slave_that_has_not_heard_of_a_topic_is_no_proof_that_its_group_lacks_it(town: ClientTown, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 4)
    town.kill("a-0")
    a, b = await mq.admin.describe_topic("orders")

    assert (a.broker, b.broker) == ("a", "b")
    assert str(a.error) == 'the master of a does not answer: a/1 answers, and does not know topic "orders"'
    assert b.error is None


@played_by(play, groups=("a", "b"))
async def test_a_topic_that_none_of_several_groups_has_is_not_found_in_any(town: ClientTown, mq: AsyncClient) -> None:
    with pytest.raises(TopicNotFound, match="any broker group"):
        await mq.admin.describe_topic("nowhere")


@pytest.mark.parametrize("stranger", [("a/2", "test"), ("b/0", "test"), ("a/0", "another")])
@played_by(play)
async def test_another_node_that_has_come_up_at_a_masters_address_changes_nothing(
    town: ClientTown, mq: AsyncClient, /, stranger: tuple[str, str]
) -> None:
    await mq.admin.create_topic("orders", 4)
    town.master.name, town.master.cluster = stranger
    [created] = await mq.admin.create_topic("lines")
    [deleted] = await mq.admin.delete_topic("orders")

    for result in (created, deleted):
        assert isinstance(result.error, Unavailable)
        assert "has this address now" in str(result.error)
    assert list(town.master.topics) == ["orders"]
