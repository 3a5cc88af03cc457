"""The server's half of the transport door: `grpc.aio.Server` and `ServicerContext` as far as the product uses them."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Never, TypeAlias

import grpc
import grpc.aio

from tests.simulation.network import Machine, Network, Socket
from tests.simulation.simulated_process import Life, SimCrashed
from tests.simulation.streams import (
    Credit,
    Data,
    Ended,
    Frame,
    Headers,
    MessageFlow,
    Metadata,
    Opened,
    Reset,
    Status,
    StreamOver,
    as_metadata,
    size_of,
)

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Incident = Callable[[str, BaseException], None]


class CallDetails:
    """What interceptors see of a call."""

    def __init__(self, opened: Opened) -> None:
        self.method = opened.method
        self.invocation_metadata = opened.metadata


class ServerCall:
    """One call at its server, and the ServicerContext that its handler sees."""

    def __init__(self, server: "SimulatedServer", socket: Socket, number: int, opened: Opened) -> None:
        self.opened = opened
        self._server = server
        self._socket = socket
        self._number = number
        self._loop = server.network.loop
        self._deadline = None if opened.timeout_s is None else self._loop.time() + opened.timeout_s
        self._headers_sent = False
        self._status: Status | None = None
        self._code = grpc.StatusCode.OK
        self._details = ""
        self._trailing: Metadata = ()
        self._cancelled = False
        self._callbacks: list[Callable[[Any], None]] = []
        self.flow = MessageFlow(self._loop, self._send)
        self.handler: Handler | None = None
        self.task: asyncio.Task[None] | None = None

    # What the connection tells.

    def arrived(self, frame: Frame) -> None:
        """Take a frame from the client."""
        match frame:
            case Data() | Credit() | Ended():
                self.flow.arrived(frame)
            case Reset():
                self.cancel()
            case _:
                raise AssertionError(f"a client never sends {frame}")

    def cancel(self) -> None:
        """The client is gone, or the deadline is over: the handler is cancelled, as gRPC does."""
        if self._status is None:
            self._cancelled = True
            self.flow.abandon()
            if self.task is not None:
                self.task.cancel()

    def end(self, status: Status) -> None:
        """Send the status once."""
        if self._status is None:
            self._status = status
            self._send(status)
            self.flow.abandon(keep=True)
        for callback in self._callbacks:
            callback(self)
        self._callbacks.clear()

    @property
    def final(self) -> Status:
        """The status that a handler which simply returned has asked for."""
        return Status(self._code, self._details, self._trailing)

    # grpc.aio.ServicerContext.

    async def read(self) -> Any:
        content = await self._read()
        return grpc.aio.EOF if content is None else self._decode(content)

    async def write(self, message: Any) -> None:
        assert self.handler is not None
        serializer = self.handler.response_serializer
        await self.send_message(message if serializer is None else serializer(message))

    async def send_initial_metadata(self, initial_metadata: object) -> None:
        self._server.life.check()
        if self._headers_sent:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._headers_sent = True
        self._send(Headers(as_metadata(initial_metadata)))

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()) -> Never:
        self._server.life.check()
        if self._status is not None:
            raise grpc.aio.UsageError("Abort already called!")
        if code is grpc.StatusCode.OK:
            raise grpc.aio.UsageError("Abort with OK")
        self.end(Status(code, details, as_metadata(trailing_metadata) or self._trailing))
        raise grpc.aio.AbortError("Locally aborted.")

    async def abort_with_status(self, status: grpc.Status) -> Never:
        await self.abort(status.code, status.details, status.trailing_metadata)

    def set_trailing_metadata(self, trailing_metadata: object) -> None:
        self._trailing = as_metadata(trailing_metadata)

    def trailing_metadata(self) -> Metadata:
        return self._trailing

    def invocation_metadata(self) -> Metadata:
        return self.opened.metadata

    def set_code(self, code: grpc.StatusCode) -> None:
        self._code = code

    def set_details(self, details: str) -> None:
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def peer(self) -> str:
        return f"ipv4:{self._socket.peer_host}:1"

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def cancelled(self) -> bool:
        return self._cancelled

    def done(self) -> bool:
        return self._status is not None or self._cancelled

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    # What runs a handler.

    async def requests(self) -> AsyncIterator[Any]:
        """The client's messages, one after the other."""
        while (content := await self._read()) is not None:
            yield self._decode(content)

    async def only_request(self) -> Any:
        """The request of a method that takes one."""
        content = await self._read()
        assert content is not None
        return self._decode(content)

    async def send_message(self, content: bytes) -> None:
        """Send one message, with empty headers before the first when none were sent."""
        self._server.life.check()
        if not self._headers_sent:
            await self.send_initial_metadata(())
        try:
            await self.flow.write(content)
        except StreamOver:
            raise asyncio.CancelledError from None

    async def _read(self) -> bytes | None:
        self._server.life.check()
        try:
            return await self.flow.read()
        except StreamOver:
            raise asyncio.CancelledError from None

    def _decode(self, content: bytes) -> Any:
        assert self.handler is not None
        deserializer = self.handler.request_deserializer
        return content if deserializer is None else deserializer(content)

    def _send(self, frame: Frame) -> None:
        self._socket.send((self._number, frame), size_of(frame))


