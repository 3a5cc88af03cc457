"""Our server and channel over real gRPC on the loopback."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from dittomq._pb.ditto.messaging.v1 import messaging_pb2, messaging_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import InvalidField, NotMaster, PortInUse, StorageFailure, TopicExists, TopicNotFound, Unavailable
from dittomq.rpc import interceptors, status
from dittomq.rpc.channel import breaking
from dittomq.rpc.health import Health, Phase
from dittomq.rpc.server import Listen, bind
from tests.support.loopback import MESSAGING, NAMING, Loopback, over_sockets
from tests.support.virtual_time import played_by
from tests.support.waiting import PATIENCE_S


def raising(error: Exception) -> Callable[[], Awaitable[naming_pb2.GetRouteResponse]]:
    async def answer() -> naming_pb2.GetRouteResponse:
        raise error

    return answer


@pytest.mark.parametrize(
    "error",
    [
        TopicNotFound("oders", "cluster dittomq", "orders"),
        TopicExists("t" * 10_000, "ü" * 10_000, "ü" * 10_000, "\n" * 10_000),
        StorageFailure("fdatasync", "/data/commitlog", "Input/output error"),
    ],
)
@played_by(over_sockets)
async def test_an_error_of_ours_is_raised_again_at_the_caller(loopback: Loopback, /, error: Exception) -> None:
    loopback.naming.answer = raising(error)

    with pytest.raises(type(error)) as refused:
        await loopback.get_route()

    assert str(refused.value)[:50] == str(error)[:50]
    assert await loopback.counted.once() == [(f"{NAMING}/GetRoute", status.STATUS_OF[type(error)].name)]  # type: ignore[index]


@played_by(over_sockets)
async def test_a_defect_is_told_as_internal_with_the_request_id_and_no_more(loopback: Loopback) -> None:
    loopback.naming.answer = raising(RuntimeError("a secret"))

    with pytest.raises(Unavailable, match=r"INTERNAL: internal error of a/0; its log has it under request id [0-9a-f]{16}$"):
        await loopback.get_route()


@played_by(over_sockets)
async def test_every_answer_names_the_node_its_epoch_and_the_request(loopback: Loopback) -> None:
    loopback.naming.answer = raising(TopicNotFound("x", "y"))
    stub = loopback.channels.stub(naming_pb2_grpc.NameServerServiceStub, loopback.address)
    answer = stub.GetRoute(naming_pb2.GetRouteRequest(), timeout=PATIENCE_S)

    headers = dict(await answer.initial_metadata())

    assert [headers[f"dittomq-{name}"] for name in ("node", "cluster", "epoch", "log-end")] == ["a/0", "test", "7", "900"]
    assert len(headers["dittomq-request-id"]) == 16
    with pytest.raises(grpc.aio.AioRpcError):
        await answer


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


@played_by(over_sockets)
async def test_a_time_out_inside_a_handler_is_a_defect_and_not_the_callers_deadline(loopback: Loopback) -> None:
    loopback.naming.answer = raising(TimeoutError())

    with pytest.raises(Unavailable, match="INTERNAL"):
        await loopback.get_route()


@played_by(over_sockets)
async def test_a_callers_deadline_is_unavailable(loopback: Loopback) -> None:
    loopback.naming.answer = asyncio.get_running_loop().create_future  # never done

    with pytest.raises(Unavailable):
        await loopback.get_route(deadline_s=0.1)


@played_by(over_sockets)
async def test_a_stream_is_answered_and_an_error_of_a_task_group_in_it_arrives_typed(loopback: Loopback) -> None:
    stream = loopback.publish_stream()
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1))
    assert (await stream.read()).batch_id == 1
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=13))

    with pytest.raises(grpc.aio.AioRpcError) as broken:
        await stream.read()

    assert str(status.decode(broken.value, "a/1")) == str(NotMaster("a/1", "a-0:10911"))


@played_by(over_sockets)
async def test_a_defect_in_a_stream_is_internal(loopback: Loopback) -> None:
    stream = loopback.publish_stream()
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=14))

    with pytest.raises(grpc.aio.AioRpcError) as broken:
        await stream.read()

    assert broken.value.code() is grpc.StatusCode.INTERNAL


@played_by(over_sockets)
async def test_nobody_but_its_handler_holds_the_request_of_a_pull(loopback: Loopback) -> None:
    """A handler that waits for long lets go of it, and so it takes no memory then."""
    stub = loopback.channels.stub(messaging_pb2_grpc.MessagingServiceStub, loopback.address)

    await stub.Pull(messaging_pb2.PullRequest(offset=1), timeout=PATIENCE_S)

    assert loopback.messaging.holders == 1


NO_MESSAGE = b"\xff\xff\xff"
REFUSED_BYTES = "request: its bytes are no message of this call; encode it as its .proto file says"


@played_by(over_sockets)
async def test_bytes_that_are_no_request_are_refused_as_the_callers_error(loopback: Loopback) -> None:
    get_route: Any = loopback.channels.to(loopback.address).unary_unary(f"/{NAMING}/GetRoute")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await get_route(NO_MESSAGE, timeout=PATIENCE_S)

    assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.INVALID_ARGUMENT, REFUSED_BYTES)
    assert isinstance(status.decode(refused.value, loopback.address), InvalidField)


def test_bytes_that_are_no_frame_end_their_stream_as_the_callers_error() -> None:
    async def story(loopback: Loopback) -> None:
        stream: Any = loopback.channels.to(loopback.address).stream_stream(f"/{MESSAGING}/PublishStream")(timeout=PATIENCE_S)
        await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1).SerializeToString())
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
        await stream.write(messaging_pb2.PublishStreamRequest(batch_id=15))
        await stream.read()

        await loopback.server.stop(0)
        loopback.messaging.stopped.set()
        await loopback.messaging.closed.wait()
        await asyncio.sleep(0)

    with structlog.testing.capture_logs() as logged:
        over_sockets(story)
    assert logged == []
    assert [record for record in caplog.records if record.exc_info] == []


@played_by(over_sockets)
async def test_a_cancelled_stream_closes_its_handler(loopback: Loopback) -> None:
    stream = loopback.publish_stream()
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1))
    await stream.read()

    stream.cancel()
    await loopback.messaging.closed.wait()


@played_by(over_sockets)
async def test_nobody_at_an_address_is_unavailable(loopback: Loopback) -> None:
    await loopback.server.stop(0)

    with pytest.raises(Unavailable, match=loopback.address):
        await loopback.get_route()


@played_by(over_sockets)
async def test_a_port_that_is_held_is_refused_by_its_setting(loopback: Loopback) -> None:
    listen = Listen("listen.clients", loopback.address)

    with pytest.raises(PortInUse, match=f"listen.clients: {loopback.address} is in use"):
        await bind(GrpcTransport(), listen, [], [], vitals=Health())


@played_by(over_sockets)
async def test_health_follows_the_vitals_under_every_name(loopback: Loopback) -> None:
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


@played_by(over_sockets)
async def test_reflection_lists_the_services_and_resolves_error_details(loopback: Loopback) -> None:
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


@played_by(over_sockets)
async def test_a_call_whose_channel_is_closed_under_it_fails_with_a_typed_error(loopback: Loopback) -> None:
    loopback.naming.answer = asyncio.get_running_loop().create_future  # never done
    stream = loopback.publish_stream()
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1))

    async def read_on() -> None:
        with breaking(loopback.address):
            while await stream.read() is not grpc.aio.EOF:
                pass

    calls = [asyncio.ensure_future(loopback.get_route()), asyncio.ensure_future(read_on())]
    await asyncio.sleep(0)
    await loopback.channels.forget(loopback.address)

    assert [type(outcome) for outcome in await asyncio.gather(*calls, return_exceptions=True)] == [Unavailable, Unavailable]


@played_by(over_sockets)
async def test_a_caller_who_ends_its_wait_is_told_of_no_broken_call(loopback: Loopback) -> None:
    loopback.naming.answer = asyncio.get_running_loop().create_future  # never done

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await loopback.get_route()


@played_by(over_sockets)
async def test_thousands_of_calls_that_come_at_once_are_answered_and_none_is_cancelled(loopback: Loopback) -> None:
    """So it is when all consumers of a group are back after its master was started again."""

    async def found() -> naming_pb2.GetRouteResponse:
        return naming_pb2.GetRouteResponse()

    loopback.naming.answer = found
    with grpc.insecure_channel(loopback.address) as channel:
        get_route: Any = channel.unary_unary(f"/{NAMING}/GetRoute")
        await asyncio.to_thread(get_route, b"", timeout=PATIENCE_S)
        calls = [get_route.future(b"", timeout=PATIENCE_S) for _ in range(6_000)]  # the server's loop stands still meanwhile
        codes = await asyncio.to_thread(lambda: {call.code() for call in calls})

    assert codes == {grpc.StatusCode.OK}
