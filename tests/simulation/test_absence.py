"""When "it is not in the log" is an answer that can be relied upon."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from dittomq.client import AsyncClient, Message, NotStored, OutcomeUnknown, Producer
from dittomq.lineage import newest_epoch
from dittomq.replication.slave_events import AdoptLineage
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from services.slave.copy_log import CopyLog
from tests.simulation.bugs.patches import Patches
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.simulation.world import Power

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)


async def send_what_only_the_slave_keeps(group: Group, orders: Producer, slave: str = "a1") -> OutcomeUnknown:
    """The slave has it written when its master loses power, in the middle of the sync."""
    master = group.node("a0")
    master.faults.slowness = 100_000.0
    sending = asyncio.create_task(orders.publish_message(Message("orders", b"lost?", 0)))
    await asyncio.sleep(0.5)
    group.world.network.cut("a0", slave)
    master.crash(Power.KILL)
    await group.world.buried()
    master.disk.lose_power(all_unsynced=True)
    master.faults.slowness = 1.0
    with pytest.raises(OutcomeUnknown) as unknown:
        await sending
    return unknown.value


def test_a_master_that_leads_alone_does_not_vouch_for_what_it_lacks_until_its_slave_has_joined() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=1.0, retry_s=2.0) as orders:
            await orders.publish("orders", b"before", queue=0)
            unknown = await send_what_only_the_slave_keeps(group, orders)
            group.node("a0").start()
            await asyncio.sleep(45)  # the nameserver has not been up for long: it cannot deny at once that another node leads

            assert (await mq.admin.ha_status("a0:10911")).writable
            with pytest.raises(OutcomeUnknown, match="1 of 2 copies have joined"):
                await orders.resolve(unknown.handle)

            group.world.network.heal("a0", "a1")
            await group.in_sync(mq)
            await asyncio.sleep(5)
            with pytest.raises(NotStored):
                await orders.resolve(unknown.handle)

    play(story)


def test_what_a_master_that_led_alone_lacked_is_found_on_the_slave_when_its_disk_is_lost() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer(timeout_s=1.0, retry_s=2.0) as orders:
            await orders.publish("orders", b"before", queue=0)
            unknown = await send_what_only_the_slave_keeps(group, orders)
            group.node("a0").start()
            await asyncio.sleep(12)
            with contextlib.suppress(OutcomeUnknown):
                await orders.resolve(unknown.handle)

            await group.replace_disk("a0")
            group.world.network.heal("a0", "a1")
            await group.in_sync(mq)

            assert (await orders.resolve(unknown.handle)).duplicate

    play(story)


async def lose_what_only_the_second_slave_keeps(group: Group, orders: Producer) -> OutcomeUnknown:
    """As above; the first slave was cut off before, and the second one is now."""
    group.world.network.cut("a0", "a1")
    unknown = await send_what_only_the_slave_keeps(group, orders, "a2")
    group.world.network.heal("a0", "a1")
    return unknown


async def until_logged(group: Group, words: str) -> None:
    while not any(words in line for line in group.world.transcript.lines):  # noqa: ASYNC110  # nodes tell nobody
        await asyncio.sleep(0.0001)


@pytest.fixture
def may_join() -> Iterator[asyncio.Event]:
    """No slave writes the lineage of epoch 2 down before this is set."""
    event, patches = asyncio.Event(), Patches()

    def waiting(honest: Any) -> Any:
        async def put(log: CopyLog, write: Any) -> None:
            if isinstance(write, AdoptLineage) and newest_epoch(write.lineage) == 2:
                await event.wait()
            await honest(log, write)

        return put

    patches.put(CopyLog, "put", waiting)
    yield event
    patches.undo()


def test_a_slave_that_has_not_written_its_masters_lineage_down_does_not_vouch_for_what_that_one_lacks(may_join: asyncio.Event) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        await asyncio.sleep(45)  # the nameserver can deny at once that another node leads
        async with mq.producer(timeout_s=1.0, retry_s=2.0) as orders:
            await orders.publish("orders", b"before", queue=0)
            unknown = await lose_what_only_the_second_slave_keeps(group, orders)
            group.node("a0").start()
            await until_logged(group, "epoch_opened node=a/0 epoch=2")
            await asyncio.sleep(3.0)
            with pytest.raises(OutcomeUnknown, match="1 of 2 copies have joined"):
                await orders.resolve(unknown.handle)

            group.node("a1").crash(Power.LOSS)
            await group.world.buried()
            may_join.set()
            await group.replace_disk("a0")
            group.world.network.heal("a0", "a2")
            group.node("a1").start()
            await group.in_sync(mq)

            assert (await orders.resolve(unknown.handle)).duplicate

    play(story, TWO_SLAVES)


def test_a_start_that_stood_still_while_it_waited_for_slaves_waits_on_and_takes_the_tail_of_one_that_comes_then() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        await asyncio.sleep(60.0)  # so that nameservers know who else leads
        async with mq.producer(timeout_s=1.0, retry_s=2.0) as orders:
            await orders.publish("orders", b"before", queue=0)
            await send_what_only_the_slave_keeps(group, orders)
        held = (await mq.admin.ha_status("a1:10911")).end
        master = group.node("a0")
        master.start()
        await asyncio.sleep(1.0)
        master.freeze()
        await asyncio.sleep(10.0)
        master.thaw()
        await asyncio.sleep(0.5)
        group.world.network.heal("a0", "a1")
        await group.in_sync(mq)
        assert (await mq.admin.ha_status("a0:10911")).end >= held

    play(story)
