"""Managing topics of several broker groups, some of which do not answer."""

import asyncio

import pytest

from dittomq.client import AsyncClient
from dittomq.errors import InvalidField, OutOfReach, TopicNotFound
from tests.simulation.client_town import ClientTown


def test_a_topic_is_created_in_every_group_that_answers_and_the_others_are_named() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        town.nameserver.queues["lines"] = {"a": 8, "b": 8}
        town.kill("b-0")
        first = await mq.admin.create_topic("lines")
        town.restart("b-0")
        await asyncio.sleep(5)
        again = await mq.admin.create_topic("lines")

        assert [(result.broker, result.value.created if result.value else result.error.__class__) for result in first] == [
            ("a", True),
            ("b", OutOfReach),
        ]
        assert [(result.broker, result.value.created if result.value else None) for result in again] == [("a", False), ("b", True)]
        assert town.brokers["b/0"].topics["lines"].write_queues == 8

    ClientTown(groups=("a", "b")).play(story)


def test_only_masters_are_asked_to_change_something() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        town.forget("a/0")
        [result] = await mq.admin.create_topic("lines", broker="a")
        assert isinstance(result.error, OutOfReach)
        assert town.brokers["a/1"].topics == {}
        with pytest.raises(InvalidField):
            await mq.admin.create_topic("a b")
        with pytest.raises(InvalidField, match="not registered"):
            await mq.admin.create_topic("lines", broker="c")

    ClientTown().play(story)


def test_topics_are_listed_through_all_pages_and_from_a_slave_while_the_master_is_gone() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
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

    ClientTown().play(story)


def test_a_topic_that_no_group_has_is_not_found() -> None:
    async def story(town: ClientTown, mq: AsyncClient) -> None:
        with pytest.raises(TopicNotFound):
            await mq.admin.describe_topic("nowhere")
        assert [type(result.error) for result in await mq.admin.delete_topic("nowhere")] == [TopicNotFound]
        with pytest.raises(InvalidField, match="a/0, a/1"):
            await mq.admin.ha_status("c/0")

    ClientTown().play(story)
