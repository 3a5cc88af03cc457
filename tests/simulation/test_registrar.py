"""Brokers' registrars against real nameservers, over a faulty network in virtual time."""

import asyncio
from dataclasses import replace

import pytest
import structlog

from dittomq.errors import ConfigError, DuplicateBrokerId, TopicNotFound
from dittomq.routes import BrokerState, DataVersion, Registration, TopicQueues
from dittomq.wire.naming import MAX_CHANGED_TOPICS
from services.nameserver.config import NameserverConfig, NodeConfig
from tests.simulation.scenario import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import UUID_A, UUID_B, master, orders, slave
from tests.support.virtual_time import played_by


@played_by(play)
async def test_a_broker_registers_with_every_nameserver_and_a_dead_one_delays_nothing(town: Town, /, world: World) -> None:
    for _ in range(3):
        town.nameserver()
    world.nodes["n1"].crash(Power.KILL)
    broker = town.broker(master())
    await asyncio.sleep(1)

    assert [answer.nameserver for answer in broker.last.answers] == ["n0:9876", "n2:9876"]


@played_by(play)
async def test_a_nameserver_that_comes_back_empty_is_healed_within_a_period(town: Town, /, world: World) -> None:
    town.nameserver()
    town.broker(master())
    await asyncio.sleep(5)
    world.nodes["n0"].crash(Power.KILL)
    world.nodes["n0"].start()

    await asyncio.sleep(10.5)

    assert [node.name for node in await town.routes().brokers()] == ["a/0"]


@played_by(play)
async def test_a_nameserver_that_was_away_for_long_is_healed_within_a_short_period_too(town: Town, /, world: World) -> None:
    town.nameserver()
    town.broker(replace(master(), registration_period_ms=1_000))
    await asyncio.sleep(5)
    world.nodes["n0"].crash(Power.KILL)
    for away_s in range(20, 60):
        await asyncio.sleep(away_s)
        world.nodes["n0"].start()

        await asyncio.sleep(1 + 2.5)  # a period, and what a lost connection waits between two tries

        assert [node.name for node in await town.routes().brokers()] == ["a/0"]
        world.nodes["n0"].crash(Power.KILL)


@played_by(play)
async def test_a_killed_broker_is_forgotten_after_the_expiry(town: Town) -> None:
    town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)
    broker.node.crash(Power.KILL)

    await asyncio.sleep(27)
    assert len(await town.routes().brokers()) == 1
    await asyncio.sleep(5)
    assert await town.routes().brokers() == []


@played_by(play)
async def test_a_goodbye_right_after_a_change_still_removes_the_broker(town: Town) -> None:
    town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)

    broker.registrar.changed()
    await broker.node.stop()

    assert await town.routes().brokers() == []


@played_by(play)
async def test_a_goodbye_waits_no_longer_than_two_seconds_for_a_dead_nameserver(town: Town, /, world: World) -> None:
    town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)
    world.nodes["n0"].crash(Power.LOSS)
    before = world.loop.time()

    await broker.node.stop()

    assert world.loop.time() - before < 2.1


@played_by(play)
async def test_a_slave_without_a_master_hears_of_it_within_a_second(town: Town) -> None:
    town.nameserver()
    follower = town.broker(slave())
    await asyncio.sleep(5)
    assert follower.last.master is None

    town.broker(replace(master(), state=BrokerState.RECOVERING))
    await asyncio.sleep(1.1)

    assert follower.last.master is not None
    assert follower.last.master.replication_address == "a-0:10912"


def promoted(*, epoch: int) -> Registration:
    """Node a/1, which leads."""
    return replace(master(UUID_B, host="a-1", epoch=epoch), configured_id=1)


