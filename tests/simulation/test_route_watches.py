"""A watch of routes over the wire: who watches hears of a failover when the nameserver does, without asking."""

import asyncio
from typing import Any

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.client import AsyncClient
from dittomq.rpc.channel import breaking
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by


@played_by(play)
async def test_watch_tells_a_failover_as_soon_as_the_nameserver_knows_it(group: Group, mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    address = group.shape.nameservers[0]
    stub: Any = mq.admin._around.channels.stub(NameServerServiceStub, address)  # noqa: SLF001
    stream = stub.WatchRoutes(pb.WatchRoutesRequest(topics=["orders"]))

    async def leader() -> str:
        with breaking(address):
            told = await stream.read()
        return next((f"{node.broker}/{node.configured_id}" for node in told.route.nodes if node.broker_id == 0 and _leads(node)), "")

    assert await leader() == "a/0"
    await asyncio.sleep(3)  # the slave has the topic too
    await group.kill("a0")
    await group.fail_over("a/1")
    async with asyncio.timeout(5):
        while await leader() != "a/1":
            pass
    stream.cancel()


def _leads(node: pb.Node) -> bool:
    return node.role != pb.BROKER_ROLE_SLAVE
