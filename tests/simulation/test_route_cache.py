"""Clients' route caches against real nameservers, over a faulty network in virtual time."""

import asyncio
from collections.abc import Iterator

import pytest

from dittomq.errors import InvalidField, OutOfReach, TopicNotFound
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import master, slave


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1)
    yield world
    assert world.findings == []
    world.close()


def test_a_route_is_asked_for_once_by_many_callers(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(1)
        routes = town.routes()
        asked = len([line for line in world.transcript.lines if "client" in line])

        async with asyncio.TaskGroup() as tasks:
            callers = [tasks.create_task(routes.refresh("orders")) for _ in range(50)]

        assert len({id(caller.result()) for caller in callers}) == 1
        assert len([line for line in world.transcript.lines if "client" in line]) == asked

    play(world, story)


def test_a_cancelled_caller_takes_nobody_elses_answer_away(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(1)
        routes = town.routes()

        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(routes.refresh("orders"))
            second = tasks.create_task(routes.refresh("orders"))
            await asyncio.sleep(0)
            first.cancel()

        assert second.result().nodes

    play(world, story)


def test_a_young_route_is_kept_and_an_old_one_is_asked_for_again(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        routes = town.routes()
        await routes.route("orders")
        await broker.node.stop()

        assert (await routes.route("orders", max_age_s=30)).nodes
        await asyncio.sleep(31)
        with pytest.raises(TopicNotFound):
            await routes.route("orders", max_age_s=30)

    play(world, story)


def test_a_forgotten_route_is_asked_for_again(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        routes = town.routes()
        await routes.route("orders")
        await broker.node.stop()

        routes.forget("orders")

        with pytest.raises(TopicNotFound):
            await routes.route("orders")

    play(world, story)


def test_nameservers_are_tried_in_turn(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(1)
        world.nodes["n0"].crash(Power.KILL)

        assert (await town.routes().route("orders")).nodes

    play(world, story)


def test_a_nameserver_that_has_not_heard_of_a_topic_does_not_hide_it(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        world.network.cut("a-0", "n0")
        town.broker(master())
        await asyncio.sleep(1)

        assert (await town.routes().route("orders")).nodes

    play(world, story)


def test_a_topic_that_no_nameserver_knows_is_refused_as_unknown_even_when_one_is_silent(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        world.nodes["n1"].crash(Power.KILL)

        with pytest.raises(TopicNotFound):
            await town.routes().route("orders")

    play(world, story)


def test_with_every_nameserver_silent_the_answer_is_out_of_reach_within_its_deadlines(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        world.network.silence("client", "n0")

        with pytest.raises(OutOfReach, match="nameserver n0:9876 does not answer"):
            await town.routes().route("orders")

        assert world.loop.time() < 3.1

    play(world, story)


def test_a_bad_topic_name_is_refused_by_field(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()

        with pytest.raises(InvalidField) as refused:
            await town.routes().route("../etc")

        assert refused.value.field == "topic"

    play(world, story)


def test_all_nodes_are_listed_over_many_pages(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        for number in range(1, 4):
            town.broker(slave(f"{number:032x}", host=f"a-{number}", broker_id=number))
        await asyncio.sleep(1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dittomq.naming.route_cache._LIST_PAGE", 2)
            nodes = await town.routes().brokers()

        assert [node.name for node in nodes] == ["a/1", "a/2", "a/3"]

    play(world, story)
