"""A replication stream that is opened and then says nothing."""

import asyncio

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import SessionExpired
from dittomq.rpc.channel import Channels
from services.slave.connection import ReplicationConnection
from tests.simulation.group import Group, play
from tests.support.virtual_time import played_by


@played_by(play)
async def test_a_stream_without_a_handshake_is_ended_by_name_and_disturbs_nobody(group: Group, mq: AsyncClient) -> None:
    ended: asyncio.Future[SessionExpired] = asyncio.get_running_loop().create_future()

    async def mute(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            with pytest.raises(SessionExpired) as failure:
                await ReplicationConnection(channels, "a0:10912").read()
            ended.set_result(failure.value)

    group.world.node("mute", mute).start()
    async with asyncio.timeout(30):
        problem = await ended

    assert "no handshake came for 10 s" in str(problem)
    assert (await mq.admin.ha_status("a/0")).in_sync_now == 2
