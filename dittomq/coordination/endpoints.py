"""Connections to the servers of one coordination store: used in turn, and known to be open before anything is sent."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from dittomq.coordination.credentials import TlsFiles
from dittomq.doors.clock import Clock
from dittomq.doors.transport import ChannelOptions, Transport
from dittomq.errors import Unavailable
from dittomq.rpc import status
from dittomq.rpc.channel import CHANNEL_OPTIONS
from dittomq.rpc.headed_channel import headed

DEADLINE_S: Final = 3.0
"""Of each call, with the connection that it needs."""

_CONNECT_S: Final = 1.5  # to all endpoints together; the rest is for the call
_OPTIONS: ChannelOptions = (
    *(option for option in CHANNEL_OPTIONS if option[0] != "grpc.keepalive_permit_without_calls"),
    ("grpc.keepalive_permit_without_calls", 0),  # etcd ends a connection that is pinged while it carries no call
)
_NO_METHOD: Final = "/dittomq.NoService/Why"
_READY: Final = grpc.ChannelConnectivity.READY
_BROKEN: Final = (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN)

S = TypeVar("S")


class EndpointConnection:
    """An open connection to one endpoint, for one call that ends at a deadline."""

    def __init__(self, address: str, channel: grpc.aio.Channel, clock: Clock, ends_at: float) -> None:
        self.address = address
        self._channel = channel
        self._clock = clock
        self._ends_at = ends_at

    @property
    def left_s(self) -> float:
        """Seconds until the deadline; above 0."""
        return max(0.001, self._ends_at - self._clock.monotonic())

    def stub(self, kind: Callable[[grpc.aio.Channel], S]) -> S:
        """A generated stub on it."""
        return kind(self._channel)


class Endpoints:
    """Servers that are the same store. The one that was used last is used again until it fails."""

    def __init__(self, what: str, addresses: Sequence[str], transport: Transport, clock: Clock, *, tls: TlsFiles | None = None) -> None:
        """`what` is what operators call the store, without its addresses.

        Without `tls` they are nodes of ours: encrypted as this node is, and told who calls. Others never are.
        """
        self.name = f"{what} {','.join(addresses)}"
        self._what = what
        self._transport = transport
        self._clock = clock
        self._tls = tls
        self._addresses = list(addresses)  # the first is used next
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._is_closed = False

    def where(self, line: EndpointConnection) -> str:
        """What operators call the endpoint."""
        return f"{self._what} {line.address}"

    async def connected(self) -> EndpointConnection:
        """An open connection to one of them, within 1.5 s. Nothing was sent yet. Raises Unavailable, ConfigError."""
        ends_at = self._clock.monotonic() + DEADLINE_S
        problems: list[str] = []
        addresses = list(self._addresses)
        for address in addresses:
            try:
                async with asyncio.timeout(_CONNECT_S / len(addresses)):
                    return EndpointConnection(address, self._headed(address, await self._ready(address)), self._clock, ends_at)
            except TimeoutError:
                problems.append(f"{address} took too long to connect")
            except Unavailable as error:
                problems.append(f"{address}: {error.problem}" if len(addresses) > 1 else error.problem)
            await self.failed(address)
        raise Unavailable(self.name, "; ".join(problems) or "there is no endpoint")

    def _headed(self, address: str, channel: grpc.aio.Channel) -> grpc.aio.Channel:
        return headed(channel, self._transport, address) if self._tls is None else channel

    async def failed(self, address: str) -> None:
        """That endpoint did not do what it should: close its connection, which other calls may be on, and use the others first."""
        if address in self._addresses:
            self._addresses.remove(address)
            self._addresses.append(address)
        if (channel := self._channels.pop(address, None)) is not None:
            await channel.close()

    async def close(self) -> None:
        """Close all connections; no new one is made."""
        self._is_closed = True
        for address in list(self._channels):
            await self.failed(address)

    async def _ready(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            credentials = None if self._tls is None else await self._tls.credentials()
            if self._is_closed:
                raise Unavailable(self.name, "this node has closed its connections to it")
            channel = self._channels.get(address) or self._transport.channel(address, _OPTIONS, credentials)
            self._channels[address] = channel
        while (state := channel.get_state(try_to_connect=True)) is not _READY:
            if state in _BROKEN:
                await self._check(address, channel)
                return channel
            try:
                await channel.wait_for_state_change(state)
            except grpc.aio.UsageError as closed:  # another call has found that the endpoint does not answer
                raise Unavailable(address, "its connection was closed") from closed
        return channel

    async def _check(self, address: str, channel: grpc.aio.Channel) -> None:
        """Raise Unavailable with the reason, which gRPC tells only to a call; this one does nothing where it arrives after all."""
        ask: Callable[..., Any] = channel.unary_unary(_NO_METHOD)
        try:
            await ask(b"", timeout=_CONNECT_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise status.decode(error, address) from error
        except grpc.aio.UsageError as closed:  # as above
            raise Unavailable(address, "its connection was closed") from closed
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise Unavailable(address, "the connection was closed") from None
