"""Which service a node is: as configured, until a role change decided otherwise."""

import asyncio

from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import BrokerService, Grant, save_grant
from dittomq.client import AsyncClient, PutStatus
from dittomq.offsets import Epoch
from tests.simulation.group import Group, play
from tests.simulation.world import Node


async def decide(node: Node, grant: Grant) -> None:
    """Write a role change down on the disk of a machine that stands still."""
    serve = node.serve

    async def write(doors: BrokerDoors, _: asyncio.Event) -> None:
        doors.storage.make_folder("dittomq")
        save_grant(doors.storage, grant)

    node.serve = write
    node.start()
    await node.ended()
    node.serve = serve


async def change_places(group: Group) -> None:
    for name in ("a1", "a0"):
        await group.node(name).stop()
    await decide(group.node("a0"), Grant(BrokerService.SLAVE, 1, Epoch(9), "a/1"))
    await decide(group.node("a1"), Grant(BrokerService.MASTER, 0, Epoch(9), "a/0"))


def test_nodes_obey_a_role_change_over_their_configuration_and_keep_every_message() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        async with mq.producer() as producer:
            await producer.publish("orders", b"before", queue=0)
        await change_places(group)

        for name in ("a0", "a1"):
            group.node(name).start()
        await group.in_sync(mq)

        assert (await mq.admin.ha_status("a1:10911")).node == "a/1"
        assert (await mq.admin.ha_status("a1:10911")).writable
        assert not (await mq.admin.ha_status("a0:10911")).writable
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"after", queue=0)).status is PutStatus.PUT_OK
        page = await mq.reader("orders", queue=0).pull(0)
        assert [message.body for message in page.messages] == [b"before", b"after"]

    play(story)
