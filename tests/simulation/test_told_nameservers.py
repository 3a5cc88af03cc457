"""What a broker tells its nameservers reaches each by itself, and it knows which have heard."""

import asyncio
from dataclasses import replace

from dittomq.offsets import Epoch
from services.nameserver.config import NameserverConfig
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import master


def test_a_clean_stop_removes_a_broker_from_the_others_though_one_nameserver_is_silent(world: World) -> None:
    async def story(town: Town) -> None:
        for _ in range(3):
            town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        world.network.silence("a-0", "n1")
        broker.registrar.changed()
        await asyncio.sleep(0.5)  # n1 is being told

        await broker.node.stop()

        assert [await town.routes([f"{each}:9876"]).brokers() for each in ("n0", "n2")] == [[], []]

    play(world, story)


def test_a_nameserver_counts_as_told_when_it_took_what_it_was_told_and_no_other_is_left_out_of_the_count(world: World) -> None:
    async def story(town: Town) -> None:
        for _ in range(3):
            town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)

        assert await broker.registrar.tell(1.0) == 3
        world.nodes["n2"].crash(Power.KILL)
        assert await broker.registrar.tell(1.0) == 2

    play(world, story)


def test_a_nameserver_that_has_forgotten_the_broker_is_told_when_it_has_taken_it_in_again(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master())
        await asyncio.sleep(1)
        world.network.link("a-0", "n0").slowness = 100.0
        town.restart_nameserver("n0", NameserverConfig())
        await asyncio.sleep(0.1)
        broker.registration = replace(master(), epoch=Epoch(8))

        told = await broker.registrar.tell(5.0)

        assert (told, [node.epoch for node in await town.routes().brokers()]) == (1, [8])

    play(world, story)
