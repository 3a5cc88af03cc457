"""What happens around every call on every server: identity headers, the default deadline, errors into statuses, counts."""

import asyncio
import contextlib
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Protocol, Self, TypeAlias, TypeVar

import grpc
import grpc.aio
import structlog
from google.protobuf.message import DecodeError

from dittomq.doors.chance import hex_id
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, InvalidField, leaves
from dittomq.rpc import status
from dittomq.rpc.headers import CLUSTER_HEADER, EPOCH_HEADER, LOG_END_HEADER, NODE_HEADER, REQUEST_ID_HEADER, Answerer, check_meant
from dittomq.rpc.permits import Permit, PermittedContext, caller_of, let_in
from dittomq.rpc.places import Places, call_fields
from dittomq.security.access import AccessRole
from dittomq.security.gate import Gate

DEFAULT_DEADLINE_S = 30.0
UNREAD_S = 30.0
_STANDARD_SERVICES = "/grpc."  # health and reflection answer in their own way
_ANYBODY = Places("", AccessRole.ANYBODY, (), (), ())

log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Found: TypeAlias = "Handler | None"
Decoder: TypeAlias = Callable[[bytes], object]
Encoder: TypeAlias = Callable[[Any], bytes]


_B = TypeVar("_B", bound=Callable[..., Any])


def takes_its_request(behavior: _B) -> _B:
    """A method with one request and one answer that reads its request from the context: until then what its caller sends waits outside."""
    behavior.takes_its_request = True  # type: ignore[attr-defined]
    return behavior


