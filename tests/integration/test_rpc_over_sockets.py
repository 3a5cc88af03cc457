"""Our server and channel over real gRPC on the loopback."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from dittomq._pb.ditto.messaging.v1 import messaging_pb2, messaging_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import InvalidField, NotMaster, OutOfReach, PortInUse, StoreFailed, TopicExists, TopicNotFound
from dittomq.rpc import interceptors, status
from dittomq.rpc.channel import Channels, breaking, call
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.rpc.vitals import Phase, Vitals
from tests.support.waiting import PATIENCE_S

NAMING = "ditto.naming.v1.NameServerService"
MESSAGING = "ditto.messaging.v1.MessagingService"


class Naming(naming_pb2_grpc.NameServerServiceServicer):
    """Answers GetRoute as told."""

    def __init__(self) -> None:
        self.answer: Callable[[], Awaitable[naming_pb2.GetRouteResponse]]

    async def GetRoute(self, request: naming_pb2.GetRouteRequest, context: Any) -> naming_pb2.GetRouteResponse:
        return await self.answer()


class Messaging(messaging_pb2_grpc.MessagingServiceServicer):
    """Answers each frame with its id; the frame 13 is refused, 14 breaks, and 15 answers once more when the server has stopped.

    A pull is answered by as many bytes as its offset, or refused below 0. `asked`: a pull has come; `sent`: its answer was, or was
    given up.
    """

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.stopped = asyncio.Event()
        self.asked = asyncio.Event()
        self.sent = asyncio.Event()

    async def Pull(self, request: Any, context: Any) -> AsyncIterator[Any]:  # type: ignore[override]  # see CallInterceptor
        self.asked.set()
        try:
            if request.offset < 0:
                await self._refuse()
            yield messaging_pb2.PullResponse(messages=[messaging_pb2.StoredMessage(body=bytes(request.offset))])
        finally:
            self.sent.set()

    async def PublishStream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        try:
            async for request in requests:
                if request.frame_id == 13:
                    await self._refuse()
                if request.frame_id == 14:
                    raise ZeroDivisionError
                yield messaging_pb2.PublishStreamResponse(frame_id=request.frame_id)
                if request.frame_id == 15:
                    await self._linger(context)
        finally:
            self.closed.set()

    async def _linger(self, context: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.stopped.wait()
            await context.write(messaging_pb2.PublishStreamResponse(frame_id=15))

    async def _refuse(self) -> None:
        async def fail() -> None:
            raise NotMaster("a/1", "a-0:10911")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())


class Counted:
    """The calls that came to an end, which the server may learn after the caller."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._any = asyncio.Event()

    def called(self, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, code))
        self._any.set()

    async def once(self) -> list[tuple[str, str]]:
        """Them, when there is one."""
        await self._any.wait()
        return self.calls


class Loopback:
    """A server with both services, and channels to it."""

    def __init__(self, server: RpcServer, vitals: Vitals, naming: Naming, messaging: Messaging, counted: Counted) -> None:
        self.server = server
        self.vitals = vitals
        self.naming = naming
        self.messaging = messaging
        self.counted = counted
        self.address = f"127.0.0.1:{server.port}"
        self.channels = Channels(GrpcTransport())

    async def get_route(self, deadline_s: float = PATIENCE_S) -> naming_pb2.GetRouteResponse:
        stub = self.channels.stub(naming_pb2_grpc.NameServerServiceStub, self.address)
        return await call(stub.GetRoute, naming_pb2.GetRouteRequest(), who=self.address, deadline_s=deadline_s)

    def publish_stream(self) -> Any:
        return self.channels.stub(messaging_pb2_grpc.MessagingServiceStub, self.address).PublishStream(timeout=PATIENCE_S)


