"""Brokers' registrars and clients' route caches against real nameservers, over a faulty network in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.errors import ConfigError, DittoError, InvalidField, OutOfReach, TopicNotFound
from dittomq.naming.registrar import NameserverNews, Registrar
from dittomq.naming.route_cache import RouteCache
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion, NodeState, Registration
from dittomq.rpc.channel import Channels
from services.nameserver.config import NameserverConfig, RegistryConfig
from services.nameserver.wiring import serve
from tests.simulation.life import Life
from tests.simulation.transport import SimulatedTransport
from tests.simulation.world import Power, World
from tests.support.naming import UUID_B, master, orders, slave

CONFIG = NameserverConfig()


class Broker:
    """A process that does nothing but register."""

    def __init__(self, world: World, registration: Registration, nameservers: list[str]) -> None:
        self.registration = registration
        self.nameservers = nameservers
        self.news: list[NameserverNews] = []
        self.failure: BaseException | None = None
        self.node = world.node(registration.addresses["default"].partition(":")[0], self._serve)

    @property
    def last(self) -> NameserverNews:
        return self.news[-1]

    async def _serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            self.registrar = Registrar(self.nameservers, lambda: self.registration, self.news.append, channels, doors.clock, doors.chance)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._run())
                await stop.wait()
                await self.registrar.goodbye()

    async def _run(self) -> None:
        try:
            await self.registrar.run()
        except* DittoError as failed:
            self.failure = failed.exceptions[0]


class Town:
    """Nameservers n0, n1, … and whoever registers there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nameservers: list[str] = []
        self.client = Life("client")
        world.network.machine("client")
        transport = SimulatedTransport(world.network, self.client, lambda where, error: world.unexpected("client", where, error))
        self.channels = Channels(transport)

    def nameserver(self, config: NameserverConfig = CONFIG) -> str:
        name = f"n{len(self.nameservers)}"
        self.world.node(name, lambda doors, stop: serve(config, doors.transport, doors.clock, doors.chance, stop)).start()
        self.nameservers.append(f"{name}:9876")
        return name

    def broker(self, registration: Registration) -> Broker:
        broker = Broker(self.world, registration, list(self.nameservers))
        broker.node.start()
        return broker

    def routes(self, nameservers: list[str] | None = None) -> RouteCache:
        return RouteCache(nameservers or self.nameservers, self.channels, self.world.nodes["n0"].clock)


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1)
    yield world
    assert world.findings == []
    world.close()


