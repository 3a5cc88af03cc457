"""Clients' route caches against real nameservers, over a faulty network in virtual time."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from dittomq.client.replica_reader import ReplicaReader
from dittomq.errors import NotReady, TopicNotFound, Unavailable
from dittomq.routes import Registration
from services.nameserver.config import NameserverConfig, NodeConfig
from tests.simulation.scenario import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import master, slave
from tests.support.virtual_time import played_by


@played_by(play)
async def test_a_route_is_asked_for_once_by_many_callers(town: Town, /, world: World) -> None:
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(1)
    routes = town.routes()
    asked = len([line for line in world.transcript.lines if "client" in line])

    async with asyncio.TaskGroup() as tasks:
        callers = [tasks.create_task(routes.refresh("orders")) for _ in range(50)]

    assert len({id(caller.result()) for caller in callers}) == 1
    assert len([line for line in world.transcript.lines if "client" in line]) == asked


@played_by(play)
async def test_a_cancelled_caller_takes_nobody_elses_answer_away(town: Town) -> None:
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


@played_by(play)
async def test_a_young_route_is_kept_and_an_old_one_is_asked_for_again(town: Town) -> None:
    town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)
    routes = town.routes()
    await routes.route("orders")
    await broker.node.stop()

    assert (await routes.route("orders", max_age_s=30)).nodes
    await asyncio.sleep(31)
    with pytest.raises(NotReady, match="no broker is registered"):
        await routes.route("orders", max_age_s=30)


@played_by(play)
async def test_nameservers_are_tried_in_turn(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(1)
    world.nodes["n0"].crash(Power.KILL)

    assert (await town.routes().route("orders")).nodes
    assert [node.name for node in await ReplicaReader(town.channels, 3.0).nodes(", ".join(town.nameservers))] == ["a/0"]


@played_by(play)
async def test_a_nameserver_that_has_not_heard_of_a_topic_does_not_hide_it(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver()
    world.network.cut("a-0", "n0")
    town.broker(master())
    await asyncio.sleep(1)

    assert (await town.routes().route("orders")).nodes


@played_by(play)
async def test_topic_unknown_to_every_nameserver_is_refused_despite_a_silent_one(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver()
    town.broker(master())
    world.nodes["n1"].crash(Power.KILL)
    await asyncio.sleep(10)

    with pytest.raises(TopicNotFound):
        await town.routes().route("nowhere")


@played_by(play)
async def test_just_started_nameserver_denies_no_topic(town: Town, /, world: World) -> None:
    """One that can know is believed."""
    town.nameserver()
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(12)
    for asked in ("orders", "nowhere"):
        world.nodes["n0"].crash(Power.KILL)
        world.nodes["n0"].start()
        await asyncio.sleep(1)
        with pytest.raises(NotReady, match=f'no broker has registered topic "{asked}" since'):
            await town.routes(["n0:9876"]).route(asked)

    with pytest.raises(TopicNotFound):
        await town.routes().route("nowhere")


@played_by(play)
async def test_with_every_nameserver_silent_the_answer_is_unavailable_within_its_deadlines(town: Town, /, world: World) -> None:
    town.nameserver()
    world.network.silence("client", "n0")

    with pytest.raises(Unavailable, match="nameserver n0:9876 does not answer"):
        await town.routes().route("orders")

    assert world.loop.time() < 3.1


@played_by(play)
async def test_all_nodes_are_listed_over_many_pages(town: Town) -> None:
    town.nameserver()
    for number in range(1, 4):
        town.broker(slave(f"{number:032x}", host=f"a-{number}", broker_id=number))
    await asyncio.sleep(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dittomq.naming.route_cache._LIST_PAGE", 2)
        nodes = await town.routes().brokers()

    assert [node.name for node in nodes] == ["a/1", "a/2", "a/3"]


async def two_nameservers(town: Town, cut: Mapping[str, str], *registered: Registration) -> None:
    """Both are up for long and heard of all these, but for what each machine in `cut` cannot tell its nameserver."""
    town.nameserver()
    town.nameserver()
    for machine, nameserver in cut.items():
        town.world.network.cut(machine, nameserver)
    for registration in registered:
        town.broker(registration)
    await asyncio.sleep(60)


@played_by(play)
async def test_a_nameserver_that_lacks_a_groups_master_does_not_hide_it(town: Town) -> None:
    await two_nameservers(town, {"a-0": "n0"}, master(), slave())
    routes = town.routes()

    route = await routes.route("orders")

    assert [node.name for node in route.nodes] == ["a/0", "a/1"]
    assert [group.permission for group in route.queues] == [6]
    assert [node.name for node in await routes.brokers()] == ["a/0", "a/1"]


@played_by(play)
async def test_a_slave_that_one_nameserver_alone_knows_is_in_the_list_of_nodes(town: Town) -> None:
    await two_nameservers(town, {"a-1": "n1", "a-2": "n0"}, master(), slave(), slave("c" * 32, host="a-2", broker_id=2))

    assert [node.name for node in await town.routes().brokers()] == ["a/0", "a/1", "a/2"]
    assert [node.name for node in await ReplicaReader(town.channels, 3.0).nodes(",".join(town.nameservers))] == ["a/0", "a/1", "a/2"]


@played_by(play)
async def test_client_in_doubt_of_a_master_learns_of_a_newer_one_and_keeps_it(town: Town) -> None:
    """One nameserver names the master that it doubts."""
    promoted = replace(master("b" * 32, epoch=9, host="a-1"), configured_id=1)
    await two_nameservers(town, {"a-0": "n0", "a-1": "n1"}, master(), promoted)
    routes = town.routes(["n1:9876", "n0:9876"])

    believed = await routes.refresh("orders")
    doubted = await routes.refresh("orders", of_all=True)
    later = await routes.refresh("orders")

    assert [node.epoch for node in believed.nodes] == [7]
    assert [node.epoch for node in doubted.nodes] == [9]
    assert [node.epoch for node in later.nodes] == [9]


@played_by(play)
async def test_client_in_doubt_of_a_master_shares_no_answer_of_one_nameserver(town: Town) -> None:
    promoted = replace(master("b" * 32, epoch=9, host="a-1"), configured_id=1)
    await two_nameservers(town, {"a-0": "n0", "a-1": "n1"}, master(), promoted)
    routes = town.routes(["n1:9876", "n0:9876"])

    async with asyncio.TaskGroup() as tasks:
        believing, doubting = [tasks.create_task(routes.refresh("orders", of_all=of_all)) for of_all in (False, True)]

    assert [node.epoch for node in believing.result().nodes] == [7]
    assert [node.epoch for node in doubting.result().nodes] == [9]


@played_by(play)
async def test_newer_of_two_masters_of_one_group_is_listed_first(town: Town) -> None:
    """Different nameservers know them."""
    promoted = replace(master("b" * 32, epoch=9, host="a-1"), configured_id=1)
    await two_nameservers(town, {"a-0": "n0", "a-1": "n1"}, master(), promoted)

    assert [node.name for node in await town.routes().brokers()] == ["a/1", "a/0"]


@played_by(play)
async def test_groups_of_different_nameservers_are_merged(town: Town) -> None:
    """All are in the list of nodes, and each master is in the route."""
    await two_nameservers(town, {"a-0": "n0", "b-0": "n1"}, master(), slave(), master("c" * 32, host="b-0", broker="b"))
    routes = town.routes()

    assert [node.name for node in await routes.brokers()] == ["a/0", "a/1", "b/0"]
    assert [node.name for node in await ReplicaReader(town.channels, 3.0).nodes(",".join(town.nameservers))] == ["a/0", "a/1", "b/0"]
    route = await routes.route("orders")
    assert [group.broker for group in route.queues] == ["a", "b"]
    assert [node.name for node in route.nodes] == ["a/0", "a/1", "b/0"]


@played_by(play)
async def test_second_opinion_waits_at_most_a_second_for_a_silent_nameserver(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver()
    town.broker(slave())
    await asyncio.sleep(60)
    world.network.silence("client", "n1")
    began = world.loop.time()

    assert [node.name for node in (await town.routes().route("orders")).nodes] == ["a/1"]
    assert world.loop.time() - began < 1.1


@played_by(play)
async def test_silent_nameservers_are_not_waited_for_one_after_the_other(town: Town, /, world: World) -> None:
    for _ in range(4):
        town.nameserver()
    town.broker(master())
    await asyncio.sleep(60)
    for silent in ("n0", "n1", "n2"):
        world.network.silence("client", silent)
    began = world.loop.time()

    assert [node.name for node in (await town.routes().route("orders")).nodes] == ["a/0"]
    assert world.loop.time() - began < 1.1
    assert [node.name for node in await town.routes().brokers()] == ["a/0"]
    assert world.loop.time() - began < 3.1

    world.network.silence("client", "n3")
    began = world.loop.time()
    with pytest.raises(Unavailable, match="each of the 4 nameservers does not answer: ") as nobody:
        await town.routes().route("orders")
    assert all(f"nameserver n{number}:9876: " in str(nobody.value) for number in range(4))
    assert world.loop.time() - began < 4.1


@played_by(play)
async def test_group_leaves_a_route_only_on_word_of_a_settled_nameserver(town: Town, /, world: World) -> None:
    """One that has been up for its expiry."""
    town.nameserver()
    town.broker(master())
    gone = town.broker(master("c" * 32, host="b-0", broker="b"))
    await asyncio.sleep(60)
    routes = town.routes()
    before = await routes.route("orders")
    world.nodes["n0"].crash(Power.KILL)
    gone.node.crash(Power.KILL)
    await asyncio.sleep(1)
    world.nodes["n0"].start()
    await asyncio.sleep(15)

    assert (await routes.refresh("orders")).queues == before.queues
    assert [group.broker for group in (await town.routes().refresh("orders")).queues] == ["a"]
    await asyncio.sleep(15)
    assert [group.broker for group in (await routes.refresh("orders")).queues] == ["a"]


@played_by(play)
async def test_a_caller_who_gives_up_makes_no_old_route_new(town: Town, /, world: World) -> None:
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(1)
    routes = town.routes()
    await routes.route("orders")
    await asyncio.sleep(31)
    town.broker(master("b" * 32, host="a-9", epoch=8))
    await asyncio.sleep(1)
    world.network.silence("client", "n0")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await routes.route("orders")
    world.network.heal("client", "n0")

    assert [node.address for node in (await routes.route("orders")).nodes] == ["a-9:10911"]


@played_by(play)
async def test_a_nameserver_of_another_cluster_adds_nothing_and_replaces_nothing(town: Town, /, world: World) -> None:
    town.nameserver()
    town.nameserver(NameserverConfig(node=NodeConfig(cluster="other")))
    own = town.broker(master())
    town.broker(slave())
    town.broker(replace(master("c" * 32, host="x-0", epoch=40), cluster="other"))
    town.broker(replace(master("d" * 32, host="y-0", broker="z"), cluster="other"))
    await asyncio.sleep(5)
    routes = town.routes()

    assert [node.address for node in await routes.brokers()] == ["a-0:10911", "a-1:10911"]
    await own.node.stop()
    assert [node.address for node in (await routes.refresh("orders")).nodes] == ["a-1:10911"]
    world.nodes["n0"].crash(Power.KILL)
    with pytest.raises(Unavailable, match='it is of cluster "other", not "dittomq"'):
        await routes.refresh("orders")