def over_sockets(story: Callable[[Loopback], Awaitable[None]]) -> None:
    async def told() -> None:
        naming, messaging, counted, vitals = Naming(), Messaging(), Counted(), Vitals()
        services = [
            Service(NAMING, lambda server: naming_pb2_grpc.add_NameServerServiceServicer_to_server(naming, server)),
            Service(MESSAGING, lambda server: messaging_pb2_grpc.add_MessagingServiceServicer_to_server(messaging, server)),
        ]
        interceptor = CallInterceptor(lambda: Answerer("a/0", "test", 7, 900), OsClock(), random.Random(1), counted)
        server = await bind(GrpcTransport(), Listen("listen.clients", "127.0.0.1:0"), services, [interceptor], vitals)
        await server.start()
        loopback = Loopback(server, vitals, naming, messaging, counted)
        try:
            await story(loopback)
        finally:
            await loopback.channels.close()
            await server.stop(0)

    asyncio.run(told())


def raising(error: Exception) -> Callable[[], Awaitable[naming_pb2.GetRouteResponse]]:
    async def answer() -> naming_pb2.GetRouteResponse:
        raise error

    return answer


@pytest.mark.parametrize(
    "error",
    [
        TopicNotFound("oders", "cluster dittomq", "orders"),
        TopicExists("t" * 10_000, "ü" * 10_000, "ü" * 10_000, "\n" * 10_000),
        StoreFailed("fdatasync", "/data/commitlog", "Input/output error"),
    ],
)
def test_an_error_of_ours_is_raised_again_at_the_caller(error: Exception) -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = raising(error)

        with pytest.raises(type(error)) as refused:
            await loopback.get_route()

        assert str(refused.value)[:50] == str(error)[:50]
        assert await loopback.counted.once() == [(f"{NAMING}/GetRoute", status.STATUS_OF[type(error)].name)]  # type: ignore[index]

    over_sockets(story)


def test_a_defect_is_told_as_internal_with_the_request_id_and_no_more() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = raising(RuntimeError("a secret"))

        with pytest.raises(OutOfReach, match=r"INTERNAL: internal error of a/0; its log has it under request id [0-9a-f]{16}$"):
            await loopback.get_route()

    over_sockets(story)


def test_every_answer_names_the_node_its_epoch_and_the_request() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = raising(TopicNotFound("x", "y"))
        stub = loopback.channels.stub(naming_pb2_grpc.NameServerServiceStub, loopback.address)
        answer = stub.GetRoute(naming_pb2.GetRouteRequest(), timeout=PATIENCE_S)

        headers = dict(await answer.initial_metadata())

        assert [headers[f"dittomq-{name}"] for name in ("node", "cluster", "epoch", "log-end")] == ["a/0", "test", "7", "900"]
        assert len(headers["dittomq-request-id"]) == 16
        with pytest.raises(grpc.aio.AioRpcError):
            await answer

    over_sockets(story)


def test_a_call_without_a_deadline_gets_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interceptors, "DEFAULT_DEADLINE_S", 0.05)

    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = asyncio.get_running_loop().create_future  # never done
        stub = loopback.channels.stub(naming_pb2_grpc.NameServerServiceStub, loopback.address)

        with pytest.raises(grpc.aio.AioRpcError) as late:
            await stub.GetRoute(naming_pb2.GetRouteRequest())

        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await loopback.counted.once() == [(f"{NAMING}/GetRoute", "DEADLINE_EXCEEDED")]

    over_sockets(story)


def test_a_time_out_inside_a_handler_is_a_defect_and_not_the_callers_deadline() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = raising(TimeoutError())

        with pytest.raises(OutOfReach, match="INTERNAL"):
            await loopback.get_route()

    over_sockets(story)


def test_a_callers_deadline_is_out_of_reach() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = asyncio.get_running_loop().create_future  # never done

        with pytest.raises(OutOfReach):
            await loopback.get_route(deadline_s=0.1)

    over_sockets(story)


