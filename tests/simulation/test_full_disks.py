"""A disk that is full when a node starts on it, or that others fill to the last block while it runs."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from dittomq.broker.config import FailoverTable
from dittomq.cli.ha_report import build_report
from dittomq.client import AsyncClient, Message, NotStored, OutcomeUnknown, PutStatus
from dittomq.client.replica_reader import NodeAddress
from dittomq.commitlog.disk.state_file import ROOM_BYTES
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus, WaitKind
from dittomq.routes import Role
from tests.simulation import short_retention
from tests.simulation.disk import BOUNDLESS
from tests.simulation.group import SYNC, Group, play
from tests.simulation.shapes import MIN_FREE_BYTES
from tests.simulation.short_retention import OLD_S
from tests.simulation.world import Power, World
from tests.support.virtual_time import played_by


@played_by(play)
async def test_master_started_on_a_full_disk_serves_and_leads_once_there_is_room(group: Group, mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)
    disk = group.node("a0").disk
    await group.node("a0").stop()
    disk.capacity_bytes = disk.used_bytes() + 700 * 1024

    group.node("a0").start()
    await asyncio.sleep(20.0)

    status = await mq.admin.ha_status("a0:10911")
    assert not status.writable
    assert "room on its disk" in status.waiting_for
    assert status.waiting_kind is WaitKind.DISK_ROOM
    page = await mq.reader("orders", queue=0, node="a/0").pull(0)
    assert [message.body for message in page.messages] == [b"before"]
    disk.capacity_bytes = BOUNDLESS
    await group.in_sync(mq)
    async with mq.producer() as producer:
        assert (await producer.publish("orders", b"after", queue=0)).status is PutStatus.PUT_OK
    assert [message.body for message in (await mq.reader("orders", queue=0).pull(0)).messages] == [b"before", b"after"]


@pytest.mark.parametrize("copies", [2, 3])
def test_master_without_room_to_open_its_epoch_makes_way_for_one_that_has(copies: int) -> None:
    """Of three copies, one member is an election quorum without it; of two it must promise."""

    async def story(group: Group, mq: AsyncClient) -> None:
        disk = group.node("a1").disk
        disk.capacity_bytes = disk.used_bytes() + ROOM_BYTES // 2
        await group.kill("a0")
        await _until(mq, "a1:10911", lambda status: status.waiting_kind is WaitKind.DISK_ROOM)

        await _until(mq, "a2:10911", lambda status: status.writable)
        await asyncio.sleep(1.0)

        nodes = [(each.name, each.role) for each in await mq.admin.list_brokers()]
        assert nodes == [("a/2", Role.SYNC_MASTER), ("a/1", Role.SLAVE)]
        disk.capacity_bytes = BOUNDLESS
        await _until(mq, "a2:10911", lambda status: status.in_sync_now == 2)

    table = replace(SYNC.replication, in_sync_replicas=copies, replicas_expected=2)
    play(story, replace(SYNC, slaves=2, replication=table, failover=FailoverTable()))


def test_master_that_promises_while_room_comes_opens_no_older_epoch() -> None:
    """Its disk is slow: the promise comes while the tables are written."""

    async def story(group: Group, mq: AsyncClient) -> None:
        topics = [mq.admin.create_topic(f"orders-{number}-{'x' * 100}", 1) for number in range(400)]  # a table that asks for more room
        await asyncio.gather(*topics)  # than the history of epochs
        await group.in_sync(mq)
        await asyncio.sleep(5.0)
        node = group.node("a1")
        node.disk.capacity_bytes = node.disk.used_bytes() + 2 * ROOM_BYTES
        await group.kill("a0")
        await _until(mq, "a1:10911", lambda status: status.waiting_kind is WaitKind.DISK_ROOM)
        await asyncio.sleep(2.2)  # a second before the next candidate asks
        node.faults.slowness = 800.0
        node.disk.capacity_bytes = BOUNDLESS
        before = len(group.world.transcript.lines)
        await asyncio.sleep(6.0)

        events = [line.split()[3] for line in group.world.transcript.lines[before:] if "node=a/1" in line]
        assert [each for each in events if each in {"promised", "epoch_opened", "epoch_not_opened"}][:2] == ["promised", "epoch_not_opened"]

    table = replace(SYNC.replication, in_sync_replicas=2, replicas_expected=2)
    play(story, replace(SYNC, slaves=2, replication=table, failover=FailoverTable()))


async def _until(mq: AsyncClient, address: str, is_so: Callable[[HaStatus], bool]) -> None:
    """Wait until that node says so; it may be changing its role."""
    while True:
        with contextlib.suppress(DittoError):
            if is_so(await mq.admin.ha_status(address)):
                return
        await asyncio.sleep(0.1)


@played_by(play)
async def test_resent_stored_message_gets_its_receipt_from_a_full_master(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    disk = group.node("a0").disk
    async with mq.producer(timeout_s=0.5, retry_s=1.0) as producer:
        await producer.publish("orders", b"before", queue=0)
        group.world.network.silence("a0", "client")
        with pytest.raises(OutcomeUnknown) as lost:
            await producer.publish("orders", b"paid", queue=0)
        group.world.network.heal("a0", "client")
        await asyncio.sleep(10.0)
        disk.capacity_bytes = disk.used_bytes() + MIN_FREE_BYTES // 2

        receipt = await producer.send_again(lost.value.handle, Message("orders", b"paid"))

        assert (receipt.queue_offset, receipt.duplicate) == (1, True)
        with pytest.raises(NotStored):
            await producer.publish("orders", b"refused", queue=0)


@pytest.mark.parametrize("somebody_publishes", [True, False])
@played_by(play)
async def test_a_master_that_refuses_writes_for_want_of_room_says_so_until_there_is_room(
    group: Group, mq: AsyncClient, /, *, somebody_publishes: bool
) -> None:
    await mq.admin.create_topic("orders", 1)
    disk = group.node("a0").disk
    async with mq.producer(retry_s=0.5) as producer:
        await producer.publish("orders", b"before", queue=0)
        await asyncio.sleep(15.0)  # the master has written down for whom it keeps its log
        disk.capacity_bytes = disk.used_bytes() + MIN_FREE_BYTES // 2
        with pytest.raises(NotStored) as refused:
            await producer.publish("orders", b"refused", queue=0)

        for _ in range(3):
            report = build_report(await mq.admin.list_brokers(), {"a/0": (status := await mq.admin.ha_status("a/0"))})
            assert (status.writable, status.waiting_for, status.waiting_kind) == (False, str(refused.value.cause), WaitKind.DISK_ROOM)
            assert report.missing == f"a/0 takes no writes: {status.waiting_for}"
            await asyncio.sleep(5.0)

        disk.capacity_bytes = BOUNDLESS
        if somebody_publishes:
            await producer.publish("orders", b"after", queue=0)
        else:
            await asyncio.sleep(1.5)
    status = await mq.admin.ha_status("a/0")
    assert (status.writable, status.waiting_for, status.waiting_kind) == (True, "", None)


@played_by(play)
async def test_slave_without_room_to_save_its_tail_says_so_and_truncates_later(group: Group, mq: AsyncClient) -> None:
    """It truncates when there is room."""
    await mq.admin.create_topic("orders", 1)
    async with mq.producer(on_weak="return") as producer:
        await producer.publish("orders", b"before", queue=0)
        group.world.network.cut("a0", "a1")
        for _ in range(4):
            await producer.publish("orders", bytes(30_000), queue=0)
        await group.kill("a0")
        group.world.network.heal("a0", "a1")
        await group.fail_over("a/1", allow_data_loss=True)
        await producer.publish("orders", b"after", queue=0)
    disk = group.node("a0").disk
    disk.capacity_bytes = disk.used_bytes() + 80 * 1024

    group.node("a0").start()
    await asyncio.sleep(30.0)

    assert group.node("a0").running
    view = next(each for each in (await mq.admin.ha_status("a0:10911")).nodes if each.node == "a/0")
    assert "bytes left" in view.last_drop_reason
    assert not [line for line in group.world.transcript.lines if "log_truncated node=a/0" in line]
    disk.capacity_bytes = BOUNDLESS
    await group.in_sync(mq, "a/1")
    assert [line for line in group.world.transcript.lines if "log_truncated node=a/0" in line]


def fill(world: World, name: str) -> None:
    """Others take the last block."""
    disk = world.nodes[name].disk
    disk.capacity_bytes = disk.used_bytes()


@played_by(short_retention.play)
async def test_expiry_and_retention_wait_for_room_on_a_full_disk(group: short_retention.Group, /, world: World) -> None:
    """A lease has ended, and the log is too old."""
    await group.copies.pin(NodeAddress("a", 0, "test", "a0:10911"), "night", 60.0)
    await group.publish(4)
    await group.equal()
    await asyncio.sleep(OLD_S)  # what is old is there for the audit only
    fill(world, "a0")
    await asyncio.sleep(OLD_S)

    assert (await group.status("a0")).min_offset == 0
    assert [line for line in world.transcript.lines if "warning pin_ended" in line]
    assert len([line for line in world.transcript.lines if "warning log_not_dropped" in line]) == 1
    page = await group.mq.reader("orders", 0, broker="a", node="a/0").pull(0)
    assert page.messages[0].body[:8] == b"%08d" % 0
    world.nodes["a0"].disk.capacity_bytes = BOUNDLESS
    await asyncio.sleep(5)
    assert (await group.status("a0")).min_offset > 0
    await group.publish(1)
    await group.equal()


@played_by(short_retention.play)
async def test_slave_catches_up_with_a_master_that_cannot_checkpoint(group: short_retention.Group, /, world: World) -> None:
    """The master's disk has no room."""
    world.nodes["a1"].crash(Power.KILL)
    await world.buried()
    await group.publish(3)
    await asyncio.sleep(OLD_S)
    fill(world, "a0")

    world.nodes["a1"].start()
    await group.equal()
    await asyncio.sleep(5)

    world.nodes["a0"].disk.capacity_bytes = BOUNDLESS
    await group.publish(1)
    await group.equal()
    await asyncio.sleep(OLD_S)
    assert (await group.status("a0")).min_offset > 0


@pytest.mark.parametrize("name", ["a0", "a1"])
@played_by(short_retention.play)
async def test_a_node_lives_on_when_others_fill_its_disk_right_after_a_write(
    group: short_retention.Group, /, world: World, name: str
) -> None:
    await group.publish(1)
    await group.equal()
    fill(world, name)
    await asyncio.sleep(OLD_S)

    page = await group.mq.reader("orders", 0, broker="a", node=f"a/{name[1]}").pull(group.sent - 1)
    assert page.messages[0].body[:8] == b"%08d" % (group.sent - 1)
    world.nodes[name].disk.capacity_bytes = BOUNDLESS
    await group.publish(1)
    await group.equal()