@played_by(play)
async def test_an_old_master_whose_id_was_taken_keeps_trying_and_is_refused(town: Town) -> None:
    town.nameserver()
    old = town.broker(master(epoch=7))
    await asyncio.sleep(1)
    town.broker(promoted(epoch=8))
    await asyncio.sleep(11)

    assert (old.failure, old.last.taken) == (None, True)
    assert "the id of a/0 is held by a/1 at a-1:10911" in old.last.refusal
    old.registration = replace(slave(UUID_A, host="a-0"), configured_id=0)  # it has read the group record
    old.registrar.changed()
    await asyncio.sleep(1)
    assert (old.last.taken, old.last.refusal) == (False, "")
    assert [(node.name, node.broker_id) for node in await town.routes().brokers()] == [("a/1", 0), ("a/0", 1)]


@played_by(play)
async def test_an_old_master_that_starts_again_waits_until_it_has_read_the_record(town: Town) -> None:
    town.nameserver()
    town.broker(promoted(epoch=8))
    await asyncio.sleep(1)
    old = town.broker(master(epoch=7))
    await asyncio.sleep(60)

    assert (old.failure, old.last.taken) == (None, True)


@played_by(play)
async def test_a_node_on_a_copied_disk_refuses_to_start_and_the_other_stays(town: Town) -> None:
    town.nameserver()
    first = town.broker(master(host="a-0"))
    await asyncio.sleep(5)
    copy = town.broker(master(host="a-9"))
    for _ in range(60):
        await asyncio.sleep(0.5)
        assert [node.address for node in await town.routes().brokers()] == ["a-0:10911"]

    assert isinstance(copy.failure, DuplicateBrokerId)
    assert (first.failure, first.last.refusal) == (None, "")


@played_by(play)
async def test_a_killed_node_that_comes_back_elsewhere_is_listed_there_soon(town: Town) -> None:
    town.nameserver()
    first = town.broker(master(host="a-0"))
    await asyncio.sleep(5)
    first.node.crash(Power.KILL)
    again = town.broker(master(host="a-9"))
    await asyncio.sleep(13 + 5)

    assert (again.failure, again.last.refusal) == (None, "")
    assert [node.address for node in await town.routes().brokers()] == ["a-9:10911"]


@played_by(play)
async def test_second_broker_of_one_id_is_refused_until_the_first_is_gone(town: Town) -> None:
    """It is told why."""
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


@played_by(play)
async def test_clean_stop_deregisters_a_broker_though_one_nameserver_is_silent(town: Town, /, world: World) -> None:
    for _ in range(3):
        town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)
    world.network.silence("a-0", "n1")
    broker.registrar.changed()
    await asyncio.sleep(0.5)  # n1 is being called

    await broker.node.stop()

    assert [await town.routes([f"{each}:9876"]).brokers() for each in ("n0", "n2")] == [[], []]


@played_by(play)
async def test_a_broker_of_another_cluster_refuses_to_start_and_says_both_names(town: Town) -> None:
    town.nameserver()
    town.nameserver()
    broker = town.broker(replace(master(), cluster="other"))
    await asyncio.sleep(1)

    assert isinstance(broker.failure, ConfigError)
    assert str(broker.failure).startswith('node.cluster: is "other", and nameserver n')
    assert 'serves cluster "dittomq"' in str(broker.failure)


@played_by(play)
async def test_broker_known_by_one_nameserver_survives_one_of_another_cluster(town: Town) -> None:
    town.nameserver()
    town.nameserver(NameserverConfig(node=NodeConfig(cluster="other")))
    broker = town.broker(master())
    await asyncio.sleep(30)

    assert broker.failure is None
    assert len(broker.last.answers) == 1
    assert broker.last.refusal.startswith('cluster is "other" here, not "dittomq"')


