"""What fewer copies confirmed than asked is known to every replica, so to whoever comes to lead."""

import asyncio
import json
from dataclasses import replace

import pytest

from dittomq.broker.degraded_file import PATH
from dittomq.client import Ack, AsyncClient, CopyState, NotStored, Producer, PutStatus, Receipt
from dittomq.errors import DittoError, OutcomeHandle
from services.master.config import Mode, ReleaseLevel, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.disk import Operation
from tests.simulation.group import Group, play
from tests.simulation.parser import parse_log
from tests.simulation.shapes import Shape
from tests.simulation.test_mending import flip
from tests.simulation.test_promotions import leads, until
from tests.simulation.world import Power

ALL_THREE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, in_sync_replicas=3), FlushMode.SYNC_FLUSH)


async def degrade(group: Group, mq: AsyncClient, orders: Producer) -> Receipt:
    """One slave is gone, and producers have waited for it twice; the receipt of what two copies then confirm."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    assert (await orders.publish("orders", b"on three", queue=0)).status is PutStatus.PUT_OK
    await asyncio.sleep(1)
    await group.kill("a2")
    while (receipt := await orders.publish("orders", b"on two", queue=0)).status is not PutStatus.SLAVE_NOT_AVAILABLE:
        pass
    return receipt


async def degrade_for_a_while(group: Group, mq: AsyncClient) -> None:
    """The same, and then the slave is back and everybody knows."""
    async with mq.producer(on_weak="return") as orders:
        await degrade(group, mq, orders)
    group.node("a2").start()
    await group.in_sync(mq)
    await asyncio.sleep(1)


def written_down(group: Group, name: str) -> list[tuple[int, int]]:
    """The ranges that have ended, as a machine's disk has them."""
    inode = group.node(name).disk.names.files[PATH]
    return ended(inode.read(inode.size, 0))


def ended(document: bytes) -> list[tuple[int, int]]:
    return [(start, end) for start, end, *_ in json.loads(document)["closed"]]


def keep_versions(group: Group, name: str) -> list[list[tuple[int, int]]]:
    """Every version of them that is put in place from now on."""
    disk, versions = group.node(name).disk, list[list[tuple[int, int]]]()
    before = disk.watch

    def watch(operation: Operation) -> None:
        before(operation)
        if operation.target == PATH and operation.inode is not None:
            versions.append(ended(operation.inode.read(operation.inode.size, 0)))

    disk.watch = watch
    return versions


def identity_of(group: Group, name: str, queue_offset: int) -> OutcomeHandle:
    """The producer's identity of a message, from a machine's disk: clients are not shown it."""
    files = group.node(name).disk.names.files
    log = parse_log({path: inode.read(inode.size, 0) for path, inode in files.items() if path.startswith("commitlog/")})
    [raw] = [record.properties for record in log.records if record.queue_offset == queue_offset]
    properties = dict(pair.split("\x01") for pair in raw.decode().split("\x02") if pair)
    return OutcomeHandle("a", properties["PID"], int(properties["SEQ"]), "orders", 0)


async def promote(group: Group, mq: AsyncClient) -> None:
    await group.kill("a0")
    await mq.admin.change_role("a/1", old_master_is_stopped=True)


def test_a_promoted_slave_says_since_when_its_group_is_degraded_and_how_much_ever_was() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        async with mq.producer(on_weak="return") as orders:
            await degrade(group, mq, orders)
            before = await mq.admin.ha_status("a/0")
            following = await mq.admin.ha_status("a1:10911")
            assert before.degraded
            assert (following.degraded, following.degraded_since_ms) == (True, before.degraded_since_ms)
            assert following.degraded_bytes == before.degraded_bytes > 0

            await promote(group, mq)
            while (await orders.publish("orders", b"on one", queue=0)).status is not PutStatus.SLAVE_NOT_AVAILABLE:
                pass
            leading = await mq.admin.ha_status("a1:10911")
            assert (leading.degraded, leading.degraded_since_ms) == (True, before.degraded_since_ms)
            assert leading.degraded_bytes > before.degraded_bytes

        for name in ("a0", "a2"):
            group.node(name).start()
        await group.in_sync(mq, "a/1")
        whole = await mq.admin.ha_status("a1:10911")
        assert not whole.degraded
        assert whole.degraded_bytes >= leading.degraded_bytes
        await asyncio.sleep(10)
        for name in ("a0", "a2"):
            following = await mq.admin.ha_status(f"{name}:10911")
            assert (following.degraded, following.degraded_bytes) == (False, whole.degraded_bytes)

    play(story, ALL_THREE)


