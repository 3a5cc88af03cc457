"""For whom the log stays when another node comes to lead: who was away before needs from it what it needed from the old master."""

import asyncio
from dataclasses import replace

from dittomq.broker.config import RetentionTable
from dittomq.client import Ack, AsyncClient
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

SEGMENT = 65_536
OLD_S = 40.0


def shape(slaves: int, slot_bytes: int = 64 * SEGMENT) -> Shape:
    """Every node keeps 20 s of its log."""
    table = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=slaves, max_slot_bytes=slot_bytes)
    retention = RetentionTable(max_age_ms=20_000, check_period_ms=1_000)
    return replace(Shape(slaves, table, FlushMode.SYNC_FLUSH), segment_bytes=SEGMENT, retention=retention)


async def publish(mq: AsyncClient, segments: int) -> None:
    async with mq.producer(Ack.MASTER_FLUSHED, retry_s=60.0, on_weak="return") as producer:
        for _ in range(segments * 8):
            await producer.publish("orders", bytes(8_000), queue=0)


async def begin(mq: AsyncClient) -> None:
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    await publish(mq, 2)


async def begins_at(mq: AsyncClient, machine: str) -> int:
    return (await mq.admin.ha_status(f"{machine}:10911")).min_offset


async def wanted_by(mq: AsyncClient, machine: str) -> int:
    """Where the segment begins in which that node's flushed end lies."""
    return (await mq.admin.ha_status(f"{machine}:10911")).flushed // SEGMENT * SEGMENT


def full_resync_ended(group: Group) -> list[str]:
    return [line for line in group.world.transcript.lines if "full_resync_began" in line]


@played_by(play, shape(2))
async def test_every_node_keeps_the_log_for_an_absent_slave_and_no_longer(group: Group, mq: AsyncClient) -> None:
    """Whoever is the master by then."""
    await begin(mq)
    wanted = await wanted_by(mq, "a2")
    assert wanted > 0
    await group.kill("a2")
    await publish(mq, 4)
    await asyncio.sleep(OLD_S)
    assert [await begins_at(mq, name) for name in ("a0", "a1")] == [wanted, wanted]

    await group.switch_over("a/1")
    await publish(mq, 4)
    await asyncio.sleep(OLD_S)
    assert [await begins_at(mq, name) for name in ("a0", "a1")] == [wanted, wanted]

    group.node("a2").start()
    await group.in_sync(mq, "a/1")
    await asyncio.sleep(OLD_S)
    assert full_resync_ended(group) == []
    assert min([await begins_at(mq, name) for name in ("a0", "a1", "a2")]) > wanted


@played_by(play, shape(2, slot_bytes=4 * SEGMENT))
async def test_a_slave_keeps_its_log_for_another_one_up_to_the_bound_and_no_further(group: Group, mq: AsyncClient) -> None:
    await begin(mq)
    await group.kill("a2")
    await publish(mq, 8)
    await asyncio.sleep(OLD_S)

    assert [await begins_at(mq, name) > 4 * SEGMENT for name in ("a0", "a1")] == [True, True]
