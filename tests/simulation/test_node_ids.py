"""Two replicas under one node id: who gives way, and when."""

import asyncio
from collections.abc import Iterator

import pytest

from dittomq.broker.config import StoreTable
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NodeIdTaken
from services.master.config import MasterConfig, NodeTable
from services.master.wiring import serve as serve_master
from tests.simulation.group import Group
from tests.simulation.group import play as play_group
from tests.simulation.shapes import NAMESERVER
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


def test_a_master_that_is_refused_its_id_opens_no_epoch_however_often_it_is_started_and_leads_when_the_holder_is_gone() -> None:
    alone = MasterConfig(  # a wrong configuration: it would hear no slave before it leads
        node=NodeTable(nameservers=(NAMESERVER,)),
        advertise={"default": "a9:10911"},
        advertise_replication={"default": "a9:10912"},
        store=StoreTable(segment_bytes=65_536, reserve_bytes=0),
    )
    ended: list[type[Exception]] = []

    async def second(doors: BrokerDoors, stop: asyncio.Event) -> None:
        try:
            await serve_master(alone, doors, stop)
        except* NodeIdTaken:
            ended.append(NodeIdTaken)

    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        epoch = (await mq.admin.ha_status("a/0")).epoch
        usurper = group.world.node("a9", second)
        for starts in range(1, 5):
            usurper.start()
            while usurper.running:  # it cannot tell
                assert (await mq.admin.ha_status("a0:10911")).epoch == epoch
                await asyncio.sleep(1)
            assert ended == [NodeIdTaken] * starts
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"still the first", queue=0)).status is PutStatus.PUT_OK

        await group.kill("a0")
        usurper.start()
        await asyncio.sleep(10)
        waiting = await mq.admin.ha_status("a9:10911")
        assert (waiting.writable, waiting.epoch) == (False, 0)
        assert "a/0 is held by the replica at a0:10911" in waiting.waiting_for
        await asyncio.sleep(30)
        assert (await mq.admin.ha_status("a9:10911")).writable

    play_group(story)