class Observer(Protocol):
    """Counts finished calls."""

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call of "package.Service/Method" ended with `code`."""
        ...


class Unobserved:
    """Counts nothing."""

    def called(self, method: str, code: str, seconds: float) -> None:
        return


class _TooSlowError(Exception):
    """The default deadline is over."""


class UnreadError(Exception):
    """The caller does not read the answers of a stream."""


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps each of our methods: coroutines for one answer, async generators or coroutines that write for a stream of answers.

    A method with one answer may be an async generator too: it goes on behind its `yield` when gRPC holds the answer no longer: it is taken,
    or the call is over. Until then nobody can end the call: a status is sent behind the answer only. See `takes_its_request`, too.

    `identity` says at each call who this node is: one that is for another node is refused before anything is done.

    A DittoError becomes its status, and so do bytes that are no request. Anything else becomes INTERNAL with the request id, and one log
    line with the traceback; but what a call meets that is over already is nobody's error.
    """

    def __init__(
        self, identity: Callable[[], Answerer], clock: Clock, chance: random.Random, observer: Observer, *, gate: Gate | None = None
    ) -> None:
        """`gate` decides who may do what; without one everybody may do everything."""
        self.identity = identity
        self.clock = clock
        self.chance = chance
        self.observer = observer
        self.gate = gate
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}  # by method: what it is without us and with us, made once

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Found]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Found:
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or (method.startswith(_STANDARD_SERVICES) and self.gate is None):
            return handler
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            wrap = self._guard if method.startswith(_STANDARD_SERVICES) else self._wrap
            known = self._wrapped[method] = handler, wrap(method.lstrip("/"), handler)
        return known[1]

    def _wrap(self, name: str, handler: Handler) -> Handler:
        assert handler.request_deserializer is not None, "generated code decodes"
        assert handler.response_serializer is not None, "generated code encodes"
        decode, encode = _refusing(handler.request_deserializer), _unless_encoded(handler.response_serializer)
        if handler.unary_unary is not None and hasattr(handler.unary_unary, "takes_its_request"):
            return grpc.stream_stream_rpc_method_handler(self._one_taken(name, handler.unary_unary), decode, encode)
        if handler.unary_unary is not None and inspect.isasyncgenfunction(handler.unary_unary):
            return grpc.unary_stream_rpc_method_handler(self._one_yielded(name, handler.unary_unary), _returning(decode), encode)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._one_answer(name, handler.unary_unary), _returning(decode), encode)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._many_answers(name, handler.unary_stream), _returning(decode), encode)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._many_answers(name, handler.stream_stream), decode, encode)
        raise TypeError(f"{name}: a stream with one answer is nothing that we serve")

    def _guard(self, name: str, handler: Handler) -> Handler:
        """A method of a standard service, for whoever has shown who he is."""
        decode, encode = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._guarded_answer(handler.unary_unary), decode, encode)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._guarded_stream(handler.unary_stream), decode, encode)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._guarded_stream(handler.stream_stream), decode, encode)
        raise TypeError(f"{name}: a stream with one answer is nothing that we serve")

    def _guarded_answer(self, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request: object, context: Context) -> object:
            await self._admit_somebody(context)
            return await behavior(request, context)

        return answer

    def _guarded_stream(self, behavior: Callable[..., Any]) -> Callable[..., Any]:
        async def answer(request_or_iterator: object, context: Context) -> None:
            await self._admit_somebody(context)
            if not inspect.isasyncgenfunction(behavior):
                await behavior(request_or_iterator, context)
                return
            async with contextlib.aclosing(behavior(request_or_iterator, context)) as responses:
                async for response in responses:
                    await context.write(response)

        return answer

    async def _admit_somebody(self, context: Context) -> None:
        assert self.gate is not None, "nothing is guarded without one"
        try:
            let_in(self.gate, _ANYBODY, await caller_of(self.gate, context))
        except DittoError as error:
            await context.abort_with_status(status.encode(error))

    def _one_answer(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        places = call_fields(method)

        async def answer(arrived: _Arrived, context: Context) -> object:
            async with self._around(places, context, arrived) as under_way:
                return await _in_time(context, behavior(under_way.take_from(arrived), context))

        return answer

    def _one_taken(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        places = call_fields(method)

        async def answer(requests: object, context: Context) -> None:
            async with self._around(places, context):
                await context.write(await _in_time(context, behavior(requests, context)))

        return answer

    def _one_yielded(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        places = call_fields(method)

        async def answer(arrived: _Arrived, context: Context) -> None:
            async with self._around(places, context, arrived) as under_way:
                responses = behavior(under_way.take_from(arrived), context)
                try:
                    first = anext(responses)
                    response = await first if context.time_remaining() is not None else await _in_time(context, first)
                    under_way.still()
                    await context.write(response)
                finally:
                    await responses.aclose()

        return answer

    def _many_answers(self, method: str, behavior: Callable[..., Any]) -> Callable[..., Any]:
        places = call_fields(method)
        checks_itself = hasattr(behavior, "checks_its_requests")

        async def write(arrived: Any, context: Context) -> None:
            async with self._around(places, context) as under_way:
                await behavior(under_way.taken(arrived, checks_itself=checks_itself), under_way.guarded(context))

        async def answer(arrived: Any, context: Context) -> None:
            async with self._around(places, context) as under_way:
                taken = under_way.taken(arrived, checks_itself=checks_itself)
                async with contextlib.aclosing(behavior(taken, context)) as responses:
                    del taken
                    async for response in responses:
                        under_way.still()
                        await taken_in_time(context.write(response))
                        del response  # the next one may be far away

        return answer if inspect.isasyncgenfunction(behavior) else write

    def _around(self, places: Places, context: Context, arrived: "_Arrived | None" = None) -> "_Around":
        return _Around(places, context, self, None if arrived is None or places.role is not AccessRole.ADMIN else arrived.request)


class _Arrived:
    """The only request of a call, until it is taken: gRPC holds what it was decoded to for as long as the call lasts."""

    __slots__ = ("request",)

    def __init__(self, request: object) -> None:
        """`request` may be what refuses it."""
        self.request = request

    def take(self) -> object:
        """The request, once."""
        request, self.request = self.request, None
        return request


class _Around:
    """What happens before and behind one call. Plain, because a call that waits has little else."""

    __slots__ = ("_asked", "_calls", "_context", "_node", "_permit", "_places", "_request_id", "_started", "_who")

    def __init__(self, places: Places, context: Context, calls: CallInterceptor, asked: object) -> None:
        """`asked`: what an admin asks for, to be logged."""
        self._places = places
        self._context = context
        self._calls = calls
        self._asked = asked
        self._permit: Permit | None = None
        self._who = "anybody"

    async def __aenter__(self) -> Self:
        calls = self._calls
        self._started = calls.clock.monotonic()
        here = calls.identity()
        self._node, cluster, epoch, log_end = here
        self._request_id = hex_id(calls.chance)[:16]
        told = ((LOG_END_HEADER, str(log_end)),) if log_end is not None else ()
        who = ((NODE_HEADER, self._node), (CLUSTER_HEADER, cluster), (EPOCH_HEADER, str(epoch)))
        await self._context.send_initial_metadata((*who, (REQUEST_ID_HEADER, self._request_id), *told))
        try:
            if calls.gate is not None:
                await self._let_in(calls.gate)
            check_meant(self._context.invocation_metadata(), here)
        except BaseException as raised:
            await self._end(raised)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        await self._end(raised)

    def take(self, request: object) -> None:
        """Raise what is wrong with a request, or that its caller may not make it."""
        if isinstance(request, InvalidField):
            raise request
        if self._permit is not None:
            self._permit.check(request)

    def take_from(self, arrived: _Arrived) -> object:
        """The request; raises what `take` raises."""
        request = arrived.take()
        self.take(request)
        return request

    def taken(self, arrived: Any, *, checks_itself: bool) -> Any:
        """The request when it was taken; or the requests to come, each taken when it comes."""
        if isinstance(arrived, _Arrived):
            return self.take_from(arrived)
        return arrived if self._permit is None or checks_itself else self._each(arrived)

    def still(self) -> None:
        """Raise that the caller may no longer have answers."""
        if self._permit is not None:
            self._permit.still()

    def guarded(self, context: Context) -> Any:
        """The context for a handler that writes its answers."""
        return context if self._permit is None else PermittedContext(context, self._permit)

    def _log_admin(self, outcome: str) -> None:
        """One line for one call."""
        about = "" if self._asked is None or isinstance(self._asked, InvalidField) else self._places.resource(self._asked)
        more = {"peer": self._context.peer(), "node": self._node, "request_id": self._request_id}
        log.info("admin_call", who=self._who, method=self._places.method, about=about, outcome=outcome, **more)

    async def _let_in(self, gate: Gate) -> None:
        self._who = "nobody known"
        caller = await caller_of(gate, self._context)
        self._who = str(caller)
        self._permit = let_in(gate, self._places, caller)

    async def _each(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            self.take(request)
            yield request

    async def _end(self, raised: BaseException | None) -> None:
        code = "OK" if raised is None else _code_of(raised)
        try:
            if raised is not None:
                await self._abort(raised)
        finally:
            calls = self._calls
            calls.observer.called(self._places.method, code, calls.clock.monotonic() - self._started)
            if self._places.role is AccessRole.ADMIN:
                self._log_admin(code)

    async def _abort(self, raised: BaseException) -> None:
        """End the call with the status of what its handler raised; where that has ended it already, return."""
        context = self._context
        if isinstance(raised, grpc.aio.AbortError) or not isinstance(raised, Exception):
            return
        if isinstance(raised, _TooSlowError):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"not done within {DEFAULT_DEADLINE_S:g} s; ask with a longer deadline")
        if isinstance(raised, UnreadError):
            log.info("caller_disconnected", method=self._places.method, node=self._node, peer=context.peer(), unread_s=UNREAD_S)
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"no answer was read for {UNREAD_S:g} s")
        error = _ours(raised)
        if error is not None:
            await context.abort_with_status(status.encode(error))
        if _is_over(raised):
            raise asyncio.CancelledError from raised
        log.error("call_failed", method=self._places.method, node=self._node, request_id=self._request_id, exc_info=raised)
        problem = f"internal error of {self._node}; its log has it under request id {self._request_id}"
        await context.abort(grpc.StatusCode.INTERNAL, problem)


def _code_of(raised: BaseException) -> str:
    """What the call ends with, for whoever counts."""
    if isinstance(raised, grpc.aio.AbortError):
        return "ABORTED_BY_HANDLER"
    if isinstance(raised, _TooSlowError):
        return "DEADLINE_EXCEEDED"
    if isinstance(raised, UnreadError):
        return "UNAVAILABLE"
    error = _ours(raised) if isinstance(raised, Exception) else None
    if error is not None:
        return status.STATUS_OF[type(error)].name
    return "CANCELLED" if not isinstance(raised, Exception) or _is_over(raised) else "INTERNAL"


async def _in_time(context: Context, work: Awaitable[object]) -> object:
    """What comes of it within the caller's deadline, which gRPC ends by itself, or else the default one."""
    if context.time_remaining() is not None:
        return await work
    deadline = asyncio.timeout(DEFAULT_DEADLINE_S)
    try:
        async with deadline:
            return await work
    except TimeoutError as late:
        if deadline.expired():
            raise _TooSlowError from late
        raise


async def taken_in_time(written: Awaitable[object]) -> None:
    """A caller that reads nothing, with all windows full, is let go: what the handler holds for it would be held for ever."""
    try:
        async with asyncio.timeout(UNREAD_S):
            await written
    except TimeoutError as late:
        raise UnreadError from late


def _ours(raised: Exception) -> DittoError | None:
    """The error to tell the caller: `raised` itself, or the first one in a task group's failure; None when it must not leave this node."""
    return next((error for error in leaves(raised) if isinstance(error, DittoError) and type(error) in status.STATUS_OF), None)


def _is_over(raised: BaseException) -> bool:
    """Whether gRPC refused to go on with a call that has ended: its caller left, or the server was stopped. Misuse is not that."""
    return all(isinstance(error, grpc.aio.BaseError) and not isinstance(error, grpc.aio.UsageError) for error in leaves(raised))


def _refusing(decode: Decoder) -> Decoder:
    def refusing(content: bytes) -> object:
        try:
            return decode(content)
        except DecodeError as error:
            raise InvalidField("request", "its bytes are no message of this call; encode it as its .proto file says") from error

    return refusing


def _unless_encoded(encode: Encoder) -> Encoder:
    """An answer that its handler has encoded goes out as it is."""

    def encoded(answer: object) -> bytes:
        return answer if isinstance(answer, bytes) else encode(answer)

    return encoded


def _returning(decode: Decoder) -> Decoder:
    """A request of its own is decoded before the handler runs, where nobody could answer: the refusal is handed on in its place."""

    def returning(content: bytes) -> _Arrived:
        try:
            return _Arrived(decode(content))
        except InvalidField as refusal:
            return _Arrived(refusal)

    return returning
