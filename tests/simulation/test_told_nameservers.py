"""What a broker tells its nameservers reaches each by itself, it knows which have heard, and they know it after a restart too."""

import asyncio
from dataclasses import replace

import pytest

from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NotPermitted
from dittomq.offsets import Epoch
from dittomq.routes import Opening
from services.nameserver.config import NameserverConfig
from tests.simulation import group as groups
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, bodies
from tests.simulation.shapes import Shape
from tests.simulation.test_promotions import NAMESERVER_SETTLES_S, TWO_SLAVES, follows, leads, topic, until
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import UUID_B, master, slave


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


@pytest.mark.parametrize("power", Power)
@pytest.mark.parametrize("shape", [groups.SYNC, TWO_SLAVES], ids=["one slave", "two slaves"])
def test_an_old_master_hears_of_a_promotion_from_a_nameserver_that_was_restarted_while_all_others_who_know_are_down(
    shape: Shape, power: Power
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await topic(mq)
        await asyncio.sleep(2.0)  # the slaves hear of it
        slaves = group.cluster.brokers[1:]
        await group.kill("a0")
        await mq.admin.change_role("a/1", old_master_is_stopped=True, accept_loss=len(slaves) == 1)
        await until(leads(mq, "a1:10911"))
        async with mq.producer(timeout_s=30.0, retry_s=30.0, on_weak="return") as producer:
            await producer.publish("orders", b"after the promotion", queue=0)
        for each in slaves:
            await group.kill(each)
        group.node("ns").crash(power)
        await group.world.buried()

        group.node("ns").start()
        await asyncio.sleep(1.0)
        group.node("a0").start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        assert not await leads(mq, "a0:10911")()
        assert await follows(mq, "a0:10911")()
        for each in slaves:
            group.node(each).start()
        await group.in_sync(mq, "a/1")
        await asyncio.sleep(11)
        assert await bodies(mq, "a/0") == await bodies(mq, "a/1") == [b"after the promotion"]

    groups.play(story, shape)


def test_a_group_with_new_disks_of_which_nameservers_know_a_promoted_node_begins_anew_at_an_operators_word() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.change_role("a/1")
        await group.in_sync(mq, "a/1")
        for each in group.cluster.brokers:
            await group.kill(each)
            group.node(each).lose_disk()
        for each in group.cluster.brokers:
            group.node(each).start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        assert not await leads(mq, "a0:10911")()

        with pytest.raises(NotPermitted, match="nameservers know of epoch 2, opened by a/1"):
            await mq.admin.change_role("a0:10911")
        await mq.admin.change_role("a0:10911", accept_loss=True)
        await group.in_sync(mq, "a/0")

        await topic(mq)
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"anew", queue=0)).status is PutStatus.PUT_OK

    groups.play(story)


def test_what_a_nameserver_answered_a_broker_it_knows_after_a_power_loss(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(replace(master(epoch=7), opener_id=0))
        await asyncio.sleep(1)
        broker.registration = replace(master(epoch=8), opener_id=1)
        assert await broker.registrar.tell(1.0) == 1
        broker.node.crash(Power.KILL)
        node = world.nodes["n0"]
        node.crash(Power.LOSS)

        node.start()
        late = town.broker(slave(UUID_B, epoch=7))
        await asyncio.sleep(1)

        assert late.last.newest == Opening(Epoch(8), 1)

    play(world, story)


def test_a_nameserver_whose_disk_is_full_answers_everybody_and_counts_as_told_of_an_epoch_when_there_is_room(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master(epoch=7))
        await asyncio.sleep(1)
        disk = world.nodes["n0"].disk
        disk.capacity_bytes = disk.used_bytes() + 1_000
        broker.registration = replace(master(epoch=8), opener_id=0)

        assert await broker.registrar.tell(1.0) == 0
        assert [node.epoch for node in await town.routes().brokers()] == [8]
        late = town.broker(slave(UUID_B, epoch=7))
        await asyncio.sleep(1)
        assert (late.last.newest, late.last.master is not None) == (Opening(Epoch(8), 0), True)

        disk.capacity_bytes = BOUNDLESS
        await asyncio.sleep(1)
        assert await broker.registrar.tell(1.0) == 1

    play(world, story)


def test_a_nameserver_whose_disk_hangs_answers_everybody_and_does_not_count_as_told_of_an_epoch(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master(epoch=7))
        await asyncio.sleep(1)
        world.nodes["n0"].faults.slowness = 1e6
        broker.registration = replace(master(epoch=8), opener_id=0)

        assert await broker.registrar.tell(1.0) == 0
        assert broker.last.newest.epoch == 8
        late = town.broker(slave(UUID_B, epoch=7))
        await asyncio.sleep(1)
        assert late.last.master is not None

    play(world, story)


def test_a_failed_sync_ends_a_nameserver_and_its_next_start_is_told_anew(world: World) -> None:
    async def story(town: Town) -> None:
        town.nameserver()
        broker = town.broker(master(epoch=7))
        await asyncio.sleep(1)
        node = world.nodes["n0"]
        node.faults.failing_syncs = 1
        broker.registration = replace(master(epoch=8), opener_id=0)

        assert await broker.registrar.tell(1.0) == 0
        assert not node.running

        node.start()
        await asyncio.sleep(5)
        assert await broker.registrar.tell(1.0) == 1

    play(world, story)
