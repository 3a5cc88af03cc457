"""A node is told of an epoch that another one is about to open: what it keeps of that, whatever happens to it meanwhile."""

import asyncio

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.offsets import Epoch
from dittomq.replication.promotion import KnownBefore
from dittomq.routes import Opening
from dittomq.rpc.channel import Channels
from dittomq.rpc.replicas import RemoteReplicas
from tests.simulation.group import Group, play
from tests.simulation.test_promotions import TWO_SLAVES


async def announce(group: Group, machine: str, opening: Opening) -> KnownBefore | DittoError:
    """Tell that machine, as the opener would, from a machine of its own: what it answers."""
    answered: asyncio.Future[KnownBefore | DittoError] = asyncio.get_running_loop().create_future()

    async def tell(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            try:
                answered.set_result(await RemoteReplicas(channels, "dittomq", "a").announce(f"{machine}:10912", opening))
            except DittoError as problem:
                answered.set_result(problem)

    group.world.node(f"teller {len(group.world.nodes)}", tell).start()
    return await answered


def test_a_slave_whose_disk_fails_while_it_notes_an_epoch_ends() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        group.node("a2").faults.failing_syncs = 1

        answer = await announce(group, "a2", Opening(Epoch(7), 1))

        assert isinstance(answer, DittoError)
        assert not group.node("a2").faults.failing_syncs
        await asyncio.sleep(1.0)
        assert not group.node("a2").running

    play(story, TWO_SLAVES)
