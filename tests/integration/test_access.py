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
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.gate import AccessFiles, Gate
from dittomq.security.tls import Certificates
from dittomq.security.token_files import TokenFile
from dittomq.security.tokens import new_token
from dittomq.testing.authority import CertificateAuthority
from tests.support.inline_lane import InlineLane
from tests.support.loopback import Loopback, over_sockets
from tests.support.waiting import PATIENCE_S

TOKEN, LINE = new_token("shop", random.Random(1))
RULES = '[[allow]]\nwho = ["token:shop"]\nroles = ["produce"]\ntopics = ["orders"]\n'


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return gate_of(tmp_path, RULES)


def gate_of(tmp_path: Path, rules: str) -> Gate:
    (tmp_path / "access.toml").write_text(rules)
    (tmp_path / "tokens").write_text(LINE)
    files = AccessFiles(str(tmp_path / "access.toml"), str(tmp_path / "tokens"))
    clock = OsClock()
    who = Authentication(clock, InlineLane(), random.Random(2))
    return Gate(files, who, clock, on_renewal=lambda: None, on_problem=print)


def with_token(loopback: Loopback) -> Loopback:
    loopback.channels = Channels(GrpcTransport(token=lambda: TOKEN))
    return loopback


def health(loopback: Loopback) -> Any:
    return health_pb2_grpc.HealthStub(loopback.channels.to(loopback.address))


def with_certificate(loopback: Loopback, files: CertificateFiles) -> Loopback:
    loopback.channels = Channels(GrpcTransport(Certificates.of_client(files)))
    return loopback


async def published(loopback: Loopback, topic: str) -> DittoError | int:
    """What answers one batch for the topic. Without a topic nothing is sent: gRPC loses a refusal that overtakes a message."""
    stream = loopback.publish_stream()
    if topic:
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


@pytest.mark.parametrize("who", ["san:shop", "san:shop-*", "san:localhost", "san:127.0.0.1", "cn:shop-1"])
def test_a_rule_for_a_name_of_a_certificate_allows_its_holder_and_no_other(tmp_path: Path, who: str) -> None:
    """Over real TLS: names are those that gRPC finds in a certificate of the cluster's authority."""
    authority = CertificateAuthority(tmp_path / "tls")
    for holder, hosts in (("node", ["127.0.0.1"]), ("shop-1", ["shop", "localhost", "127.0.0.1"]), ("thief", ["thief.example"])):
        authority.issue(holder, hosts)
    gate = gate_of(tmp_path, f'[[allow]]\nwho = ["{who}"]\nroles = ["produce"]\ntopics = ["orders"]\n')

    async def story(loopback: Loopback) -> None:
        assert await published(with_certificate(loopback, authority.files_of("shop-1")), "orders") == 1
        secrets = await published(loopback, "secrets")
        other = await published(with_certificate(loopback, authority.files_of("thief")), "")

        assert isinstance(secrets, PermissionDenied)
        assert isinstance(other, PermissionDenied)
        assert str(other) == "san:thief, san:thief.example, cn:thief has no role produce: no rule of the access file gives it"

    over_sockets(story, gate, shown=Certificates.of_client(authority.files_of("node")))


def test_the_longest_token_is_read_each_time_whatever_else_a_call_brings(gate: Gate) -> None:
    """It is wrong; headers that are too large, by chance or always, would be RESOURCE_EXHAUSTED."""
    brought = (("authorization", f"Bearer {'t' * 8_000}"), ("x-trace", "x" * 6_000))

    async def story(loopback: Loopback) -> None:
        for _ in range(20):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await health(loopback).Check(health_pb2.HealthCheckRequest(service="x"), metadata=brought, timeout=PATIENCE_S)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED

    over_sockets(story, gate)


def test_an_exchanged_token_file_is_shown_without_a_restart(gate: Gate, tmp_path: Path) -> None:
    other, line = new_token("shop", random.Random(7))
    own = tmp_path / "node.token"
    own.write_text(TOKEN)
    token = TokenFile("access.own_token_file", str(own))

    async def story(loopback: Loopback) -> None:
        loopback.channels = Channels(GrpcTransport(token=token))
        assert await published(loopback, "orders") == 1
        own.write_text(other)
        (tmp_path / "tokens").write_text(line)
        gate.look()
        assert isinstance(await published(loopback, ""), Unauthenticated)

        token.look()
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