class _ServerConnection:
    """A client's connection: dispatches frames to calls."""

    def __init__(self, server: "SimulatedServer", socket: Socket) -> None:
        self._server = server
        self.socket = socket
        self.calls: dict[int, ServerCall] = {}
        socket.receive = self._arrived
        socket.broken = self._broken

    def _arrived(self, payload: object) -> None:
        assert isinstance(payload, tuple)
        number, frame = payload
        if isinstance(frame, Opened):
            call = self.calls[number] = ServerCall(self._server, self.socket, number, frame)
            self._server.begin(call, lambda: self.calls.pop(number, None))
        elif number in self.calls:
            if isinstance(frame, Data):
                self._server.network.transcript.trace(self.socket.label, frame.content)
            self.calls[number].arrived(frame)

    def _broken(self, _: str) -> None:
        self._server.forget(self)
        for call in list(self.calls.values()):
            call.cancel()


class SimulatedServer:
    """A server of one process. It holds its ports from `add_insecure_port` on and answers from `start` on."""

    def __init__(self, network: Network, life: Life, interceptors: Sequence[grpc.aio.ServerInterceptor], incident: Incident) -> None:
        self.network = network
        self.life = life
        self._interceptors = interceptors
        self._incident = incident
        self._methods: dict[str, Handler] = {}
        self._generic: list[Any] = []
        self._ports: list[int] = []
        self._connections: dict[_ServerConnection, None] = {}
        self._running: dict[ServerCall, None] = {}
        self._started = False

    @property
    def _machine(self) -> Machine:
        return self.network.machine(self.life.name)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        for method, handler in method_handlers.items():
            self._methods[f"/{service_name}/{method}"] = handler

    def add_insecure_port(self, address: str) -> int:
        self.life.check()
        port = self._machine.bind(int(address.rpartition(":")[2]), self)
        self._ports.append(port)
        return port

    async def start(self) -> None:
        self.life.check()
        self._started = True
        self.network.transcript.note(self.life.name, f"listens on {self._ports}")

    async def stop(self, grace: float | None) -> None:
        self.life.check()
        self._started = False
        for port in self._ports:
            self._machine.listeners.pop(port, None)
        if grace:
            await self._handlers_end(grace)
        for call in list(self._running):
            call.end(Status(grpc.StatusCode.UNAVAILABLE, "Cancelling all calls", ()))
            if call.task is not None:
                call.task.cancel()
        await self._handlers_end(None)
        for connection in list(self._connections):
            connection.socket.close("GOAWAY")
        self._connections.clear()

    def accept(self, socket: Socket) -> None:
        """Own the server's end of a new connection."""
        self._connections[_ServerConnection(self, socket)] = None

    def forget(self, connection: _ServerConnection) -> None:
        """The connection is gone."""
        self._connections.pop(connection, None)

    def begin(self, call: ServerCall, ended: Callable[[], object]) -> None:
        """Run the handler of a call that has arrived."""
        self.network.transcript.trace(call.opened.method)
        self._running[call] = None
        call.task = self.life.spawn(self._run(call, ended))
        if call.opened.timeout_s is not None:
            timer = self.network.loop.call_later(call.opened.timeout_s, call.cancel)
            call.task.add_done_callback(lambda _: timer.cancel())

    async def _handlers_end(self, within_s: float | None) -> None:
        tasks = [call.task for call in self._running if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)

    async def _run(self, call: ServerCall, ended: Callable[[], object]) -> None:
        try:
            call.end(await self._answer(call))
        except grpc.aio.AbortError:
            pass
        except asyncio.CancelledError:
            if not call.done():
                call.end(Status(grpc.StatusCode.CANCELLED, "the handler was cancelled", ()))
        except SimCrashed:
            raise
        except Exception as error:  # noqa: BLE001  # as gRPC does: a handler's mistake ends the call, not the server
            self._incident(call.opened.method, error)
            call.end(Status(grpc.StatusCode.UNKNOWN, f"Unexpected {type(error)}: {error}", ()))
        finally:
            self._running.pop(call, None)
            ended()

    async def _answer(self, call: ServerCall) -> Status:
        if not self._started:
            return Status(grpc.StatusCode.UNAVAILABLE, "the server does not run", ())
        handler = await self._find(call)
        if handler is None:
            return Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
        call.handler = handler
        request: object = call.requests() if handler.request_streaming else await call.only_request()
        if handler.response_streaming:
            await _stream_answers(handler.stream_stream if handler.request_streaming else handler.unary_stream, request, call)
            return call.final
        behavior = handler.stream_unary if handler.request_streaming else handler.unary_unary
        if not inspect.iscoroutinefunction(behavior):
            raise NotImplementedError(f"{call.opened.method} is not a coroutine; the simulation has no threads for it")
        response = await behavior(request, call)
        if call.final.code is grpc.StatusCode.OK:
            await call.write(response)
        return call.final

    async def _find(self, call: ServerCall) -> "Handler | None":
        async def look_up(details: Any) -> "Handler | None":
            handler = self._methods.get(details.method)
            if handler is not None:
                return handler
            return next((found for generic in self._generic if (found := generic.service(details)) is not None), None)

        search: Callable[[Any], Awaitable[Handler | None]] = look_up
        for interceptor in reversed(self._interceptors):
            search = _wrapped(interceptor, search)
        return await search(CallDetails(call.opened))


def _wrapped(interceptor: Any, inner: Callable[[Any], Awaitable["Handler | None"]]) -> Callable[[Any], Awaitable["Handler | None"]]:
    async def search(details: Any) -> "Handler | None":
        found: Handler | None = await interceptor.intercept_service(inner, details)
        return found

    return search


async def _stream_answers(behavior: Any, request: object, call: ServerCall) -> None:
    """Run a handler of either style: an async generator, or a coroutine that calls `context.write`."""
    if inspect.isasyncgenfunction(behavior):
        async for response in behavior(request, call):
            await call.write(response)
    elif inspect.iscoroutinefunction(behavior):
        await behavior(request, call)
    else:
        raise NotImplementedError("a handler is neither a coroutine nor an async generator; the simulation has no threads for it")
