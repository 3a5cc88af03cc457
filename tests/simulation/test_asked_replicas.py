"""A starting master asks the replicas that nameservers list whether one of them leads."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from dittomq.broker.role import BrokerService, Grant
from dittomq.client import AsyncClient
from dittomq.errors import LevelNotReached, OutOfReach
from dittomq.offsets import Epoch, PhysicalOffset
from services.master.config import Mode, ReplicationTable
from services.nameserver.registry import MAX_PAGE
from services.slave.config import FlushMode
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import SYNC, Group, bodies, play
from tests.simulation.network import Socket
from tests.simulation.shapes import NAMESERVER, SECOND_NAMESERVER, Shape
from tests.simulation.streams import Opened
from tests.simulation.test_promotions import TWO_SLAVES, leads, until
from tests.simulation.test_roles import decide
from tests.simulation.world import Power

NAMESERVER_SETTLES_S = 40.0
ALONE = Shape(0, ReplicationTable(mode=Mode.ASYNC_MASTER, replicas_expected=0, in_sync_replicas=0), FlushMode.SYNC_FLUSH)


async def begin(mq: AsyncClient) -> None:
    """A message, and nameservers that have been up for long."""
    await mq.admin.create_topic("orders", 1)
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)
    await asyncio.sleep(NAMESERVER_SETTLES_S)


def test_of_two_that_were_granted_the_same_epoch_and_wait_for_slaves_not_each_follows_the_other() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        for machine in ("a0", "a1", "a2"):
            group.node(machine).crash(Power.LOSS)
        await group.world.buried()
        for number, machine in ((1, "a1"), (2, "a2")):
            await decide(group.node(machine), Grant(BrokerService.MASTER, number, Epoch(2), "a/0", PhysicalOffset(0)))

        for machine in ("a1", "a2"):
            group.node(machine).start(BrokerService.MASTER)

        async with asyncio.timeout(60):
            while not (await leads(mq, "a1:10911")() or await leads(mq, "a2:10911")()):  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.1)
        group.node("a0").start()
        await asyncio.sleep(60.0)
        assert [await leads(mq, f"{machine}:10911")() for machine in ("a0", "a1", "a2")].count(True) == 1

    play(story, TWO_SLAVES)


@pytest.mark.parametrize("silent", [NAMESERVER, SECOND_NAMESERVER])
def test_a_nameserver_that_is_silent_does_not_keep_a_master_from_asking_those_that_another_one_lists(silent: str) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        for name in ("ns", "ns2"):
            group.world.network.cut("a1", name)
        await group.kill("a0")
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        await until(leads(mq, "a1:10911"))
        name = silent.partition(":")[0]
        group.world.network.silence("a0", name)
        group.world.network.silence(name, "a0")

        group.node("a0").start()

        for _ in range(150):
            await asyncio.sleep(0.1)
            assert not await leads(mq, "a0:10911")()

    play(story, replace(SYNC, nameservers=(NAMESERVER, SECOND_NAMESERVER)))


def test_a_nameserver_that_refuses_to_list_nodes_does_not_end_a_master() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("dittomq.naming.route_cache._LIST_PAGE", MAX_PAGE + 1)  # refused, as a long list that changes with each page is
            await group.kill("a0")
            group.node("a0").start()
            await asyncio.sleep(10.0)
            assert group.node("a0").running
        await group.in_sync(mq)

    play(story)


def test_a_master_that_leads_asks_no_more_though_its_disk_was_full_when_it_opened_its_epoch() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        asked: list[float] = []

        def delivered(sender: Socket, payload: object) -> None:
            match payload:
                case (int(), Opened(method)) if method.endswith("/DescribeReplica") and sender.host == "a0":
                    asked.append(group.now)

        disk = group.node("a0").disk
        await group.node("a0").stop()
        disk.capacity_bytes = disk.used_bytes() + 700 * 1024
        group.node("a0").start()
        await asyncio.sleep(10.0)
        disk.capacity_bytes = BOUNDLESS
        await group.in_sync(mq)
        await asyncio.sleep(3.0)
        group.world.network.tap = delivered

        await asyncio.sleep(20.0)

        assert asked == []

    play(story)


def test_a_slave_that_has_its_grant_and_tells_nameservers_leads_though_the_old_master_starts_just_then() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.world.network.silence("a1", "ns")
        await group.kill("a0")
        promoting = asyncio.create_task(mq.admin.change_role("a1:10911", old_master_is_stopped=True))
        async with asyncio.timeout(60):
            while "dittomq/role" not in group.node("a1").disk.names.files:  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.001)

        group.node("a0").start()

        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await promoting
        group.world.network.heal("a1", "ns")
        await group.in_sync(mq, "a/1")
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        assert (await mq.admin.ha_status("a/1")).epoch == 2

    play(story)


def test_a_replica_that_only_one_of_two_nameservers_lists_is_asked_whatever_the_other_one_lists() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        for ends in (("a1", "ns"), ("a2", "ns2")):
            group.world.network.cut(*ends)
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        group.world.network.cut("a1", "ns2")
        await group.kill("a0")
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await mq.admin.change_role("a1:10911", accept_loss=True, old_master_is_stopped=True)
        await until(leads(mq, "a1:10911"))

        group.node("a0").start()

        for _ in range(150):
            await asyncio.sleep(0.1)
            assert not await leads(mq, "a0:10911")()

    play(story, replace(TWO_SLAVES, nameservers=(NAMESERVER, SECOND_NAMESERVER)))


def test_a_replica_that_was_told_of_an_epoch_tells_the_old_master_when_its_opener_is_down_and_the_nameserver_forgot_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.world.network.cut("a2", "ns")  # it never hears where its new master is
        await group.kill("a0")
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        await until(leads(mq, "a1:10911"))
        async with mq.producer() as producer:
            with pytest.raises(LevelNotReached):  # its receipt says that one copy has it
                await producer.publish("orders", b"confirmed by one copy", queue=0)
        for name in ("ns", "a1", "a2"):
            group.node(name).crash(Power.LOSS)
        await group.world.buried()
        for name in ("ns", "a2"):
            group.node(name).start()
        group.world.network.heal("a2", "ns")
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        group.node("a0").start()

        for _ in range(300):
            await asyncio.sleep(0.1)
            assert not await leads(mq, "a0:10911")()
        group.node("a1").start()
        await group.in_sync(mq, "a/1")
        assert b"confirmed by one copy" in await bodies(mq, "a/0")

    play(story, TWO_SLAVES)


THREE_SLAVES = Shape(3, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=3), FlushMode.SYNC_FLUSH)


@pytest.mark.parametrize("slowness", [100.0, 10_000.0], ids=["within its time", "longer than they wait"])
def test_of_two_that_tell_a_slave_of_the_same_epoch_while_it_writes_that_down_one_opens_it(slowness: float) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        for machine in ("a0", "a1", "a2"):
            await group.kill(machine)
        for number, machine in ((1, "a1"), (2, "a2")):
            await decide(group.node(machine), Grant(BrokerService.MASTER, number, Epoch(2), "a/0", PhysicalOffset(0)))
        for ends in (("a1", "a2"), ("a1", "ns2"), ("a2", "ns")):  # neither knows of the other, and each finds the slave
            group.world.network.cut(*ends)
        group.node("a3").faults.slowness = slowness

        for machine in ("a1", "a2"):
            group.node(machine).start(BrokerService.MASTER)

        for _ in range(50):
            await asyncio.sleep(0.1)
            assert {await leads(mq, f"{machine}:10911")() for machine in ("a1", "a2")} != {True}
        assert await leads(mq, "a1:10911")() or await leads(mq, "a2:10911")()

    play(story, replace(THREE_SLAVES, nameservers=(NAMESERVER, SECOND_NAMESERVER)))


def test_a_master_without_slaves_waits_for_no_silent_nameserver_longer_than_to_hear_of_newer_epochs() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.kill("a0")
        for ends in (("a0", "ns"), ("ns", "a0")):
            group.world.network.silence(*ends)
        started = group.now

        group.node("a0").start()
        await until(leads(mq, "a0:10911"))

        assert group.now - started < 2.0

    play(story, ALONE)


def test_a_replica_is_told_of_a_promotion_before_the_command_answers_also_when_no_nameserver_can_be() -> None:
    """Whoever was promoted may die before it opens its epoch, and a nameserver that comes up then knows nobody but who registers."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.node("a0").crash(Power.LOSS)
        promoting = asyncio.ensure_future(mq.admin.change_role("a1:10911", old_master_is_stopped=True))
        await asyncio.sleep(0.1)  # it has the nameserver's list, and waits for an answer of the old master
        await group.kill("ns")
        change = await promoting
        await group.kill("a1")
        assert change.epoch == 2

        group.node("ns").start()
        group.node("a0").start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)

        old = await mq.admin.ha_status("a0:10911")
        assert (old.writable, old.epoch) == (False, 1)
        group.node("a1").start()
        await group.in_sync(mq, "a/1")
        assert (await mq.admin.ha_status("a/1")).epoch == 2

    play(story, TWO_SLAVES)
