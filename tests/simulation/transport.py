"""The transport door: channels of one process, and the door itself."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import grpc
import grpc.aio

from dittomq.doors.transport import ChannelOptions
from tests.simulation.calls import ClientCall, Method, StreamStream, StreamUnary, UnaryStream, UnaryUnary, UnavailableCall, Wire
from tests.simulation.network import ConnectFailed, Network, Socket
from tests.simulation.servers import Incident, SimulatedServer
from tests.simulation.simulated_process import Life
from tests.simulation.streams import Data, Frame, size_of

_BACKOFF_GROWTH = 1.6
_BACKOFF_JITTER = 0.2


class _Connection:
    """A channel's connection: numbers the calls and dispatches what arrives."""

    def __init__(self, channel: "SimulatedChannel", socket: Socket) -> None:
        self._channel = channel
        self._socket = socket
        self._calls: dict[int, ClientCall] = {}
        self._numbers = 0
        socket.receive = self._arrived
        socket.broken = self._broken

    def begin(self, call: ClientCall) -> int:
        self._numbers += 1
        self._calls[self._numbers] = call
        return self._numbers

    def send(self, number: int, frame: Frame) -> None:
        self._socket.send((number, frame), size_of(frame))

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def close(self) -> None:
        self._socket.close("the channel was closed")

    def _arrived(self, payload: object) -> None:
        assert isinstance(payload, tuple)
        number, frame = payload
        call = self._calls.get(number)
        if call is not None:
            if isinstance(frame, Data):
                self._channel.network.transcript.trace(self._socket.label, frame.content)
            call.arrived(frame)

    def _broken(self, why: str) -> None:
        self._channel.lost(self)
        for call in list(self._calls.values()):
            call.broke(why)


class SimulatedChannel:
    """A channel to one address: connects when first used, and backs off as gRPC does.

    While it backs off, calls fail at once with what went wrong last, unless they wait for a connection; one that breaks is
    dialled again by the next call.
    """

    def __init__(self, network: Network, life: Life, address: str, options: ChannelOptions) -> None:
        self.loop = network.loop
        self.life = life
        self.network = network
        self._address = address
        given = dict(options)
        self._first_backoff_s = int(given.get("grpc.initial_reconnect_backoff_ms", 1_000)) / 1_000
        self._max_backoff_s = int(given.get("grpc.max_reconnect_backoff_ms", 120_000)) / 1_000
        self._connection: _Connection | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._problem: str | None = None
        self._ready: asyncio.Event = asyncio.Event()
        self._connected: asyncio.Event = asyncio.Event()
        self._calls: dict[ClientCall, None] = {}
        self._closed = False

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # grpc.aio's signature
    ) -> Callable[..., UnaryUnary]:
        return self._callable(UnaryUnary, Method(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # grpc.aio's signature
    ) -> Callable[..., UnaryStream]:
        return self._callable(UnaryStream, Method(method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # grpc.aio's signature
    ) -> Callable[..., StreamUnary]:
        return self._callable(StreamUnary, Method(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,  # grpc.aio's signature
    ) -> Callable[..., StreamStream]:
        return self._callable(StreamStream, Method(method, request_serializer, response_deserializer))

    async def close(self, grace: float | None = None) -> None:
        self.life.check()
        self._closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        if grace:
            raise NotImplementedError("a channel's grace is not simulated")
        for call in list(self._calls):
            call.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # grpc.aio's signature
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        if self._connection is not None:
            return grpc.ChannelConnectivity.READY
        if self._dialling is None and not try_to_connect:
            return grpc.ChannelConnectivity.IDLE
        if self._dialling is None:
            self._begin_to_dial()
        return grpc.ChannelConnectivity.CONNECTING if self._problem is None else grpc.ChannelConnectivity.TRANSIENT_FAILURE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:  # grpc.aio's signature
        if last_observed_state is not grpc.ChannelConnectivity.CONNECTING:
            raise NotImplementedError(f"waiting for the end of {last_observed_state} is not simulated")
        await self._ready.wait()

    # For its calls.

    async def wire_for(self, call: ClientCall) -> tuple[Wire, int]:
        """A connection and the call's number on it; raises Unavailable."""
        self.life.check()
        while self._connection is None:
            if self._closed:
                raise UnavailableCall("the channel is closed")
            if self._dialling is None:
                self._begin_to_dial()
            elif self._problem is not None and not call.waits_for_ready:
                raise UnavailableCall(self._problem)
            await (self._connected if call.waits_for_ready else self._ready).wait()
        return self._connection, self._connection.begin(call)

    def ended(self, call: ClientCall) -> None:
        """The call is over."""
        self._calls.pop(call, None)

    def lost(self, connection: _Connection) -> None:
        """The connection broke."""
        if self._connection is connection:
            self._connection = None

    def _begin_to_dial(self) -> None:
        self._problem = None
        self._ready.clear()
        self._connected.clear()
        self._dialling = self.loop.create_task(self._dial())

    async def _dial(self) -> None:
        """Connect, and try again until it works; the first failure already fails the calls that wait."""
        backoff_s = self._first_backoff_s
        while self._connection is None:
            until = self.loop.time() + backoff_s * (1 + _BACKOFF_JITTER * (2 * self.network.chance.random() - 1))
            try:
                self._connection = _Connection(self, await self.network.connect(self.life.name, self._address))
            except ConnectFailed as problem:
                self._problem = f"failed to connect to {self._address}: {problem}"
                self._ready.set()
                await asyncio.sleep(until - self.loop.time())
                backoff_s = min(backoff_s * _BACKOFF_GROWTH, self._max_backoff_s)
        self._problem = None
        self._dialling = None
        self._ready.set()
        self._connected.set()

    def _callable(self, kind: type[Any], method: Method) -> Callable[..., Any]:
        def start(
            request: object = None,
            timeout: float | None = None,
            metadata: object = None,
            wait_for_ready: bool | None = None,
            **more: object,
        ) -> Any:
            self.life.check()
            unsupported = {name: value for name, value in more.items() if value is not None}
            if unsupported:
                raise NotImplementedError(f"not simulated: {unsupported}")
            call = kind(self, method, request, timeout, metadata=metadata)
            call.waits_for_ready = bool(wait_for_ready)  # it has not begun yet
            self._calls[call] = None
            return call

        return start


class SimulatedTransport:
    """Servers and channels of one process."""

    def __init__(self, network: Network, life: Life, incident: Incident) -> None:
        self._network = network
        self._life = life
        self._incident = incident

    def server(self, interceptors: Sequence[grpc.aio.ServerInterceptor], options: ChannelOptions) -> grpc.aio.Server:
        self._life.check()
        return cast("grpc.aio.Server", SimulatedServer(self._network, self._life, interceptors, self._incident))

    def channel(self, address: str, options: ChannelOptions = (), credentials: grpc.ChannelCredentials | None = None) -> grpc.aio.Channel:
        self._life.check()
        if credentials is not None:
            raise NotImplementedError("encrypted connections are not simulated")
        return cast("grpc.aio.Channel", SimulatedChannel(self._network, self._life, address, options))

    @property
    def certificates_version(self) -> int:
        return 0

    def listen(self, server: grpc.aio.Server, address: str, *, callers_show_certificate: bool) -> int:
        return server.add_insecure_port(address)

    def headers(self, address: str) -> Sequence[tuple[str, str]]:
        return ()

    def why_unbound(self, address: str) -> OSError | None:
        return None  # here nothing is in the way but another server