def test_the_masters_log_says_once_when_the_group_degrades_and_once_when_it_has_copies_enough_again() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await degrade_for_a_while(group, mq)
        began, ended = [line for line in group.world.transcript.lines if "group_degraded" in line or "group_no_longer_degraded" in line]
        assert "group_degraded node=a/0" in began
        assert "copies_in_sync=2" in began
        assert "group_no_longer_degraded messages=3 node=a/0" in ended
        assert "copies_in_sync=3" in ended

    play(story, ALL_THREE)


def test_a_slave_that_was_away_learns_of_the_range_when_it_is_back_and_so_knows_it_as_master() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await degrade_for_a_while(group, mq)
        before = await mq.admin.ha_status("a/0")
        assert not before.degraded

        await mq.admin.change_role("a/2")
        await group.in_sync(mq, "a/2")

        assert (await mq.admin.ha_status("a2:10911")).degraded_bytes == before.degraded_bytes > 0

    play(story, ALL_THREE)


def test_a_master_that_lost_its_disk_learns_the_ranges_from_whom_it_takes_the_log() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await degrade_for_a_while(group, mq)
        [known] = written_down(group, "a1")

        group.node("a0").crash(Power.LOSS)
        await group.world.buried()
        group.node("a0").lose_disk()
        kept = keep_versions(group, "a0")
        group.node("a0").start()
        await group.in_sync(mq)

        assert kept[0] == [known]
        assert written_down(group, "a0")[0] == known, "what was confirmed on enough copies stays so"

    play(story, ALL_THREE)


def test_a_receipt_that_is_asked_for_again_from_the_promoted_one_names_the_copies_that_there_are() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        async with mq.producer(on_weak="return") as orders:
            weak = await degrade(group, mq, orders)
            assert {copy.node for copy in weak.copies} == {"a/0", "a/1"}
            handle = identity_of(group, "a0", weak.queue_offset)
            await promote(group, mq)
            while (await orders.publish("orders", b"on one", queue=0)).status is not PutStatus.SLAVE_NOT_AVAILABLE:
                pass

            again = await orders.resolve(handle)
            assert (again.queue_offset, again.duplicate, again.status) == (weak.queue_offset, True, PutStatus.SLAVE_NOT_AVAILABLE)
            assert [(copy.node, copy.state) for copy in again.copies] == [("a/1", CopyState.FLUSHED)]

            for name in ("a0", "a2"):
                group.node(name).start()
            await group.in_sync(mq, "a/1")
            whole = await orders.resolve(handle)
            assert (whole.status, {copy.node for copy in whole.copies}) == (PutStatus.PUT_OK, {"a/0", "a/1", "a/2"})

    play(story, ALL_THREE)


def test_what_is_confirmed_by_fewer_copies_while_a_master_hands_over_is_known_to_its_successor() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(on_weak="return") as orders:
            await group.kill("a2")
            await orders.publish("orders", b"waits for three in vain", queue=0)
            publishing = asyncio.create_task(orders.publish("orders", b"on two", queue=0))
            await asyncio.sleep(1)

            await mq.admin.change_role("a/1")

            assert (await publishing).epoch == 1
        group.node("a2").start()
        await group.in_sync(mq, "a/1")
        leading, following = await mq.admin.ha_status("a1:10911"), await mq.admin.ha_status("a0:10911")
        assert leading.degraded_bytes == following.degraded_bytes > 0

    play(story, ALL_THREE)


@pytest.mark.parametrize(
    ("flush_mode", "release_level", "told"),
    [
        (FlushMode.SYNC_FLUSH, ReleaseLevel.FLUSHED, "flushed"),
        (FlushMode.SYNC_FLUSH, ReleaseLevel.RECEIVED, "received"),
        (FlushMode.ASYNC_FLUSH, ReleaseLevel.FLUSHED, "received"),
    ],
)
def test_a_master_tells_whether_each_copy_that_counts_has_flushed(flush_mode: FlushMode, release_level: ReleaseLevel, told: str) -> None:
    async def story(_: Group, mq: AsyncClient) -> None:
        assert (await mq.admin.ha_status("a/0")).release_level == told

    table = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, flush_mode=flush_mode, release_level=release_level)
    play(story, Shape(1, table, FlushMode.SYNC_FLUSH))


def test_a_slave_that_is_away_when_its_master_starts_again_is_not_called_in_sync_though_it_counts_for_a_while() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        async with mq.producer(on_weak="return") as orders:
            await mq.admin.create_topic("orders", 1)
            await orders.publish("orders", b"on three", queue=0)
            await asyncio.sleep(40.0)  # the nameserver has heard all that live
            for name in ("a2", "a0"):
                await group.kill(name)
            group.node("a0").start()
            await asyncio.sleep(3.0)
            await orders.publish("orders", b"on two", queue=0)

            status = await mq.admin.ha_status("a/0")

        assert (status.writable, status.in_sync_now) == (True, 2)

    play(story, replace(ALL_THREE, replication=replace(ALL_THREE.replication, in_sync_replicas=2)))


