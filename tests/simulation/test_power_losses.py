"""A group that loses power everywhere, and may lose what it had not synced with it."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from dittomq.broker.config import FailoverTable
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from services.master.config import FlushMode
from tests.simulation.group import SYNC, Group, play
from tests.simulation.world import Power

ALL_CAME_S = 5.0  # every store answers, and none as the replica that it was
SILENCE_S = 3.0  # `failover.peer_timeout_ms`


@pytest.mark.parametrize("seed", range(3))
def test_a_group_of_strangers_has_a_master_after_one_round_of_candidates(seed: int) -> None:
    """Each needs the promise of both others; each also dials the master that the record names, and finds a slave there."""

    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer() as orders:
            await orders.publish("orders", b"before")
        for name in group.cluster.brokers:
            group.node(name).crash(Power.LOSS)
        await group.world.buried()
        for name in group.cluster.brokers:
            group.node(name).start()

        await asyncio.sleep(SILENCE_S + ALL_CAME_S + 1.0)

        assert await _has_master(mq, group)

    table = replace(SYNC.replication, flush_mode=FlushMode.ASYNC_FLUSH, in_sync_replicas=1, replicas_expected=2)
    shape = replace(SYNC, slaves=2, replication=table, slave_flush=FlushMode.ASYNC_FLUSH, failover=FailoverTable())
    play(story, shape, seed)


async def _has_master(mq: AsyncClient, group: Group) -> bool:
    for name in group.cluster.brokers:
        with contextlib.suppress(DittoError):
            if (await mq.admin.ha_status(f"{name}:10911")).writable:
                return True
    return False
