"""A node is told of an epoch that another one is about to open: what it keeps of that, whatever happens to it meanwhile."""

import asyncio
import contextlib
from collections.abc import Awaitable

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import BrokerService, Grant
from dittomq.cli.ha_report import build_report
from dittomq.client import AsyncClient
from dittomq.errors import DittoError, NotReady, OutOfReach
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.standings import KnownBefore, Stance
from dittomq.routes import Opening
from dittomq.rpc.channel import Channels
from dittomq.rpc.replicas import RemoteReplicas
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import Group, play
from tests.simulation.test_asked_replicas import begin
from tests.simulation.test_promotions import TWO_SLAVES, follows, leads, until
from tests.simulation.test_roles import decide
from tests.simulation.world import Power


async def announce(group: Group, machine: str, opening: Opening) -> KnownBefore | DittoError:
    """Tell that machine, as the opener would, from a machine of its own: what it answers."""
    answered: asyncio.Future[KnownBefore | DittoError] = asyncio.get_running_loop().create_future()

    async def tell(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            try:
                answered.set_result(await RemoteReplicas(channels, "dittomq", "a").announce(f"{machine}:10912", opening))
            except DittoError as problem:
                answered.set_result(problem)

    group.world.node(f"teller {len(group.world.nodes)}", tell).start()
    return await answered


def test_a_slave_whose_disk_fails_while_it_notes_an_epoch_ends() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        group.node("a2").faults.failing_syncs = 1

        answer = await announce(group, "a2", Opening(Epoch(7), 1))

        assert isinstance(answer, DittoError)
        assert not group.node("a2").faults.failing_syncs
        await asyncio.sleep(1.0)
        assert not group.node("a2").running

    play(story, TWO_SLAVES)


async def never_leads(group: Group, mq: AsyncClient, machine: str) -> None:
    """Look for half a minute."""
    for _ in range(300):
        await asyncio.sleep(0.1)
        assert not await leads(mq, f"{machine}:10911")()


def test_a_master_that_was_told_of_an_epoch_and_loses_power_before_it_has_made_room_opens_none_beside_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        await group.kill("a1")

        answer = await announce(group, "a0", Opening(Epoch(2), 1))
        group.node("a0").crash(Power.LOSS)
        await group.world.buried()

        assert answer == KnownBefore(Stance.LEADING, Opening(Epoch(1), 0))
        group.node("a0").start()
        await never_leads(group, mq, "a0")

    play(story)


@pytest.mark.parametrize("epoch", [2, 3], ids=["the one that it opens itself", "a newer one"])
def test_a_master_that_is_told_of_an_epoch_while_it_opens_one_for_which_its_disk_has_no_room_gives_way(epoch: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        await group.kill("a1")
        disk = group.node("a0").disk
        await group.node("a0").stop()
        disk.capacity_bytes = disk.used_bytes() + 700 * 1024
        group.node("a0").start()
        await asyncio.sleep(5.0)
        assert "room on its disk" in (await mq.admin.ha_status("a0:10911")).waiting_for

        await announce(group, "a0", Opening(Epoch(epoch), 1))
        disk.capacity_bytes = BOUNDLESS

        await never_leads(group, mq, "a0")
        assert await follows(mq, "a0:10911")()

    play(story)


def test_a_slave_that_was_told_of_an_epoch_before_its_grant_was_durable_opens_none_beside_it_as_a_master() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        for machine in ("a0", "a2"):
            await group.kill(machine)
        await announce(group, "a1", Opening(Epoch(2), 2))
        await group.kill("a1")
        await decide(group.node("a1"), Grant(BrokerService.MASTER, 1, Epoch(2), "a/0", PhysicalOffset(0)))

        group.node("a1").start(BrokerService.MASTER)

        await never_leads(group, mq, "a1")

    play(story, TWO_SLAVES)


def test_a_slave_that_has_its_grant_says_so_to_whoever_announces_the_same_epoch_and_leads() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.world.network.silence("a1", "ns")  # it tells nameservers of its grant for a second
        await group.kill("a0")
        promoting = asyncio.create_task(mq.admin.change_role("a1:10911", old_master_is_stopped=True))
        async with asyncio.timeout(60):
            while "dittomq/role" not in group.node("a1").disk.names.files:  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.001)

        answer = await announce(group, "a1", Opening(Epoch(2), 0))

        assert isinstance(answer, KnownBefore)
        assert answer.newest == Opening(Epoch(2), 1)
        with contextlib.suppress(OutOfReach):  # it leaves at once, and its answer may be lost by that
            await promoting
        group.world.network.heal("a1", "ns")
        await until(leads(mq, "a1:10911"))

    play(story)


@pytest.mark.parametrize("heir", ["a/0", "a/1", "a/2"])
def test_where_everybody_is_a_slave_of_an_epoch_that_nobody_opened_one_leads_by_a_command_without_a_word(heir: str) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        async with mq.producer() as producer:
            receipt = await producer.publish("orders", b"confirmed", queue=0)
        await group.in_sync(mq)
        await announce(group, "a0", Opening(Epoch(7), 1))
        await until(follows(mq, "a0:10911"))

        change = await mq.admin.change_role(f"{heir.replace('/', '')}:10911")

        assert (change.epoch, change.may_be_lost) == (8, "")
        await group.in_sync(mq, heir)
        page = await mq.reader("orders", queue=0).pull(receipt.queue_offset)
        assert [message.body for message in page.messages] == [b"confirmed"]

    play(story, TWO_SLAVES)


def test_where_everybody_is_a_slave_ha_status_names_the_command_that_lets_one_lead() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        await group.in_sync(mq)
        await announce(group, "a0", Opening(Epoch(7), 1))

        async def heir() -> str:
            answers = {machine: await mq.admin.ha_status(f"{machine}:10911") for machine in ("a0", "a1", "a2")}
            report = build_report(await mq.admin.list_brokers(), {answer.node: answer for answer in answers.values()})
            return report.groups[0].heir

        await until(lambda: is_named(heir()))
        named = await heir()
        assert (await mq.admin.change_role(named)).may_be_lost == ""
        await group.in_sync(mq, named)

    play(story, TWO_SLAVES)


async def is_named(heir: Awaitable[str]) -> bool:
    try:
        return bool(await heir)
    except DittoError:
        return False


def test_nobody_takes_the_place_of_a_master_before_as_many_have_noted_its_epoch_as_leave_that_one_alone() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        await group.in_sync(mq)
        await group.kill("a0")
        disk = group.node("a2").disk
        disk.capacity_bytes = disk.used_bytes()

        for _ in range(2):  # it is refused for the same reason again, not because somebody is told to lead
            with pytest.raises(NotReady, match=r"of the 2 nodes that must note epoch 2 before anybody opens it 1 did"):
                await mq.admin.change_role("a/1", old_master_is_stopped=True)
        assert await follows(mq, "a1:10911")()

        disk.capacity_bytes = BOUNDLESS
        change = await mq.admin.change_role("a/1", old_master_is_stopped=True)
        await until(leads(mq, "a1:10911"))
        assert (change.epoch, change.may_be_lost) == (2, "what a/0 confirmed on fewer than 2 copies, if anything: only that one knows")

    play(story, TWO_SLAVES)
