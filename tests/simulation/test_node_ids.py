"""Two replicas under one node id: who gives way, and when."""

import asyncio

from dittomq.broker.config import StoreTable
from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NodeIdTaken
from services.master.config import MasterConfig, Mode, NodeTable, ReplicationTable
from services.master.wiring import serve as serve_master
from services.slave.config import FlushMode
from tests.simulation import splits
from tests.simulation.group import Group, bodies
from tests.simulation.group import play as play_group
from tests.simulation.shapes import NAMESERVER, Shape, machine_of
from tests.simulation.town import Town, play
from tests.simulation.world import Power, World
from tests.support.naming import UUID_B, master

THREE_COPIES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, in_sync_replicas=3), FlushMode.SYNC_FLUSH)

TWO_OF_THREE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)


def test_a_slave_beyond_those_that_are_expected_is_refused_until_another_one_is_out_of_sync() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        [taken] = [view.node for view in (await mq.admin.ha_status("a/0")).nodes if view.state == "in sync"]
        [refused] = {"a/1", "a/2"} - {taken}
        await asyncio.sleep(30)
        assert f"as many slaves as replicas_expected says, 1: {taken}" in (await mq.admin.ha_status(refused)).waiting_for
        async with mq.producer() as producer:
            assert [copy.node for copy in (await producer.publish("orders", b"1", queue=0)).copies] == ["a/0", taken]

            await group.kill(machine_of(taken))
            await asyncio.sleep(30)
            assert [copy.node for copy in (await producer.publish("orders", b"2", queue=0)).copies] == ["a/0", refused]

            group.node(machine_of(taken)).start()
            await asyncio.sleep(30)
            assert [copy.node for copy in (await producer.publish("orders", b"3", queue=0)).copies] == ["a/0", refused]
            assert f"1: {refused}" in (await mq.admin.ha_status(taken)).waiting_for

    play_group(story, Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1), FlushMode.SYNC_FLUSH))


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


def test_one_disk_that_comes_back_under_another_slaves_name_is_still_one_copy() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        await group.kill("a2")
        async with mq.producer(on_weak="return", timeout_s=30) as orders:
            sending = asyncio.ensure_future(orders.publish("orders", b"on two disks", queue=0))
            await asyncio.sleep(1)
            await group.kill("a1")
            group.node("a2").disk = group.node("a1").disk
            group.node("a2").start()
            receipt = await sending

        assert receipt.status is not PutStatus.PUT_OK
        assert {copy.node for copy in receipt.copies} == {"a/0", "a/2"}
        seen = {view.node: view for view in (await mq.admin.ha_status("a/0")).nodes}
        assert (seen["a/1"].flushed, seen["a/2"].flushed) == (None, seen["a/0"].flushed)
        assert (await mq.admin.ha_status("a/0")).degraded

    play_group(story, THREE_COPIES)


def test_a_node_that_led_and_has_another_disk_comes_back_under_an_id_that_nobody_has_and_is_filled() -> None:
    """Its own id went to the node that it changed places with, and only its old disk knew that."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        await mq.admin.change_role("a/2")
        await group.in_sync(mq, "a/2")
        async with mq.producer() as producer:
            await producer.publish("orders", b"on three disks", queue=0)

        await group.replace_disk("a2")
        await asyncio.sleep(30)

        assert group.node("a2").running
        assert {node.name: node.broker_id for node in await mq.admin.list_brokers()} == {"a/0": 2, "a/1": 1, "a/2": 1_000_003}
        change = await mq.admin.change_role("a/0", accept_loss=True)
        assert change.epoch == 3
        await group.in_sync(mq, "a/0")
        assert [await bodies(mq, node) for node in ("a/0", "a/1", "a/2")] == [[b"on three disks"]] * 3

    play_group(story, TWO_OF_THREE)


def test_a_slave_whose_disk_was_emptied_says_that_nameservers_still_take_it_for_another_one() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.replace_disk("a2")
        await asyncio.sleep(5.0)

        status = await mq.admin.ha_status("a2:10911")
        [own] = status.nodes
        for said in (status.waiting_for, own.last_drop_reason):
            assert "no master is known yet: nameservers refuse this node" in said
            assert "a/2 is held by the replica at a2:10911" in said
        await group.in_sync(mq)
        assert not (await mq.admin.ha_status("a2:10911")).waiting_for
        [own] = (await mq.admin.ha_status("a2:10911")).nodes
        assert "no master is known yet: nameservers" not in own.last_drop_reason

    play_group(story, TWO_OF_THREE)


def test_slaves_of_one_id_whom_nameservers_take_in_by_turns_are_soon_known_to_all_of_these() -> None:
    """The old master was away while its place changed hands twice: it takes the id of the last one, which its predecessor has by then."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await splits.begin(group, mq)
        splits.wall(group, ["a0", "ns2"], ["a1", "a2", "ns"])
        await mq.admin.change_role("a/2", old_master_is_stopped=True)
        await splits.leads_in(mq, "a2", 2)
        await splits.until(lambda: splits.copies_in_sync(mq, "a2", 2))
        await mq.admin.change_role("a/1")
        await splits.leads_in(mq, "a1", 3)
        await splits.until(lambda: splits.copies_in_sync(mq, "a1", 2))
        await asyncio.sleep(40)  # the old master's nameserver has forgotten the others
        splits.pull_down(group, ["a0"], ["a1", "a2", "ns"])
        await splits.until(lambda: splits.copies_in_sync(mq, "a1", 3))
        splits.pull_down(group, ["ns2"], ["a1", "a2", "ns"])
        await asyncio.sleep(60)

        ids = {node.name: node.broker_id for node in await mq.admin.list_brokers()}
        assert (sorted(ids), ids["a/1"], len(set(ids.values()))) == (["a/0", "a/1", "a/2"], 0, 3)
        told = len(group.world.transcript.lines)
        await asyncio.sleep(30)
        assert not any("broker_refused" in line for line in group.world.transcript.lines[told:])

    play_group(story, TWO_OF_THREE.undegraded().named_twice())