def test_each_new_refusal_is_logged_once(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(replace(master(), addresses={"default": "10.0.0.1"}, replication_addresses={"default": "a-0:10912"}))
        await asyncio.sleep(30)
        first = town.broker(slave())
        await asyncio.sleep(1)
        town.broker(replace(slave("c" * 32), addresses={"default": "a-9:10911"}))
        await asyncio.sleep(20)
        await first.node.stop()
        await asyncio.sleep(10)

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    assert [
        (line["node"], line["nameserver"], line["reason"].partition(",")[0]) for line in logged if line["event"] == "registration_refused"
    ] == [
        ("a/0", "n0:9876", 'addresses: "10.0.0.1" is not "host:port"'),
        ("a/1", "n0:9876", "a/1 is held by the replica at a-1:10911"),
    ]


def test_a_nameserver_that_falls_silent_and_comes_back_is_logged_once_each(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver()
        await asyncio.sleep(1)
        town.broker(master())
        await asyncio.sleep(1)
        world.nodes["n1"].crash(Power.KILL)
        await asyncio.sleep(60)
        world.nodes["n1"].start()
        await asyncio.sleep(30)

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    told = [line for line in logged if line["event"].startswith("nameserver_") and "nameserver" in line]
    assert [(line["event"], line["node"], line["nameserver"]) for line in told] == [
        ("nameserver_unreachable", "a/0", "n1:9876"),
        ("nameserver_reachable", "a/0", "n1:9876"),
    ]
    assert "does not answer" in told[0]["problem"]
    assert 45 < told[1]["silent_s"] < 60


def test_topics_that_nameservers_refuse_are_skipped_and_logged(world: World) -> None:
    """The others are routed to."""
    wide, strange = TopicQueues("wide", 2_048, 8, 6), TopicQueues("strange", 8, 8, 15)

    async def story(town: Town) -> None:
        for _ in range(2):
            town.nameserver()
        broker = town.broker(replace(master(), topics=(wide, orders(), strange)))
        await asyncio.sleep(1)
        broker.registrar.changed()
        await asyncio.sleep(1)
        assert (await town.routes().route("orders")).queues
        broker.registration = replace(master(), data_version=DataVersion(1, 2, 4), topics=(orders(), strange))
        broker.registrar.changed()
        await asyncio.sleep(1)

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    of_wide, of_strange = "wide: read_queues: 2,048 is outside [0, 1,024]", "strange: permission: 15 is outside [0, 7]"
    assert [(line["node"], line["count"], line["reasons"]) for line in logged if line["event"] == "topics_not_registered"] == [
        ("a/0", 2, (of_wide, of_strange)),
        ("a/0", 1, (of_strange,)),
    ]


def test_changed_topics_reach_routes_without_a_registration_of_all(world: World) -> None:
    many = tuple(TopicQueues(f"t{number}", 4, 4, 6) for number in range(2_000))

    async def story(town: Town) -> None:
        for _ in range(2):
            town.nameserver()
        broker = town.broker(replace(master(), topics=(orders(), *many)))
        await asyncio.sleep(1)
        for number, topics in enumerate([(*many, orders()), (orders(4), *many[5:]), many, (*many, TopicQueues("last", 1, 1, 6))]):
            broker.registration = replace(master(), data_version=DataVersion(1, 2, 4 + number), topics=topics)
            broker.registrar.changed()
            await asyncio.sleep(1)
        await asyncio.sleep(10)  # a nameserver denies no topic before
        routes = town.routes()
        assert (await routes.route("last")).queues[0].read_queues == 1
        assert (await routes.route("t0")).queues[0].read_queues == 4
        with pytest.raises(TopicNotFound):
            await routes.route("orders")

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    assert [line["topics"] for line in logged if line["event"] == "broker_registered"] == [2_001, 2_001]


def test_more_changes_than_a_heartbeat_takes_are_registered(world: World) -> None:
    many = tuple(TopicQueues(f"t{number}", 4, 4, 6) for number in range(MAX_CHANGED_TOPICS + 1))

    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        broker.registration = replace(master(), data_version=DataVersion(1, 2, 4), topics=many)
        broker.registrar.changed()
        await asyncio.sleep(1)
        assert (await town.routes().route("t7")).queues[0].read_queues == 4

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    assert [line["topics"] for line in logged if line["event"] == "broker_registered"] == [1, len(many)]
