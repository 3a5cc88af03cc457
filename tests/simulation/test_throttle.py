"""A rate limit in a whole group: copies take their time, and nothing else waits for them."""

import asyncio
from itertools import pairwise

from dittomq.broker.config import FailoverTable
from dittomq.client import Ack, AsyncClient, PutStatus
from dittomq.ha_status import NodeView
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

LIMIT = 100_000
CHUNK = 65_536  # a segment of these stores
BODY = bytes(8_000)


def shape(slaves: int, **limits: int) -> Shape:
    table = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=slaves, in_sync_replicas=2, **limits)  # type: ignore[arg-type]
    return Shape(slaves, table, FlushMode.SYNC_FLUSH)


async def publish(mq: AsyncClient, count: int) -> None:
    async with mq.producer(Ack.MASTER_FLUSHED) as producer:
        for _ in range(count):
            await producer.publish("orders", BODY, queue=0)


async def view(mq: AsyncClient, node: str) -> NodeView:
    return next(view for view in (await mq.admin.ha_status("a/0")).nodes if view.node == node)


async def equal(mq: AsyncClient) -> None:
    """Wait until every slave has flushed all there is."""
    while True:
        status = await mq.admin.ha_status("a/0")
        if all(view.flushed == status.end for view in status.nodes):
            return
        await asyncio.sleep(0.2)


async def copying(group: Group, mq: AsyncClient, node: str) -> list[tuple[float, NodeView]]:
    """Give a slave an empty disk; what the master says of it, five times a second from its handshake until it is in sync."""
    held = (await view(mq, node)).received
    await group.replace_disk(f"{node[0]}{node[2:]}")
    while (await view(mq, node)).received == held:  # noqa: ASYNC110  # over the wire
        await asyncio.sleep(0.1)
    seen = [(group.now, await view(mq, node))]
    while seen[-1][1].state != "in sync":
        await asyncio.sleep(0.2)
        seen.append((group.now, await view(mq, node)))
    return seen


@played_by(play, shape(1, max_bytes_per_s_per_slave=LIMIT))
async def test_a_copy_of_the_whole_log_keeps_the_limit_in_every_second_and_uses_it(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    await publish(mq, 120)
    await equal(mq)
    size = (await mq.admin.ha_status("a/0")).end
    seen = await copying(group, mq, "a/1")

    held = [(at, each.received or 0) for at, each in seen]
    most = max(late - early for at, early in held for then, late in held if 0 <= then - at <= 1.0)
    assert most <= LIMIT + 2 * CHUNK, "a chunk that left before the second may arrive in it"
    took = held[-1][0] - held[0][0]
    assert size / LIMIT - 1 <= took <= size / LIMIT + 5
    rates = [rate for _, each in seen[25:-5] for rate in (each.transfer_bytes_per_s, each.received_bytes_per_s)]
    assert all(0.5 * LIMIT <= rate <= 1.5 * LIMIT for rate in rates)
    proven = [each.verified_offset or 0 for _, each in seen]
    assert any(proven), "heartbeats go on while it copies"
    assert [early for early, late in pairwise(proven) if late < early] == []
    [own] = (await mq.admin.ha_status("a1:10911")).nodes
    assert own.applied_lag_s is not None


@played_by(play, shape(1))
async def test_slave_on_a_slow_line_is_heard_while_it_resyncs(group: Group, mq: AsyncClient) -> None:
    """The line takes longer for the window than the slave may be silent."""
    await mq.admin.create_topic("orders", 1)
    await publish(mq, 400)
    await equal(mq)
    group.world.network.link("a0", "a1").slowness = 1_000.0  # a chunk a second, and a window that holds all chunks
    seen = await copying(group, mq, "a/1")

    took, dropped = seen[-1][0] - seen[0][0], [line for line in group.world.transcript.lines if "slave_dropped" in line]
    assert took > 2 * FailoverTable().peer_timeout_ms / 1000, "the line is not slow enough to tell anything"
    assert [line for line in dropped if "silent" in line] == []
    heard = [at for (at, each), (_, before) in zip(seen[1:], seen, strict=False) if each.received != before.received]
    assert max(late - early for early, late in pairwise(heard)) < 8.0


@played_by(play, shape(2, max_bytes_per_s_per_slave=LIMIT))
async def test_producers_do_not_wait_for_a_slave_that_copies_at_its_own_limit(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    await publish(mq, 60)
    await equal(mq)
    copies = asyncio.create_task(copying(group, mq, "a/2"))
    slowest = 0.0
    async with mq.producer(Ack.REPLICA_FLUSHED) as producer:
        while not copies.done():
            began = group.now
            assert (await producer.publish("orders", b"small", queue=0)).status is PutStatus.PUT_OK
            slowest = max(slowest, group.now - began)
            await asyncio.sleep(0.3)

    assert len(await copies) > 20
    assert slowest < 0.2
