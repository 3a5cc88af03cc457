"""A slave's stream over real gRPC."""

import asyncio
import socket

from dittomq.doors.transport import GrpcTransport
from dittomq.errors import Unavailable
from dittomq.rpc.channel import Channels
from services.slave.connection import ReplicationConnection


def test_reader_is_told_when_the_channel_closes_before_it_connects() -> None:
    """Who writes to it waits for ever: a slave listens before its handshake is out."""

    async def story(address: str) -> None:
        async with Channels(GrpcTransport()) as channels:
            heard = asyncio.ensure_future(ReplicationConnection(channels, address).read())
            await asyncio.sleep(0)
            await channels.forget(address)

            assert [type(outcome) for outcome in await asyncio.gather(heard, return_exceptions=True)] == [Unavailable]

    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        asyncio.run(story(f"127.0.0.1:{mute.getsockname()[1]}"))