def test_what_rots_on_a_master_before_a_slave_has_got_it_is_no_whole_copy_and_recorded_as_degraded() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(ack=Ack.MASTER_FLUSHED) as orders:
            before = await orders.publish("orders", b"before", queue=0)
            await asyncio.sleep(1)
            await group.kill("a1")
            rots = await orders.publish("orders", b"rots", queue=0)
            after = await orders.publish("orders", b"after", queue=0)
        await group.kill("a0")
        group.node("a0").start()  # what it has for slaves it reads from its disk now
        await until(leads(mq, "a0:10911"))
        flip(group, "a0", rots.physical_offset + 100)

        group.node("a1").start()
        await group.in_sync(mq)
        await asyncio.sleep(5)

        status = await mq.admin.ha_status("a0:10911")
        assert status.confirmed >= after.physical_offset + after.record_bytes
        [(start, end)] = written_down(group, "a0")
        assert before.physical_offset < start <= rots.physical_offset
        assert rots.physical_offset + rots.record_bytes <= end
        assert written_down(group, "a1") == [(start, end)]

    play(story)


def test_a_receipt_that_is_asked_for_again_does_not_name_a_slave_that_knows_that_the_message_rotted_on_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(on_weak="return") as orders:
            rots = await orders.publish("orders", b"rots", queue=0)
            whole = await orders.publish("orders", b"whole", queue=0)
            handles = [identity_of(group, "a0", each.queue_offset) for each in (rots, whole)]
            await asyncio.sleep(5)
            await group.kill("a0")
            flip(group, "a1", rots.physical_offset + 100)
            with pytest.raises(DittoError):
                await mq.reader("orders", queue=0, node="a/1").pull(0)
            await asyncio.sleep(60)  # nobody gives it these bytes, and it asks more and more seldom

            group.node("a0").start()
            await group.in_sync(mq)
            first, second = [await orders.resolve(handle) for handle in handles]
            assert [copy.node for copy in first.copies] == ["a/0"]
            assert first.status is PutStatus.SLAVE_NOT_AVAILABLE
            assert [copy.node for copy in second.copies] == ["a/0", "a/1"]

    play(story)


def test_a_receipt_does_not_name_a_master_that_found_the_message_rotten_while_its_producer_waited_for_a_slave() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(on_weak="return") as orders, asyncio.TaskGroup() as tasks:
            before = await orders.publish("orders", b"before", queue=0)
            await group.kill("a1")
            waiting = tasks.create_task(orders.publish("orders", b"rots", queue=0))
            await asyncio.sleep(1)
            flip(group, "a0", before.physical_offset + before.record_bytes + 100)
            assert len((await mq.admin.repair("a/0")).ranges) == 1
            assert not waiting.done()

            rots = await waiting
            assert rots.physical_offset == before.physical_offset + before.record_bytes
            assert (rots.status, rots.copies) == (PutStatus.FLUSH_SLAVE_TIMEOUT, ())

    play(story)


def test_what_a_master_finds_to_have_rotted_before_it_is_confirmed_is_recorded_as_degraded() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(ack=Ack.MASTER_FLUSHED) as orders:
            await orders.publish("orders", b"before", queue=0)
            await asyncio.sleep(1)
            await group.kill("a1")
            rots = await orders.publish("orders", b"rots", queue=0)
        flip(group, "a0", rots.physical_offset + 100)
        [found] = (await mq.admin.repair("a/0")).ranges
        assert found.start == rots.physical_offset

        group.node("a1").start()  # the master's memory gives it what its disk does not
        await group.in_sync(mq)
        await asyncio.sleep(5)

        assert (await mq.admin.ha_status("a0:10911")).confirmed >= rots.physical_offset + rots.record_bytes
        [(start, end)] = written_down(group, "a0")
        assert start <= rots.physical_offset
        assert rots.physical_offset + rots.record_bytes <= end

    play(story)


def test_a_master_that_has_too_few_copies_for_a_write_says_how_many_and_of_which_setting() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        for name in ("a1", "a2"):
            await group.kill(name)
        await asyncio.sleep(20.0)
        status = await mq.admin.ha_status("a/0")
        async with mq.producer(retry_s=0.5) as orders:
            with pytest.raises(NotStored) as refused:
                await orders.publish("orders", b"refused", queue=0)

        assert not status.writable
        assert status.waiting_for == status.why_not_writable == str(refused.value.cause)
        assert "has 1 copy in sync and min_in_sync_replicas demands 2" in status.waiting_for

    play(story, replace(ALL_THREE, replication=replace(ALL_THREE.replication, in_sync_replicas=2, min_in_sync_replicas=2)))
