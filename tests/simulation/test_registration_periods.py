"""Brokers whose registration period does not fit in a nameserver's expiry: none starts, and none that runs is forgotten."""

import asyncio

import pytest
import structlog

from dittomq.client import AsyncClient
from dittomq.errors import ConfigError
from services.nameserver import wiring as nameserver
from services.nameserver.config import NameserverConfig, RegistryConfig
from tests.simulation.group import Group
from tests.simulation.group import play as play_group
from tests.simulation.scenario import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import master
from tests.support.virtual_time import played_by

SHORT = NameserverConfig(registry=RegistryConfig(broker_expiry_ms=6_000))


@played_by(play)
async def test_a_broker_whose_three_periods_exceed_the_expiry_refuses_to_start(town: Town) -> None:
    town.nameserver(NameserverConfig(registry=RegistryConfig(broker_expiry_ms=29_999)))
    broker = town.broker(master())
    await asyncio.sleep(1)

    assert isinstance(broker.failure, ConfigError)
    assert "set it to 9,999 or less" in str(broker.failure)


@pytest.mark.parametrize("seed", range(6))
def test_broker_with_a_period_too_long_for_any_expiry_refuses_to_start(seed: int) -> None:
    """Three periods exceed the expiry of one nameserver; whichever answers first."""

    async def story(town: Town) -> None:
        town.nameserver()
        town.nameserver(SHORT)
        await asyncio.sleep(0.1)  # both are up
        broker = town.broker(master())
        await asyncio.sleep(5)

        assert isinstance(broker.failure, ConfigError)

    world = World(seed)
    play(world, story)
    world.close()


@played_by(play)
async def test_running_broker_outlives_a_late_nameserver_with_a_shorter_expiry(town: Town, /, world: World) -> None:
    """The nameserver was away at the broker's start."""
    town.nameserver()
    town.nameserver(SHORT)
    world.nodes["n1"].crash(Power.KILL)
    broker = town.broker(master())
    await asyncio.sleep(30)
    world.nodes["n1"].start()
    await asyncio.sleep(10)

    assert broker.failure is None
    assert len(broker.last.answers) == 2


def test_broker_is_never_forgotten_by_a_returned_nameserver(world: World) -> None:
    """The nameserver's expiry is shorter than the broker's period by now."""

    async def story(town: Town) -> None:
        town.nameserver()
        town.broker(master())
        await asyncio.sleep(1)
        town.restart_nameserver("n0", SHORT)
        await asyncio.sleep(10)

        for _ in range(100):
            await asyncio.sleep(0.5)
            assert [node.name for node in await town.routes().brokers()] == ["a/0"]

    with structlog.testing.capture_logs() as logged:
        play(world, story)

    [line] = [line for line in logged if line["event"] == "registration_period_too_long"]
    assert (line["node"], line["nameserver"]) == ("a/0", "n0:9876")
    assert line["reason"].endswith("set it to 2,000 or less")


@played_by(play)
async def test_running_broker_reports_a_returned_nameserver_with_a_shorter_expiry(town: Town) -> None:
    """It outlives that nameserver."""
    town.nameserver()
    broker = town.broker(master())
    await asyncio.sleep(1)

    town.restart_nameserver("n0", NameserverConfig(registry=RegistryConfig(broker_expiry_ms=29_999)))
    await asyncio.sleep(30)

    assert broker.failure is None
    assert "set it to 9,999 or less" in broker.last.refusal
    assert [node.name for node in await town.routes().brokers()] == ["a/0"]


@played_by(play_group)
async def test_brokers_that_swap_addresses_outlive_a_shortened_expiry(group: Group, mq: AsyncClient) -> None:
    """The nameserver came back with it."""
    await group.kill("ns")
    group.node("ns").serve = lambda doors, stop: nameserver.serve(SHORT, doors, stop)
    group.node("ns").start()
    await asyncio.sleep(30)

    await mq.admin.switchover("a/1")
    await group.in_sync(mq, "a/1")
    await asyncio.sleep(30)

    assert {node.name: node.broker_id for node in await mq.admin.list_brokers()} == {"a/1": 0, "a/0": 1}


@played_by(play_group)
async def test_a_broker_whose_role_was_changed_before_refuses_to_start_as_any_other(group: Group, mq: AsyncClient) -> None:
    await mq.admin.switchover("a/1")
    await group.in_sync(mq, "a/1")
    for name in ("a0", "a1", "ns"):
        await group.kill(name)
    group.node("ns").serve = lambda doors, stop: nameserver.serve(SHORT, doors, stop)
    group.node("ns").start()

    group.node("a1").start()
    await group.node("a1").ended()
    await asyncio.sleep(10)

    assert not group.node("a1").running
    [refused] = group.world.findings
    assert "set it to 2,000 or less" in refused
    group.world.findings.clear()
