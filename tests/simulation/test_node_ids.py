"""Two replicas under one node id: who gives way, and when."""

import asyncio
from collections.abc import Iterator

import pytest

from dittomq.errors import NodeIdTaken
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import UUID_B, master


@pytest.fixture
def world() -> Iterator[World]:
    world = World(seed=1)
    yield world
    assert world.findings == []
    world.close()


def test_a_replica_that_comes_second_ends_once_the_holder_was_heard_again(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        first = town.broker(master())
        await asyncio.sleep(1)

        second = town.broker(master(UUID_B, host="a-9"))
        await asyncio.sleep(20)

        assert isinstance(second.failure, NodeIdTaken)
        assert "is held by the replica at a-0:10911, which is alive" in str(second.failure)
        assert first.failure is None

    play(world, story)


def test_a_replica_that_follows_a_dead_one_waits_for_its_expiry_and_never_ends(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        first = town.broker(master())
        await asyncio.sleep(12)
        first.node.crash(Power.KILL)

        second = town.broker(master(UUID_B, host="a-9"))
        await asyncio.sleep(40)

        assert second.failure is None
        assert (await town.routes().brokers())[0].replica_uuid == UUID_B

    play(world, story)


def test_a_replica_that_was_registered_is_not_ended_by_another_that_takes_its_place(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        old = town.broker(master(epoch=7))
        await asyncio.sleep(1)
        world.nodes["n0"].crash(Power.KILL)
        town.broker(master(UUID_B, host="a-9", epoch=7))
        world.nodes["n0"].start()

        await asyncio.sleep(40)

        assert old.failure is None

    play(world, story)
