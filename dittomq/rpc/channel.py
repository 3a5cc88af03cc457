"""The calling side: one channel per address, every call with a deadline, every failure a typed error."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import grpc
import grpc.aio

from dittomq.doors.transport import ChannelOptions, Transport
from dittomq.errors import DittoError, StorageFailure, Unavailable
from dittomq.routes import Node
from dittomq.rpc import status
from dittomq.rpc.headed_channel import headed
from dittomq.rpc.headers import GroupTarget, check_answerer, meant_for
from dittomq.rpc.limits import KEEPALIVE_OPTIONS, SIZE_OPTIONS

T = TypeVar("T")
S = TypeVar("S")

CHANNEL_OPTIONS: ChannelOptions = (
    *SIZE_OPTIONS,
    *KEEPALIVE_OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),  # so long a peer may take to answer a connection; one that is refused is tried again before
    ("grpc.max_reconnect_backoff_ms", 2_000),  # a restarted peer is found within 2 s
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),  # also under a new address: a restarted pod has another one; gRPC waits 30 s
    ("grpc.use_local_subchannel_pool", 1),  # a closed channel takes its connection with it
    ("grpc.enable_retries", 0),  # gRPC's own: of 60,000 calls to a server that stops again and again, some three are never answered
)

_YOUNG_S: Final = 1.0  # a channel that was made within it may not have been used yet

CLIENT_LEFT: Final = "its client was left"


class Channels:
    """Cached channels of one process or client; closes them all at the end."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._by_address: dict[str, grpc.aio.Channel] = {}
        self._made_at: dict[str, float] = {}  # by the loop's time
        self._certificates_version = transport.certificates_version
        self._stubs: dict[str, dict[Any, Any]] = {}  # address → stub class → stub
        self._needed: Counter[grpc.aio.Channel] = Counter()  # how many calls on it must have their answers
        self._to_close: set[grpc.aio.Channel] = set()  # behind those calls
        self.closed = False

    def to(self, address: str) -> grpc.aio.Channel:
        """The channel to "host:port"; connects when first used. Raises Unavailable once all are closed."""
        if self.closed:
            raise Unavailable(address, CLIENT_LEFT)
        if self._certificates_version != self._transport.certificates_version:
            self._certificates_version = self._transport.certificates_version
            self._by_address.clear()  # calls that run on a channel go on and then it is closed; new ones show the new certificate
            self._stubs.clear()
        channel = self._by_address.get(address)
        if channel is not None and self._has_lapsed(channel, address):
            self._stubs.pop(address, None)
            channel = None
        if channel is None:
            channel = headed(self._transport.channel(address, CHANNEL_OPTIONS), self._transport, address)
            self._by_address[address], self._made_at[address] = channel, asyncio.get_running_loop().time()
        return channel

    def stub(self, kind: Callable[[grpc.aio.Channel], S], address: str) -> S:
        """A generated stub on the channel to `address`, made once. Raises Unavailable once all are closed."""
        channel = self.to(address)
        stubs = self._stubs.setdefault(address, {})
        if kind not in stubs:
            stubs[kind] = kind(channel)
        found: S = stubs[kind]
        return found

    def backs_off(self, address: str) -> bool:
        """Whether connecting failed and is not tried again yet: an impatient call fails, though its peer may be back."""
        channel = self._by_address.get(address)
        return channel is not None and channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    def _has_lapsed(self, channel: grpc.aio.Channel, address: str) -> bool:
        """Whether its connection has ended and nobody has asked for another one: a new channel looks the name up.

        This one would dial where its peer was. The address of a pod that was deleted refuses nothing: that takes two seconds.
        """
        is_idle = channel.get_state() is grpc.ChannelConnectivity.IDLE
        return is_idle and asyncio.get_running_loop().time() - self._made_at[address] > _YOUNG_S

    @asynccontextmanager
    async def keeping(self, address: str) -> AsyncIterator[None]:
        """In here the channel to an address is not closed by `forget`, but behind it: the answer to a call on it must not be lost."""
        channel = self.to(address)
        self._needed[channel] += 1
        try:
            yield
        finally:
            self._needed[channel] -= 1
            if not self._needed[channel]:
                del self._needed[channel]
                await self._close(channel)

    async def forget(self, address: str) -> None:
        """Close the channel to an address that is no longer wanted; calls on it fail, but for those that `keeping` is for."""
        self._stubs.pop(address, None)
        self._made_at.pop(address, None)
        channel = self._by_address.pop(address, None)
        if channel is not None:
            self._to_close.add(channel)
            if not self._needed[channel]:
                await self._close(channel)

    async def close(self) -> None:
        """Close all channels; calls on them fail, and no new one is opened."""
        self.closed = True
        for address in list(self._by_address):
            await self.forget(address)
        for channel in list(self._to_close):
            await self._close(channel)

    async def _close(self, channel: grpc.aio.Channel) -> None:
        if channel in self._to_close:
            self._to_close.remove(channel)
            await channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close()


async def call(  # a call has these parts
    method: Callable[..., Awaitable[T]],
    request: object,
    *,
    who: str,
    deadline_s: float,
    patient: bool = False,
    node: Node | GroupTarget | None = None,
) -> T:
    """One unary call through a stub's method: the response, or a typed DittoError, within `deadline_s`.

    Without a connection it fails at once. When it is `patient` it waits for one; it is sent once, or not at all.
    Nobody but `node`, or one of that group, obeys it; what another one says, an error too, is no answer: Unavailable.
    """
    with breaking(who, node):
        metadata = meant_for(node) if node is not None else None
        answer: Any = method(request, timeout=deadline_s, metadata=metadata, wait_for_ready=patient or None)
        response: T = await answer
        if node is not None:
            check_answerer(await answer.initial_metadata(), node, who)
        return response


def breaking(who: str, node: Node | GroupTarget | None = None) -> AbstractContextManager[None]:
    """What breaks a call or a stream to `who` comes out as a typed error, also when somebody closes the channel that it is on.

    gRPC tells that as a cancellation, which a task group takes for the wish of whoever runs the task, and says nothing.
    May be entered again and again.
    """
    return _Breaking(who, node)


def peers_disk(who: str) -> AbstractContextManager[None]:
    """For a node that asks `who`: what that one's disk has failed in comes out as Unavailable, for StorageFailure ends whose disk it is.

    May be entered again and again.
    """
    return _PeersDisk(who)


class _Breaking:
    __slots__ = ("_node", "_who")

    def __init__(self, who: str, node: Node | GroupTarget | None) -> None:
        self._who = who
        self._node = node

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(raised, grpc.aio.AioRpcError):
            if self._node is not None:
                check_answerer(raised.initial_metadata(), self._node, self._who)
            raise status.decode(raised, self._who) from raised
        if isinstance(raised, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and not task.cancelling():
                raise Unavailable(self._who, "its connection was given up meanwhile") from None


class _PeersDisk:
    __slots__ = ("_who",)

    def __init__(self, who: str) -> None:
        self._who = who

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(raised, StorageFailure):
            raise Unavailable(self._who, str(raised)) from raised


def typed(error: grpc.aio.AioRpcError, who: str) -> DittoError:
    """The typed error behind a stream that broke."""
    return status.decode(error, who)
