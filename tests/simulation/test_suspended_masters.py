"""A producer whose master stands still: it never says that another node leads."""

from dataclasses import replace

from dittomq.broker.config import FailoverMode, FailoverTable
from dittomq.client import AsyncClient
from tests.simulation.group import SYNC, Group, play

ELECTS = replace(SYNC, slaves=2, failover=FailoverTable(mode=FailoverMode.AUTOMATIC))
ELECTED_S = 3.0  # `failover.peer_timeout_ms`


def test_a_producer_leaves_a_suspended_master_as_soon_as_another_one_leads() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(retry_s=30.0) as orders:
            await orders.publish("orders", b"before")
            group.node("a0").freeze()
            began = group.now
            receipt = await orders.publish("orders", b"after")

        assert receipt.epoch == 2
        assert group.now - began < ELECTED_S + 1.5

    play(story, replace(ELECTS, replication=replace(ELECTS.replication, replicas_expected=2)))
