"""A master that is stopped, or loses power, before its recovery has ended: it has not become whole by that."""

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from dittomq.broker.config import RetentionTable
from dittomq.client import Ack, AsyncClient, Message
from dittomq.errors import OutOfReach
from dittomq.routes import Role
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import SYNC, Group, play
from tests.simulation.shapes import Shape
from tests.simulation.world import Power

ONE_COPY = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, in_sync_replicas=1, min_in_sync_replicas=1)
LATE_FLUSH = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, flush_mode=FlushMode.ASYNC_FLUSH)
THREE_SLAVES = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=3)
RECOVER_WAIT_S = THREE_SLAVES.recover_wait_ms / 1_000
LONG_S = 60.0  # much longer than recover_wait_ms
NAMESERVER_SETTLES_S = 40.0
HANGS = 1_000_000.0  # 100 s and more for every frame
COUNT = 40
NOTE = "dittomq/filling"


async def stop_cleanly(group: Group) -> None:
    await group.node("a0").stop()


async def lose_power(group: Group) -> None:
    group.node("a0").crash(Power.LOSS)
    await group.world.buried()


async def kill(group: Group) -> None:
    await group.kill("a0")


async def store_messages(mq: AsyncClient) -> None:
    """Confirmed on both copies."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer(Ack.REPLICA_FLUSHED, on_weak="return") as producer:
        for number in range(COUNT):
            await producer.publish("orders", b"%d:" % number + bytes(20_000), queue=0)
    await asyncio.sleep(11)  # the slave hears what is confirmed


async def holds_a_part(mq: AsyncClient) -> None:
    while True:
        with contextlib.suppress(OutOfReach):
            if (await mq.admin.ha_status("a0:10911")).end > 0:
                return
        await asyncio.sleep(0.1)


async def waits_for_a_slave(group: Group, mq: AsyncClient, seconds: float) -> None:
    """The master leads at no moment of that time."""
    until = group.now + seconds
    while group.now < until:
        with contextlib.suppress(OutOfReach):
            assert not (await mq.admin.ha_status("a0:10911")).writable
        await asyncio.sleep(0.5)


async def all_is_there(group: Group, mq: AsyncClient) -> None:
    await group.in_sync(mq)
    await asyncio.sleep(11)
    for node in ("a/0", "a/1"):
        found = [message.body.split(b":")[0] async for message in mq.reader("orders", queue=0, node=node).messages(until_end=True)]
        assert found == [b"%d" % number for number in range(COUNT)]


@pytest.mark.parametrize("end", [stop_cleanly, kill, lose_power])
def test_an_empty_master_that_holds_a_part_of_its_slaves_log_leads_only_when_it_has_all(end: Callable[[Group], Awaitable[None]]) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        group.world.network.link("a1", "a0").slowness = 300.0
        await group.replace_disk("a0")
        await holds_a_part(mq)
        await end(group)
        group.world.network.cut("a0", "a1")
        group.node("a0").start()

        await waits_for_a_slave(group, mq, LONG_S)
        group.world.network.heal("a0", "a1")

        await all_is_there(group, mq)

    play(story, Shape(1, ONE_COPY, FlushMode.SYNC_FLUSH))


@pytest.mark.parametrize("end", [stop_cleanly, kill, lose_power])
def test_a_master_whose_disk_may_lack_what_is_confirmed_does_not_lead_because_it_was_stopped_meanwhile(
    end: Callable[[Group], Awaitable[None]],
) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        group.world.network.cut("a0", "a1")
        await lose_power(group)
        group.node("a0").start()
        await waits_for_a_slave(group, mq, 10.0)
        await end(group)
        group.node("a0").start()

        await waits_for_a_slave(group, mq, LONG_S)
        group.world.network.heal("a0", "a1")

        await all_is_there(group, mq)

    play(story, Shape(1, LATE_FLUSH, FlushMode.SYNC_FLUSH))


def test_a_copy_that_breaks_off_goes_on_where_it_stopped() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        group.world.network.link("a1", "a0").slowness = 300.0
        await group.replace_disk("a0")
        await holds_a_part(mq)
        group.world.network.cut("a0", "a1")
        await asyncio.sleep(5.0)
        group.world.network.heal("a0", "a1")

        await all_is_there(group, mq)

        begun = [line for line in group.world.transcript.lines if "tail_taken_over" in line]
        assert ["start=0 " in line for line in begun] == [True, False]

    play(story, Shape(1, ONE_COPY, FlushMode.SYNC_FLUSH))


def test_a_copy_goes_on_when_the_slave_could_not_read_its_log_for_a_moment() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await group.replace_disk("a0")
        lives = group.node("a0").lives
        while not any("tail_taken_over" in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
            await asyncio.sleep(0.0001)
        group.node("a1").faults.failing_reads = 1

        await all_is_there(group, mq)

        assert any("take_over_broke_off" in line and "cannot read" in line for line in group.world.transcript.lines)
        assert group.node("a0").lives == lives

    play(story, Shape(1, ONE_COPY, FlushMode.SYNC_FLUSH))


def test_a_slave_whose_log_begins_later_since_its_hello_says_so_before_its_tail_is_asked_for_again() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        messages = [Message("orders", bytes(4_000), queue=0)] * 16
        async with mq.producer(Ack.REPLICA_FLUSHED, on_weak="return") as producer:
            await producer.publish_many(messages[:6])
            await asyncio.sleep(1.0)
            old = copy.deepcopy(group.node("a0").disk)
            await group.kill("a2")
            await producer.publish_many(messages)
        await asyncio.sleep(6.0)  # slaves hear what is confirmed
        await lose_power(group)
        old.lose_power()
        group.node("a0").disk = old
        group.node("a0").start()
        await asyncio.sleep(LONG_S)  # one slave waits for the other, which it takes both to tell what was confirmed
        group.node("a2").start()
        async with asyncio.timeout(LONG_S):
            while "empty the data_dir of a/0" not in (await mq.admin.ha_status("a0:10911")).waiting_for:  # noqa: ASYNC110  # nodes tell nobody
                await asyncio.sleep(0.1)

        broken = [line for line in group.world.transcript.lines if "take_over_broke_off" in line]
        assert len(broken) == 1, broken

    late = replace(LATE_FLUSH, replicas_expected=2, hold_max_bytes=32_768)
    dropping = RetentionTable(max_age_ms=12_000, check_period_ms=1_000)
    play(story, replace(Shape(2, late, FlushMode.ASYNC_FLUSH), segment_bytes=16_384, retention=dropping))


def test_slaves_that_hang_keep_a_master_whose_table_is_damaged_from_leading_for_ten_seconds_together_and_no_longer() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("bills", 1)
        await store_messages(mq)
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        for machine in ("a2", "a0"):
            await group.kill(machine)
        assert group.node("a0").disk.names.files["config/topics.json"].flip(0, 1)
        group.node("a0").start()
        started = group.now
        await asyncio.sleep(RECOVER_WAIT_S - 1.0)
        assert (await mq.admin.ha_status("a0:10911")).waiting_for.startswith("slaves with a newer table")

        for slave in ("a1", "a3"):
            group.world.network.link(slave, "a0").slowness = HANGS
        announced = 1.0  # so long it waits for them to answer that they know of its epoch
        await waits_for_a_slave(group, mq, started + RECOVER_WAIT_S + announced + 9.5 - group.now)
        await asyncio.sleep(1.0)

        assert (await mq.admin.ha_status("a0:10911")).writable
        assert sum("tables_not_taken" in line and "silent for 10 s" in line for line in group.world.transcript.lines) == 2

    play(story, Shape(3, THREE_SLAVES, FlushMode.SYNC_FLUSH))


def test_the_log_says_anew_why_a_master_waits_when_the_reason_changes_and_not_for_each_second_that_passes() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        def reasons() -> list[str]:
            return [line.split("waiting_for=")[1] for line in group.world.transcript.lines if "recovery_waits" in line]

        await store_messages(mq)
        await asyncio.sleep(NAMESERVER_SETTLES_S)
        await group.kill("a3")
        await lose_power(group)
        group.node("a0").start()
        await waits_for_a_slave(group, mq, RECOVER_WAIT_S - 0.5)
        assert sum("slaves with a longer tail" in reason for reason in reasons()) == 1

        await group.kill("a2")
        await group.replace_disk("a1")
        await group.replace_disk("a0")
        await waits_for_a_slave(group, mq, NAMESERVER_SETTLES_S)
        assert reasons()[-1].startswith("2 more of 3 slaves: this store is empty; the group is new only when")
        group.node("a2").start()
        await waits_for_a_slave(group, mq, 5.0)
        assert reasons()[-1].startswith("2 more of 3 slaves: this store is empty and a slave has data; a/1 may lack what it acknowledged")

    play(story, Shape(3, THREE_SLAVES, FlushMode.SYNC_FLUSH))


def test_a_master_that_became_a_slave_while_it_held_a_part_of_another_log_is_no_witness_until_it_has_all() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        group.world.network.link("a1", "a0").slowness = 300.0
        await group.replace_disk("a0")
        await holds_a_part(mq)
        await group.kill("a0")
        await mq.admin.change_role("a/1", old_master_is_stopped=True)
        group.world.network.cut("a0", "a1")  # so that it stays as it is
        group.node("a0").start()
        await asyncio.sleep(NAMESERVER_SETTLES_S)  # it has heard of the other's epoch
        assert (await mq.admin.ha_status("a0:10911")).role == Role.SLAVE
        await group.kill("a0")
        group.node("a0").start()
        await asyncio.sleep(5.0)

        assert NOTE in group.node("a0").disk.names.files
        group.world.network.heal("a0", "a1")
        group.world.network.link("a1", "a0").slowness = 1.0
        await group.in_sync(mq, "a/1")
        await asyncio.sleep(11)
        assert NOTE not in group.node("a0").disk.names.files

    play(story, SYNC)


def test_a_slave_that_is_told_to_wait_says_so_and_since_when_and_what_its_master_waits_for() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await store_messages(mq)
        await group.kill("a2")
        await group.replace_disk("a0")
        await asyncio.sleep(LONG_S)
        master, slave = await mq.admin.ha_status("a0:10911"), await mq.admin.ha_status("a1:10911")
        await asyncio.sleep(LONG_S)
        later = await mq.admin.ha_status("a1:10911")

        assert "1 more of 2 slaves" in master.waiting_for
        assert slave.nodes[0].state == later.nodes[0].state == "waiting"
        assert slave.nodes[0].since_ms == later.nodes[0].since_ms
        assert master.waiting_for in slave.waiting_for
        group.node("a2").start()
        await group.in_sync(mq)
        assert (await mq.admin.ha_status("a1:10911")).nodes[0].state == "following"

    play(story, Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH))
