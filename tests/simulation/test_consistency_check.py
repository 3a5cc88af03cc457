"""A slave whose old bytes were never compared with its master's: it streams at once, and they are compared beside the stream."""

import asyncio
import math
from dataclasses import replace

import pytest
from zlib_ng.zlib_ng import crc32

from dittomq.client import AsyncClient
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, sealed_crc
from dittomq.errors import DittoError
from dittomq.ha_status import NodeView
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.parser import parse_log
from tests.simulation.shapes import Shape
from tests.simulation.world import Power
from tests.support.virtual_time import played_by

SEGMENT = 16_384
STEP = 4_096
SHAPE = Shape(
    1,
    ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, in_sync_replicas=2, verify_bytes_per_s=STEP),
    FlushMode.SYNC_FLUSH,
    SEGMENT,
)
OFTEN = replace(SHAPE.replication, heartbeat_ms=1_000)
WIDE = replace(SHAPE, replication=ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1), segment_bytes=64 * 2**20)
MESSAGES = 150
LARGE = 24
KEPT = "dittomq/verified-equal"


def body(number: int) -> bytes:
    return b"%05d" % number * 150


def large(number: int) -> bytes:
    return b"%05d" % number * 200_000


async def publish(mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", queues=1)
    async with mq.producer() as producer:
        for number in range(MESSAGES):
            await producer.publish("orders", body(number), queue=0)


async def goes_away(group: Group) -> None:
    """The slave stops; what it knew of an equal copy is gone, as when another one leads."""
    await group.node("a1").stop()
    group.node("a1").disk.names.files.pop(KEPT, None)


def rewrite(group: Group, told: bytes, segment: int = SEGMENT) -> int:
    """Durably put another message into the place of one, of the same length and with checksums that hold; returns where it begins."""
    disk = group.node("a1").disk
    found = next(each for each in parse_log(group.cluster.files("a1")).records if each.body == told)
    base = found.physical_offset - found.physical_offset % segment
    inode = disk.names.files[f"commitlog/{base:020d}"]
    record = inode.read(found.size, found.physical_offset - base)
    other = told[::-1]
    changed = record.replace(told, other)
    changed = changed[:8] + (crc32(other) & CRC_MASK).to_bytes(4, "big") + changed[12:-CRC_BYTES]
    inode.write(memoryview(changed + sealed_crc(crc32(changed))), found.physical_offset - base, disk.chance)
    inode.sync()
    return found.physical_offset


async def view(mq: AsyncClient) -> NodeView | None:
    """The slave as its master sees it."""
    try:
        seen = await mq.admin.ha_status("a/0")
    except DittoError:
        return None
    return next((each for each in seen.nodes if each.node == "a/1"), None)


async def is_in_sync(mq: AsyncClient) -> float:
    """Wait until the slave is; how far it is verified then."""
    while (seen := await view(mq)) is None or seen.state != "in sync":  # noqa: ASYNC110  # over the wire
        await asyncio.sleep(0.1)
    return seen.verified_offset or 0


async def is_verified(mq: AsyncClient, end: int) -> None:
    """Wait until the slave is verified up to there."""
    while (seen := await view(mq)) is None or (seen.verified_offset or 0) < end:  # noqa: ASYNC110  # over the wire
        await asyncio.sleep(0.1)


async def is_found_to_differ(mq: AsyncClient) -> int:
    """Wait until the master has dropped the slave for it; the most that was called proven before."""
    most = 0
    while (seen := await view(mq)) is None or "differ by content" not in seen.last_drop_reason:  # over the wire
        most = max(most, (seen.verified_offset or 0) if seen is not None and seen.state == "in sync" else 0)
        await asyncio.sleep(0.02)
    return most


def copies_are_equal(group: Group) -> None:
    logs = [parse_log(group.cluster.files(machine)).content for machine in ("a0", "a1")]
    assert logs[0] == logs[1]


@played_by(play, SHAPE)
async def test_old_bytes_hold_no_stream_back_and_are_all_verified_in_steps_beside_it(group: Group, mq: AsyncClient) -> None:
    await publish(mq)
    end = (await mq.admin.ha_status("a/0")).end
    assert end > 5 * SEGMENT
    await goes_away(group)

    group.node("a1").start()
    began = group.now
    assert await is_in_sync(mq) < STEP
    assert group.now - began < 5
    await is_verified(mq, end)

    steps = -(-end // STEP)
    assert steps * 0.9 <= group.now - began <= steps + 20, "one a second"


@played_by(play, replace(SHAPE, replication=OFTEN))
async def test_slave_with_a_slow_disk_is_verified_up_to_the_end(group: Group, mq: AsyncClient) -> None:
    """A step takes longer to read than a heartbeat."""
    await publish(mq)
    end = (await mq.admin.ha_status("a/0")).end
    await goes_away(group)

    step_s = 1.5 * OFTEN.heartbeat_ms / 1_000
    group.node("a1").faults.read_bytes_per_s = STEP / step_s
    group.node("a1").start()
    began = group.now
    await is_verified(mq, end)

    assert group.now - began <= 2 * step_s * -(-end // STEP)


@pytest.mark.parametrize("number", [2, 75])
@played_by(play, SHAPE)
async def test_difference_in_old_bytes_is_found_beside_the_stream_and_truncated(group: Group, mq: AsyncClient, /, number: int) -> None:
    """Lengths and checksums are right."""
    await publish(mq)
    end = (await mq.admin.ha_status("a/0")).end
    await goes_away(group)
    differs = rewrite(group, body(number))

    group.node("a1").start()
    await is_in_sync(mq)
    assert await is_found_to_differ(mq) <= differs

    await is_verified(mq, end)
    copies_are_equal(group)


@played_by(play, SHAPE)
async def test_difference_is_found_when_the_slave_is_killed_before_its_handshake(group: Group, mq: AsyncClient) -> None:
    await publish(mq)
    end = (await mq.admin.ha_status("a/0")).end
    await goes_away(group)
    rewrite(group, body(60))

    group.node("a1").start()
    await is_found_to_differ(mq)
    group.node("a1").crash(Power.KILL)
    await group.world.buried()
    group.node("a1").start()

    await is_verified(mq, end)
    copies_are_equal(group)


@pytest.mark.parametrize("reader", ["a0", "a1"])
@played_by(play, WIDE)
async def test_difference_is_found_when_reading_outlasts_the_session_timeout(group: Group, mq: AsyncClient, /, reader: str) -> None:
    """The disk reads the range for longer than the other side bears silence."""
    await mq.admin.create_topic("orders", queues=1)
    async with mq.producer() as producer:
        for number in range(LARGE):
            await producer.publish("orders", large(number), queue=0)
    await goes_away(group)
    rewrite(group, large(LARGE - 3), WIDE.segment_bytes)

    group.node(reader).faults.read_bytes_per_s = LARGE * len(large(0)) / (1.6 * WIDE.failover.peer_timeout_ms / 1_000)
    group.node("a1").start()
    async with asyncio.timeout(300):
        while not [line for line in group.world.transcript.lines if "log_truncated node=a/1" in line]:  # noqa: ASYNC110  # logs tell nobody
            await asyncio.sleep(1.0)
    group.node(reader).faults.read_bytes_per_s = math.inf
    await is_verified(mq, (await mq.admin.ha_status("a/0")).end)

    copies_are_equal(group)
    assert not [line for line in group.world.transcript.lines if "silent for" in line]


@played_by(play, replace(SHAPE, slaves=2, replication=replace(SHAPE.replication, replicas_expected=2)))
async def test_slave_does_not_count_comparisons_with_an_old_master(group: Group, mq: AsyncClient) -> None:
    await publish(mq)
    end = (await mq.admin.ha_status("a/0")).end
    while (await mq.admin.ha_status("a/2")).nodes[0].verified_offset != end:  # noqa: ASYNC110  # nodes tell nobody
        await asyncio.sleep(1.0)

    await group.switch_over("a/1")
    await group.in_sync(mq, "a/1")

    [of_master] = [each.verified_offset for each in (await mq.admin.ha_status("a/1")).nodes if each.node == "a/2"]
    [of_slave] = [each.verified_offset for each in (await mq.admin.ha_status("a/2")).nodes]
    assert (of_slave or 0) <= (of_master or 0) + STEP < end


@played_by(play, SHAPE)
async def test_master_forgets_what_it_verified_as_a_slave(group: Group, mq: AsyncClient) -> None:
    await publish(mq)
    await is_verified(mq, (await mq.admin.ha_status("a/0")).end)
    await asyncio.sleep(2)
    assert KEPT in group.node("a1").disk.names.files

    await group.switch_over("a/1")
    await group.in_sync(mq, "a/1")

    assert KEPT not in group.node("a1").disk.names.files, "its log may be cut and taken over from another one now"
