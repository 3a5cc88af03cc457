"""Nodes of a group that are away are named, also by a master that has never heard them."""

import asyncio

from dittomq.client import AsyncClient
from dittomq.ha_status import HaStatus
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape

TWO_SLAVES = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2), FlushMode.SYNC_FLUSH)
HOUR_MS = 3_600_000
HANGS = 100_000.0
ALONE = Shape(1, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1), FlushMode.SYNC_FLUSH)


async def publish(mq: AsyncClient) -> None:
    """The store of a group that holds nothing tells no start whose it is."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)


def states(status: HaStatus) -> dict[str, str]:
    return {view.node: view.state for view in status.nodes}


def test_the_old_master_that_a_promoted_one_took_the_place_of_is_named_while_it_is_away() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await group.kill("a0")
        await mq.admin.change_role("a/1", old_master_is_stopped=True)
        await asyncio.sleep(20)

        assert states(await mq.admin.ha_status("a1:10911")) == {"a/1": "leading", "a/0": "unknown", "a/2": "in sync"}
        group.node("a0").start()
        await group.in_sync(mq, "a/1")
        assert states(await mq.admin.ha_status("a1:10911")) == {"a/1": "leading", "a/0": "in sync", "a/2": "in sync"}

    play(story, TWO_SLAVES)


def test_a_slave_that_was_away_before_its_master_started_is_named() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await publish(mq)
        await asyncio.sleep(15)  # its master writes down for whom it keeps its log
        await group.kill("a2")
        await asyncio.sleep(30)  # it is in sync no more
        await group.node("a0").stop()
        group.node("a0").start()
        await asyncio.sleep(20)

        status = await mq.admin.ha_status("a0:10911")
        assert status.writable, status.waiting_for
        assert states(status) == {"a/0": "leading", "a/1": "in sync", "a/2": "unknown"}
        assert (status.nodes[2].received, status.nodes[2].received_lag_bytes, status.nodes[2].since_ms) == (None, None, None)

    play(story, TWO_SLAVES)


def test_a_slave_that_was_in_sync_before_its_master_started_is_named_with_the_reason_why_it_counts_no_more() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await publish(mq)
        await asyncio.sleep(5)  # who is in sync is written down
        await group.kill("a1")
        await group.kill("a0")
        group.node("a0").start()
        await asyncio.sleep(60)

        status = await mq.admin.ha_status("a0:10911")
        assert status.writable, status.waiting_for
        [_, away] = status.nodes
        assert (away.node, away.state) == ("a/1", "unknown")
        assert away.last_drop_reason.startswith("not heard for")

    play(story, ALONE)


def test_a_master_that_recovers_names_the_slaves_that_were_in_sync() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await asyncio.sleep(5)  # who is in sync is written down
        for name in ("a1", "a0", "ns"):
            await group.kill(name)
        group.node("ns").start()
        group.node("a0").start()
        await asyncio.sleep(5)

        assert states(await mq.admin.ha_status("a0:10911")) == {"a/0": "recovering", "a/1": "unknown"}

    play(story, ALONE)


def test_why_a_slave_left_is_told_also_when_it_has_not_been_caught_up_for_long() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await publish(mq)
        await group.node("a1").stop()
        await asyncio.sleep(1)
        left = (await mq.admin.ha_status("a/0")).nodes[1]
        await asyncio.sleep(30)
        later = (await mq.admin.ha_status("a/0")).nodes[1]

        assert left.last_drop_reason == "it left, or its connection broke"
        assert (later.last_drop_reason, later.last_drop_ms) == (left.last_drop_reason, left.last_drop_ms)

    play(story, ALONE)


def test_why_a_slave_left_the_set_in_sync_is_told_also_when_the_masters_clock_was_set_back_before() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await publish(mq)
        await group.node("a1").stop()
        group.node("a1").start()
        await group.in_sync(mq)
        group.node("a0").clock.jump(-HOUR_MS)
        group.node("a1").faults.slowness = HANGS
        async with mq.producer(on_weak="return") as producer:
            for _ in range(4):
                await producer.publish("orders", b"late", queue=0)
        late = (await mq.admin.ha_status("a/0")).nodes[1]
        group.node("a1").faults.slowness = 1.0

        assert late.state == "catching up"
        assert "deadline" in late.last_drop_reason

    play(story, ALONE)