def play(world: World, story: Callable[[Town], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        town = Town(world)
        try:
            await story(town)
        finally:
            await town.channels.close()

    world.run(told())


def test_a_broker_is_routed_to_soon_after_its_start(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(1)

        route = await town.routes().route("orders")

        assert [node.name for node in route.nodes] == ["a/0"]

    play(world, story)


def test_a_broker_registers_with_every_nameserver_and_a_dead_one_delays_nothing(world: World) -> None:
    async def story(town: Town) -> None:
        for _ in range(3):
            town.nameserver()
        world.nodes["n1"].crash(Power.KILL)
        broker = town.broker(master())
        await asyncio.sleep(1)

        assert [answer.nameserver for answer in broker.last.answers] == ["n0:9876", "n2:9876"]

    play(world, story)


def test_a_nameserver_that_comes_back_empty_is_healed_within_a_period(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(5)
        world.nodes["n0"].crash(Power.KILL)
        world.nodes["n0"].start()

        await asyncio.sleep(10.5)

        assert [node.name for node in await town.routes().brokers()] == ["a/0"]

    play(world, story)


def test_a_living_broker_is_never_forgotten(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        for _ in range(20):
            await asyncio.sleep(10)
            assert (await town.routes().brokers())[0].name == "a/0"

    play(world, story)


def test_a_killed_broker_is_forgotten_after_the_expiry(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        broker.node.crash(Power.KILL)

        await asyncio.sleep(27)
        assert len(await town.routes().brokers()) == 1
        await asyncio.sleep(5)
        assert await town.routes().brokers() == []

    play(world, story)


def test_a_clean_stop_removes_a_broker_from_every_nameserver_at_once(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)

        await broker.node.stop()

        assert [await town.routes([each]).brokers() for each in town.nameservers] == [[], []]

    play(world, story)


def test_a_goodbye_right_after_a_change_still_removes_the_broker(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)

        broker.registrar.changed()
        await broker.node.stop()

        assert await town.routes().brokers() == []

    play(world, story)


def test_a_goodbye_waits_no_longer_than_two_seconds_for_a_dead_nameserver(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        world.nodes["n0"].crash(Power.LOSS)
        before = world.loop.time()

        await broker.node.stop()

        assert world.loop.time() - before < 2.1

    play(world, story)


def test_a_changed_topic_table_is_known_at_once(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(replace(master(), topics=()))
        await asyncio.sleep(1)
        broker.registration = replace(master(), data_version=DataVersion(1, 2, 4), topics=(orders(),))

        broker.registrar.changed()
        await asyncio.sleep(0.1)

        assert (await town.routes().route("orders")).queues

    play(world, story)


def test_a_slave_without_a_master_hears_of_it_within_a_second(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        follower = town.broker(slave())
        await asyncio.sleep(5)
        assert follower.last.master is None

        town.broker(replace(master(), state=NodeState.RECOVERING))
        await asyncio.sleep(1.1)

        assert follower.last.master is not None
        assert follower.last.master.master_replication == "a-0:10912"

    play(world, story)


def test_of_two_masters_the_one_with_the_highest_epoch_is_heard(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        world.network.cut("a-0", "n1")
        world.network.cut("a-9", "n0")
        town.broker(master(epoch=7))
        town.broker(master(UUID_B, host="a-9", epoch=8))
        follower = town.broker(slave("c" * 32))
        await asyncio.sleep(2)

        assert follower.last.master is not None
        assert follower.last.master.master == "a-9:10911"
        assert follower.last.group_epoch == 8

    play(world, story)


def test_a_superseded_broker_is_told_so_and_registers_no_more(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        old = town.broker(master(epoch=7))
        await asyncio.sleep(1)

        town.broker(master(UUID_B, host="a-9", epoch=8))
        await asyncio.sleep(11)

        assert old.last.superseded
        assert (await town.routes().brokers())[0].replica_uuid == UUID_B

    play(world, story)


def test_a_second_broker_of_one_id_hears_why_it_is_refused_and_takes_the_id_when_the_first_is_gone(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        first = town.broker(master())
        await asyncio.sleep(1)
        second = town.broker(master(UUID_B, host="a-9"))
        await asyncio.sleep(1)
        assert "is held by the replica at a-0:10911" in second.last.refusal

        await first.node.stop()
        await asyncio.sleep(6)

        assert second.last.refusal == ""
        assert (await town.routes().brokers())[0].replica_uuid == UUID_B

    play(world, story)


def test_a_nameserver_counts_as_settled_once_it_was_up_for_its_expiry(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(slave())
        await asyncio.sleep(28)
        assert not broker.last.answers[0].settled

        await asyncio.sleep(4)

        assert broker.last.answers[0].settled

    play(world, story)


def test_a_new_epoch_of_the_group_reaches_every_member_within_a_period(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        leader = town.broker(master(epoch=7))
        follower = town.broker(slave(epoch=7))
        await asyncio.sleep(2)

        leader.registration = replace(leader.registration, epoch=Epoch(8))
        leader.registrar.changed()
        await asyncio.sleep(10.5)

        assert follower.last.group_epoch == 8

    play(world, story)


def test_a_broker_whose_three_periods_exceed_the_expiry_refuses_to_start(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver(NameserverConfig(registry=RegistryConfig(broker_expiry_ms=29_999)))
        broker = town.broker(master())
        await asyncio.sleep(1)

        assert isinstance(broker.failure, ConfigError)
        assert "set it to 9,999 or less" in str(broker.failure)

    play(world, story)


def test_a_broker_of_another_cluster_hears_the_clusters_name(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(replace(master(), cluster="other"))
        await asyncio.sleep(1)

        assert broker.last.refusal.startswith('cluster is "dittomq" here, not "other"')

    play(world, story)


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