def test_a_stream_is_answered_and_an_error_of_a_task_group_in_it_arrives_typed() -> None:
    async def story(loopback: Loopback) -> None:
        stream = loopback.publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=1))
        assert (await stream.read()).frame_id == 1
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=13))

        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await stream.read()

        assert str(status.decode(broken.value, "a/1")) == str(NotMaster("a/1", "a-0:10911"))

    over_sockets(story)


def test_a_defect_in_a_stream_is_internal() -> None:
    async def story(loopback: Loopback) -> None:
        stream = loopback.publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=14))

        with pytest.raises(grpc.aio.AioRpcError) as broken:
            await stream.read()

        assert broken.value.code() is grpc.StatusCode.INTERNAL

    over_sockets(story)


NO_MESSAGE = b"\xff\xff\xff"
REFUSED_BYTES = "request: its bytes are no message of this call; encode it as its .proto file says"


def test_bytes_that_are_no_request_are_refused_as_the_callers_error() -> None:
    async def story(loopback: Loopback) -> None:
        get_route: Any = loopback.channels.to(loopback.address).unary_unary(f"/{NAMING}/GetRoute")

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await get_route(NO_MESSAGE, timeout=PATIENCE_S)

        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, REFUSED_BYTES)
        assert isinstance(status.decode(refused.value, loopback.address), InvalidField)

    over_sockets(story)


def test_bytes_that_are_no_frame_end_their_stream_as_the_callers_error() -> None:
    async def story(loopback: Loopback) -> None:
        stream: Any = loopback.channels.to(loopback.address).stream_stream(f"/{MESSAGING}/PublishStream")(timeout=PATIENCE_S)
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=1).SerializeToString())
        await stream.read()

        await stream.write(NO_MESSAGE)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()

        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, REFUSED_BYTES)

    with structlog.testing.capture_logs() as logged:
        over_sockets(story)
    assert logged == []


def test_a_handler_that_goes_on_after_its_server_was_stopped_is_nobodys_error(caplog: pytest.LogCaptureFixture) -> None:
    async def story(loopback: Loopback) -> None:
        stream = loopback.publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=15))
        await stream.read()

        await loopback.server.stop(0)
        loopback.messaging.stopped.set()
        await loopback.messaging.closed.wait()
        await asyncio.sleep(0)

    with structlog.testing.capture_logs() as logged:
        over_sockets(story)
    assert logged == []
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_cancelled_stream_closes_its_handler() -> None:
    async def story(loopback: Loopback) -> None:
        stream = loopback.publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=1))
        await stream.read()

        stream.cancel()
        await loopback.messaging.closed.wait()

    over_sockets(story)


def test_nobody_at_an_address_is_out_of_reach() -> None:
    async def story(loopback: Loopback) -> None:
        await loopback.server.stop(0)

        with pytest.raises(OutOfReach, match=loopback.address):
            await loopback.get_route()

    over_sockets(story)


def test_a_port_that_is_held_is_refused_by_its_setting() -> None:
    async def story(loopback: Loopback) -> None:
        listen = Listen("listen.clients", loopback.address)

        with pytest.raises(PortInUse, match=f"listen.clients: {loopback.address} is in use"):
            await bind(GrpcTransport(), listen, [], [], Vitals())

    over_sockets(story)


def test_health_follows_the_vitals_under_every_name() -> None:
    async def story(loopback: Loopback) -> None:
        stub: Any = loopback.channels.stub(health_pb2_grpc.HealthStub, loopback.address)

        async def serving() -> list[str]:
            names = ["", NAMING, MESSAGING, "readiness", "startup", "liveness"]
            answers = [await stub.Check(health_pb2.HealthCheckRequest(service=name)) for name in names]
            return [name for name, answer in zip(names, answers, strict=True) if answer.status == health_pb2.HealthCheckResponse.SERVING]

        assert await serving() == ["liveness"]
        await loopback.vitals.become(Phase.READY)
        assert await serving() == ["", NAMING, MESSAGING, "readiness", "startup", "liveness"]
        await loopback.vitals.become(Phase.WAITING, "waits for a slave")
        assert await serving() == ["startup", "liveness"]

    over_sockets(story)


