"""A server with access rules, over real gRPC on the loopback."""

import random
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from dittomq._pb.ditto.messaging.v1 import messaging_pb2
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import DittoError, PermissionDenied, Unauthenticated, Unavailable
from dittomq.rpc import status
from dittomq.rpc.channel import Channels, call
from dittomq.security.authentication import Authentication
from dittomq.security.gate import AccessFiles, Gate, Reloads
from dittomq.security.tokens import new_token
from tests.support.inline_lane import InlineLane
from tests.support.loopback import Loopback, over_sockets
from tests.support.waiting import PATIENCE_S

TOKEN, LINE = new_token("shop", random.Random(1))
RULES = '[[allow]]\nwho = ["token:shop"]\nroles = ["produce"]\ntopics = ["orders"]\n'


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    (tmp_path / "access.toml").write_text(RULES)
    (tmp_path / "tokens").write_text(LINE)
    files = AccessFiles(str(tmp_path / "access.toml"), str(tmp_path / "tokens"))
    clock = OsClock()
    return Gate(files, Authentication(clock, InlineLane(), random.Random(2)), clock, Reloads(lambda: None, lambda _: None))


def with_token(loopback: Loopback) -> Loopback:
    loopback.channels = Channels(GrpcTransport(token=lambda: TOKEN))
    return loopback


def health(loopback: Loopback) -> Any:
    return health_pb2_grpc.HealthStub(loopback.channels.to(loopback.address))


async def published(loopback: Loopback, topic: str) -> DittoError | int:
    stream = loopback.publish_stream()
    await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1, messages=[messaging_pb2.Message(topic=topic)]))
    try:
        return int((await stream.read()).batch_id)
    except grpc.aio.AioRpcError as refused:
        return status.decode(refused, "a/0")


def test_a_call_without_a_token_reaches_no_handler(gate: Gate) -> None:
    async def story(loopback: Loopback) -> None:
        with pytest.raises(Unauthenticated):
            await loopback.get_route()  # nothing answers, so that a handler would break

    over_sockets(story, gate)


def test_a_batch_for_a_topic_that_no_rule_names_is_refused_and_another_is_not(gate: Gate) -> None:
    async def story(loopback: Loopback) -> None:
        refused = await published(with_token(loopback), "secrets")

        assert isinstance(refused, PermissionDenied)
        assert str(refused) == 'token:shop has no role produce for topic "secrets": no rule of the access file gives it'
        assert await published(loopback, "orders") == 1

    over_sockets(story, gate)


def test_rules_that_change_end_a_stream_that_they_allowed(gate: Gate, tmp_path: Path) -> None:
    async def story(loopback: Loopback) -> None:
        stream = with_token(loopback).publish_stream()
        await stream.write(messaging_pb2.PublishStreamRequest(batch_id=1))
        await stream.read()

        (tmp_path / "access.toml").write_text("")
        gate.look()
        await stream.write(messaging_pb2.PublishStreamRequest(batch_id=2))

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    over_sockets(story, gate)


def test_health_is_for_whoever_has_shown_who_he_is(gate: Gate) -> None:
    async def story(loopback: Loopback) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await health(loopback).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

        answer = await health(with_token(loopback)).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert answer.status != health_pb2.HealthCheckResponse.UNKNOWN

    over_sockets(story, gate)


def test_an_admins_call_is_logged_with_who_what_and_outcome_and_no_token(gate: Gate) -> None:
    async def story(loopback: Loopback) -> None:
        stub = with_token(loopback).channels.stub(naming_pb2_grpc.NameServerServiceStub, loopback.address)
        request = naming_pb2.SetWritePermissionRequest(broker="a")
        with pytest.raises(PermissionDenied):
            await call(stub.SetWritePermission, request, who="a/0", deadline_s=PATIENCE_S)
        await loopback.counted.once()

    with structlog.testing.capture_logs() as logged:
        over_sockets(story, gate)
    [line] = logged
    assert (line["event"], line["who"], line["about"], line["outcome"]) == ("admin_call", "token:shop", "broker=a", "PERMISSION_DENIED")
    assert TOKEN.partition("~")[2] not in str(logged)


@pytest.mark.parametrize("address", ["10.1.2.3:9876", "mq.example:9876"])
def test_a_token_is_never_sent_in_plain_text_to_another_machine(address: str) -> None:
    with pytest.raises(Unavailable, match="in plain text, which is never done") as refused:
        GrpcTransport(token=lambda: TOKEN).headers(address)
    assert TOKEN not in str(refused.value)
