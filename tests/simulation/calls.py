"""The client's calls: what `grpc.aio`'s multi-callables return, as far as the product uses them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from tests.simulation.simulated_process import Life
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
)

_CANCELLED = Status(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", ())
_TOO_LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ())


@dataclass(frozen=True, slots=True)
class Method:
    """A method of a service as its stub made it."""

    path: str
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None


class Wire(Protocol):
    """The connection under a call."""

    def send(self, number: int, frame: Frame) -> None:
        """Send a frame of a call."""
        ...

    def forget(self, number: int) -> None:
        """The call is over."""
        ...


class UnavailableCall(Exception):
    """The channel has no connection; the text says why."""


class Dialer(Protocol):
    """A channel, as its calls see it."""

    loop: asyncio.AbstractEventLoop
    life: Life

    async def wire_for(self, call: "ClientCall") -> tuple[Wire, int]:
        """A connection and the call's number on it; raises Unavailable."""
        ...

    def ended(self, call: "ClientCall") -> None:
        """The call is over."""
        ...


class ClientCall:
    """What all four kinds of calls share: opening, deadline, status, cancellation."""

    def __init__(self, dialer: Dialer, method: Method, timeout_s: float | None, metadata: object) -> None:
        self._dialer = dialer
        self._method = method
        self._loop = dialer.loop
        self._deadline = None if timeout_s is None else self._loop.time() + timeout_s
        self._metadata = as_metadata(metadata)
        self._wire: Wire | None = None
        self._number = 0
        self._headers: asyncio.Future[Metadata] = self._loop.create_future()
        self._arrived_status: Status | None = None
        self._status: asyncio.Future[Status] = self._loop.create_future()
        self._callbacks: list[Callable[[Any], None]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._flow = MessageFlow(self._loop, self._send)
        self.waits_for_ready = False  # for a connection, instead of failing while there is none
        self._timer = None if timeout_s is None else self._loop.call_later(max(0.0, timeout_s), self._finish, _TOO_LATE)

    # What the connection tells.

    def arrived(self, frame: Frame) -> None:
        """Take a frame from the server."""
        match frame:
            case Headers(metadata):
                if not self._headers.done():
                    self._headers.set_result(metadata)
            case Data() | Credit():
                self._flow.arrived(frame)
            case Status():
                self._arrived_status = frame
                self._flow.finish()
                self._settle()
            case _:
                raise AssertionError(f"a server never sends {frame}")

    def broke(self, why: str) -> None:
        """The connection is gone; nothing more is known."""
        self._finish(Status(grpc.StatusCode.UNAVAILABLE, why, ()))

    # grpc.aio.Call.

    def done(self) -> bool:
        return self._status.done()

    def cancelled(self) -> bool:
        return self._status.done() and self._status.result().code is grpc.StatusCode.CANCELLED

    def cancel(self) -> bool:
        return self._finish(_CANCELLED)

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.done():
            self._loop.call_soon(callback, self)
        else:
            self._callbacks.append(callback)

    async def code(self) -> grpc.StatusCode:
        return (await asyncio.shield(self._status)).code

    async def details(self) -> str:
        return (await asyncio.shield(self._status)).details

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata(*(await asyncio.shield(self._status)).trailing)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        return grpc.aio.Metadata(*(await asyncio.shield(self._headers)))

    # For the four kinds.

    async def _open(self) -> None:
        """Begin the call on a connection; when there is none, the call is over."""
        try:
            self._wire, self._number = await self._dialer.wire_for(self)
        except UnavailableCall as problem:
            self._finish(Status(grpc.StatusCode.UNAVAILABLE, str(problem), ()))
            return
        self._send(Opened(self._method.path, self._metadata, self.time_remaining()))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which opens the call; everything else waits for it."""
        self._tasks.append(self._loop.create_task(work))

    async def _opened(self) -> None:
        """Wait until the call is open or over; a caller that is cancelled cancels the call."""
        opening = self._tasks[0]
        if opening.done():
            if not opening.cancelled():
                opening.result()
            return
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            if not opening.cancelled():
                self.cancel()
                raise

    async def _write(self, request: object) -> None:
        self._dialer.life.check()
        if self.done():
            raise asyncio.InvalidStateError("RPC already finished.")
        await self._opened()
        try:
            await self._flow.write(self._content(request))
        except StreamOver:
            self._raise_for_status()
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def _read(self) -> Any:
        """The next response, or EOF."""
        self._dialer.life.check()
        try:
            await self._opened()
            content = await self._flow.read()
        except StreamOver:
            return grpc.aio.EOF
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._settle()
        if content is None:
            return grpc.aio.EOF
        return content if self._method.deserialize is None else self._method.deserialize(content)

    def _content(self, request: object) -> bytes:
        content = request if self._method.serialize is None else self._method.serialize(request)
        assert isinstance(content, bytes)
        return content

    def _raise_for_status(self) -> None:
        """Raise when the call has ended in any way but OK."""
        status = self._status.result()
        if status is _CANCELLED:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            headers = self._headers.result() if self._headers.done() else ()
            raise grpc.aio.AioRpcError(
                status.code, grpc.aio.Metadata(*headers), grpc.aio.Metadata(*status.trailing), details=status.details
            )

    def _send(self, frame: Frame) -> None:
        if self._wire is not None:
            self._wire.send(self._number, frame)

    def _settle(self) -> None:
        """The server's status counts once all its messages are read."""
        if self._arrived_status is not None and self._flow.drained:
            self._finish(self._arrived_status, keep=True)

    def _finish(self, status: Status, *, keep: bool = False) -> bool:
        if self._status.done():
            return False
        self._status.set_result(status)
        if not self._headers.done():
            self._headers.set_result(())
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            if task is not asyncio.current_task(self._loop):
                task.cancel()
        self._flow.abandon(keep=keep)
        if self._arrived_status is None:
            self._send(Reset())
        if self._wire is not None:
            self._wire.forget(self._number)
        self._dialer.ended(self)
        for callback in self._callbacks:
            self._loop.call_soon(callback, self)
        self._callbacks.clear()
        return True


class OneRequest(ClientCall):
    """A call that sends one request."""

    def __init__(self, dialer: Dialer, method: Method, request: object, timeout_s: float | None, *, metadata: object) -> None:
        super().__init__(dialer, method, timeout_s, metadata)
        self._request = request
        self._begin(self._send_request())

    async def _send_request(self) -> None:
        content = self._content(self._request)
        await self._open()
        if not self.done():
            self._send(Data(content))
            self._send(Ended())


class ManyRequests(ClientCall):
    """A call that sends a stream of requests: from an iterator, or by `write`."""

    def __init__(self, dialer: Dialer, method: Method, requests: object, timeout_s: float | None, *, metadata: object) -> None:
        super().__init__(dialer, method, timeout_s, metadata)
        self._done_writing = False
        self._from_iterator = requests is not None
        self._begin(self._open())
        if requests is not None:
            self._tasks.append(self._loop.create_task(self._send_all(requests)))

    async def write(self, request: object) -> None:
        if self._from_iterator:
            raise grpc.aio.UsageError("the requests come from an iterator; write() is not for this call")
        if self._done_writing:
            raise asyncio.InvalidStateError("RPC is half closed after calling done_writing().")
        await self._write(request)

    async def _half_close(self) -> None:
        if not self.done() and not self._done_writing:
            self._done_writing = True
            await self._opened()
            if not self.done():
                self._send(Ended())

    async def _send_all(self, requests: Any) -> None:
        try:
            async for request in requests:
                await self._write(request)
            await self._half_close()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the call is over; its reader learns why
        except Exception:  # noqa: BLE001  # as gRPC does: an iterator's mistake cancels the call
            self.cancel()


class OneResponse(ClientCall):
    """A call that is awaited for its only response."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def _response(self) -> Any:
        response = await self._read()
        end = await self._read() if response is not grpc.aio.EOF else response
        assert end is grpc.aio.EOF
        self._raise_for_status()
        return response


class ManyResponses(ClientCall):
    """A call whose responses are read one by one, in one of two styles."""

    _style = ""

    async def read(self) -> Any:
        if self.done():
            self._raise_for_status()
            return grpc.aio.EOF
        self._in_style("read")
        response = await self._read()
        if response is grpc.aio.EOF:
            self._raise_for_status()
        return response

    def __aiter__(self) -> AsyncIterator[Any]:
        self._in_style("iterate")
        return self._responses()

    async def _responses(self) -> AsyncIterator[Any]:
        while (response := await self._read()) is not grpc.aio.EOF:
            yield response
        self._raise_for_status()

    def _in_style(self, style: str) -> None:
        if self._style not in ("", style):
            raise grpc.aio.UsageError("Please don't mix two styles of API for streaming requests")
        self._style = style


class UnaryUnary(OneRequest, OneResponse):
    """One request, one response."""


class UnaryStream(OneRequest, ManyResponses):
    """One request, many responses."""


class StreamUnary(ManyRequests, OneResponse):
    """Many requests, one response."""


class StreamStream(ManyRequests, ManyResponses):
    """Many requests, many responses."""