def test_reflection_lists_the_services_and_resolves_error_details() -> None:
    async def story(loopback: Loopback) -> None:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(loopback.channels.to(loopback.address))  # type: ignore[arg-type]

        async def ask(question: reflection_pb2.ServerReflectionRequest) -> Any:
            stream = stub.ServerReflectionInfo(iter([question]), timeout=PATIENCE_S)
            return await anext(aiter(stream))

        listing = await ask(reflection_pb2.ServerReflectionRequest(list_services=""))
        listed = [each.name for each in listing.list_services_response.service]
        assert {NAMING, MESSAGING, "grpc.health.v1.Health"} <= set(listed)
        for symbol in ("google.rpc.ErrorInfo", "ditto.error.v1.NotMaster"):
            found = await ask(reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol))
            assert found.HasField("file_descriptor_response")

    over_sockets(story)


def test_a_call_whose_channel_is_closed_under_it_fails_with_a_typed_error() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = asyncio.get_running_loop().create_future  # never done
        stream = loopback.publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(frame_id=1))

        async def read_on() -> None:
            with breaking(loopback.address):
                while await stream.read() is not grpc.aio.EOF:
                    pass

        calls = [asyncio.ensure_future(loopback.get_route()), asyncio.ensure_future(read_on())]
        await asyncio.sleep(0)
        await loopback.channels.forget(loopback.address)

        assert [type(outcome) for outcome in await asyncio.gather(*calls, return_exceptions=True)] == [OutOfReach, OutOfReach]

    over_sockets(story)


def test_a_caller_who_ends_its_wait_is_told_of_no_broken_call() -> None:
    async def story(loopback: Loopback) -> None:
        loopback.naming.answer = asyncio.get_running_loop().create_future  # never done

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await loopback.get_route()

    over_sockets(story)


def test_one_answer_that_is_yielded_is_an_answer_like_any_other_and_its_handler_goes_on_when_it_is_sent() -> None:
    async def story(loopback: Loopback) -> None:
        stub: Any = loopback.channels.stub(messaging_pb2_grpc.MessagingServiceStub, loopback.address)
        [message] = (await stub.Pull(messaging_pb2.PullRequest(offset=100_000), timeout=PATIENCE_S)).messages

        assert len(message.body) == 100_000
        await loopback.messaging.sent.wait()
        assert await loopback.counted.once() == [(f"{MESSAGING}/Pull", "OK")]
        with pytest.raises(NotMaster, match="a-0:10911"):
            await call(stub.Pull, messaging_pb2.PullRequest(offset=-1), who="a/0", deadline_s=PATIENCE_S)

    over_sockets(story)


def test_an_answer_that_nobody_reads_is_held_until_the_callers_deadline() -> None:
    async def story(loopback: Loopback) -> None:
        async with grpc.aio.insecure_channel(loopback.address, [("grpc.http2.bdp_probe", 0)]) as channel:  # a small window: soon full
            pull: Any = channel.unary_stream(f"/{MESSAGING}/Pull", messaging_pb2.PullRequest.SerializeToString)
            unread = pull(messaging_pb2.PullRequest(offset=4_000_000), timeout=1)
            read: Any = loopback.channels.stub(messaging_pb2_grpc.MessagingServiceStub, loopback.address).GetOutcome
            await loopback.messaging.asked.wait()
            with pytest.raises(OutOfReach):  # unknown here; an answer behind it, to see that nothing is over yet
                await call(read, messaging_pb2.GetOutcomeRequest(), who="a/0", deadline_s=PATIENCE_S)

            assert not loopback.messaging.sent.is_set()
            await loopback.messaging.sent.wait()
            assert (f"{MESSAGING}/Pull", "CANCELLED") in loopback.counted.calls
            assert await unread.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    over_sockets(story)
