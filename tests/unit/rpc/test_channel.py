"""Which channel a caller gets to an address."""

import asyncio
from typing import cast

import grpc

from dittomq.doors.transport import ChannelOptions, GrpcTransport
from dittomq.rpc.channel import Channels
from tests.support.metadata_node import run
from tests.support.virtual_time import under

ADDRESS = "dittomq-a-0.dittomq-a:10911"


class Line:
    """A channel in a state that the test names."""

    state = grpc.ChannelConnectivity.IDLE
    is_closed = False

    def get_state(self) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self) -> None:
        self.is_closed = True


class Lines(GrpcTransport):
    """A network of these."""

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        return cast("grpc.aio.Channel", Line())


@under(run)
async def test_channel_without_a_connection_is_made_again_but_not_at_once() -> None:
    channels = Channels(Lines())
    first = cast("Line", channels.to(ADDRESS))
    first.state = grpc.ChannelConnectivity.READY
    await asyncio.sleep(60)
    assert channels.to(ADDRESS) is cast("grpc.aio.Channel", first)

    first.state = grpc.ChannelConnectivity.IDLE
    second = channels.to(ADDRESS)

    assert second is not cast("grpc.aio.Channel", first)
    assert channels.to(ADDRESS) is second
    await asyncio.sleep(60)
    assert channels.to(ADDRESS) is not second


@under(run)
async def test_a_forgotten_channel_is_closed_behind_the_last_answer_that_is_needed() -> None:
    """A slave forgets the way to a master that is useless, and may be asking that one for its promise."""
    channels = Channels(Lines())
    line = cast("Line", channels.to(ADDRESS))
    async with channels.keeping(ADDRESS):
        async with channels.keeping(ADDRESS):
            await channels.forget(ADDRESS)
            second = channels.to(ADDRESS)
            assert second is not cast("grpc.aio.Channel", line)
        assert not line.is_closed

    assert line.is_closed
    assert channels.to(ADDRESS) is second
    await channels.forget(ADDRESS)
    assert cast("Line", second).is_closed


@under(run)
async def test_all_channels_are_closed_at_the_end_whoever_needs_them() -> None:
    channels = Channels(Lines())
    line = cast("Line", channels.to(ADDRESS))
    async with channels.keeping(ADDRESS):
        await channels.forget(ADDRESS)
        second = cast("Line", channels.to(ADDRESS))
        async with channels.keeping(ADDRESS):
            await channels.close()

            assert (line.is_closed, second.is_closed) == (True, True)
