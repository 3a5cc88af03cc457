"""A handshake whose digests take long to read, on either side: whoever reads is not taken for one that is gone."""

import asyncio
import contextlib

import pytest

from dittomq.broker.config import FailoverTable
from dittomq.client import Ack, AsyncClient
from dittomq.errors import DittoError
from dittomq.ha_status import NodeView
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

TABLE = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, in_sync_replicas=2, verify_bytes_per_s=2**30)
SHAPE = Shape(1, TABLE, FlushMode.SYNC_FLUSH, segment_bytes=16_384)
READING_S = 3 * FailoverTable().peer_timeout_ms / 1_000


async def publish(mq: AsyncClient, count: int) -> int:
    """Returns the end of the master's log."""
    async with mq.producer(Ack.MASTER_FLUSHED) as producer:
        for _ in range(count):
            await producer.publish("orders", bytes(750), queue=0)
    return (await mq.admin.ha_status("a/0")).end


async def all_is_copied(mq: AsyncClient) -> None:
    """Wait until the slave has flushed all there is."""
    while True:
        status = await mq.admin.ha_status("a/0")
        if [each.flushed for each in status.nodes if each.node == "a/1"] == [status.end]:
            return
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("reader", ["a0", "a1"])
@played_by(play, SHAPE)
async def test_slave_connects_at_once_though_digests_outlast_the_silence_limit(group: Group, mq: AsyncClient, /, reader: str) -> None:
    """One side reads them for longer than the other bears silence."""
    await mq.admin.create_topic("orders", queues=1)
    size = await publish(mq, 150)
    await all_is_copied(mq)
    await group.node("a1").stop()
    group.node("a1").disk.names.files.pop("dittomq/verified-equal", None)
    await publish(mq, 1)

    group.node(reader).faults.read_bytes_per_s = size / READING_S
    group.node("a1").start()
    began = group.now
    await all_is_copied(mq)

    assert READING_S <= group.now - began < 1.5 * READING_S


@pytest.mark.parametrize("comes_back", ["a0", "a1"])
@played_by(play, SHAPE)
async def test_slave_is_out_of_sync_while_its_handshake_is_compared(group: Group, mq: AsyncClient, /, comes_back: str) -> None:
    """It was in sync before."""
    await mq.admin.create_topic("orders", queues=1)
    size = await publish(mq, 150)
    await all_is_copied(mq)
    for name in ("a1", "a0") if comes_back == "a0" else ("a1",):
        await group.node(name).stop()
    group.node("a1").disk.names.files.pop("dittomq/verified-equal", None)
    group.node("a0").faults.read_bytes_per_s = size / READING_S
    for name in ("a0", "a1") if comes_back == "a0" else ("a1",):
        group.node(name).start()
    began = group.now
    seen: list[NodeView] = []
    while not seen or seen[-1].state != "in sync":
        with contextlib.suppress(DittoError):
            seen += [view for view in (await mq.admin.ha_status("a0:10911")).nodes if view.node == "a/1"]
        await asyncio.sleep(0.1)

    assert group.now - began >= READING_S
    assert ("waiting", None) in {(view.state, view.received) for view in seen}
