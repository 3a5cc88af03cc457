"""Input that is wrong on purpose, over real sockets: typed refusals, nothing written, and servers that stay up."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2  # type: ignore[import-untyped]
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from dittomq._pb.ditto.admin.v1 import admin_pb2
from dittomq._pb.ditto.audit.v1 import audit_pb2
from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.naming.v1 import naming_pb2
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.client import PutStatus
from tests.support.real_group import MASTER, TOPIC, RealGroup
from tests.support.waiting import PATIENCE_S

MIB = 1024 * 1024
HUGE = 2**63 - 1
COPIES = ["a/0", "a/1"]
MESSAGING = "ditto.messaging.v1.MessagingService"
GET_ROUTE = "ditto.naming.v1.NameServerService/GetRoute"
PUBLISH, PULL = f"{MESSAGING}/Publish", f"{MESSAGING}/Pull"
UNKNOWN_ACK: Any = 77


@pytest.fixture(autouse=True)
def unharmed(group: RealGroup) -> Iterator[None]:
    """Afterwards nothing is written, the same processes live, none of them logged a defect, the group takes writes and routes are told."""
    nodes = ["nameserver", *group.copies]
    pids = [group.cluster.pid(name) for name in nodes]
    end, route = group.status().end, told_route(group)
    yield
    assert group.status().end == end
    assert told_route(group) == route
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        assert producer.publish(TOPIC, b"well", queue=0).status is PutStatus.PUT_OK
    assert [group.cluster.pid(name) for name in nodes] == pids
    for name in nodes:
        assert [event for event in ("service_failed", "call_failed") if group.events(name, event)] == []
        assert "Traceback" not in group.cluster.log_file(name).read_text()


def told_route(group: RealGroup) -> tuple[str, list[str]]:
    """Queues and nodes, as the nameserver tells them."""
    asked = naming_pb2.GetRouteRequest(topic=TOPIC)
    answer = group.call("nameserver", GET_ROUTE, asked, naming_pb2.GetRouteResponse)
    return str(answer.queues), sorted(node.address for node in answer.nodes)


def message(**fields: Any) -> pb.Message:
    defaults: dict[str, Any] = {"topic": TOPIC, "body": b"x", "queue": 0}
    return pb.Message(**defaults | fields)


def publish(**fields: Any) -> pb.PublishRequest:
    defaults: dict[str, Any] = {"message": message()}
    return pb.PublishRequest(**defaults | fields)


def pull(**fields: Any) -> pb.PullRequest:
    defaults: dict[str, Any] = {"topic": TOPIC, "queue": 0, "offset": 0}
    return pb.PullRequest(**defaults | fields)


def refused(call: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """The status code and our reason."""
    assert isinstance(call, grpc.Call)
    status = rpc_status.from_call(call)
    info = error_details_pb2.ErrorInfo()
    reasons = [info.reason for detail in status.details if detail.Unpack(info)] if status is not None else []
    return call.code(), reasons[0] if reasons else ""


INVALID = grpc.StatusCode.INVALID_ARGUMENT
PUBLISHES = {
    "a body over 4 MiB": (publish(message=message(body=bytes(4 * MIB + 1))), (INVALID, "MESSAGE_TOO_LARGE")),
    "an unknown ack level": (publish(ack=99), (INVALID, "INVALID_FIELD")),
    "a negative ack level": (publish(ack=-1), (INVALID, "INVALID_FIELD")),
    "a negative queue": (publish(message=message(queue=-1)), (grpc.StatusCode.NOT_FOUND, "QUEUE_NOT_FOUND")),
    "a queue beyond the last": (publish(message=message(queue=2**31 - 1)), (grpc.StatusCode.NOT_FOUND, "QUEUE_NOT_FOUND")),
    "no topic": (publish(message=pb.Message(body=b"x")), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
    "no message": (pb.PublishRequest(), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
    "a topic that is a path": (publish(message=message(topic="../../etc/passwd")), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
    "a topic with a line break": (publish(message=message(topic="a\r\nb\0")), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
    "a topic of 8 MiB": (publish(message=message(topic="a" * 8 * MIB)), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
    "properties over 32 KiB": (publish(message=message(properties={"k": "v" * 33_000})), (INVALID, "MESSAGE_TOO_LARGE")),
    "a tag of 8 MiB": (publish(message=message(tag="t" * 8 * MIB)), (INVALID, "MESSAGE_TOO_LARGE")),
    "a million keys": (publish(message=message(keys=["k"] * 1_000_000)), (INVALID, "MESSAGE_TOO_LARGE")),
    "a property with a separator": (publish(message=message(properties={"k": "a\x01b"})), (INVALID, "INVALID_FIELD")),
    "our own property": (publish(message=message(properties={"__CRC32#": "0"})), (INVALID, "INVALID_FIELD")),
    "a key with a space": (publish(message=message(keys=["a b"])), (INVALID, "INVALID_FIELD")),
    "a producer without a sequence": (publish(producer_id="p"), (INVALID, "INVALID_FIELD")),
    "a negative sequence": (publish(producer_id="p", sequence=-1), (INVALID, "INVALID_FIELD")),
    "a sequence out of nowhere": (publish(producer_id="p", sequence=2**40), (grpc.StatusCode.FAILED_PRECONDITION, "OUT_OF_ORDER_SEQUENCE")),
    "a negative end of the log": (publish(producer_id="p", sequence=0, min_possible_offset=-1), (INVALID, "INVALID_FIELD")),
    "a producer of odd characters": (publish(producer_id="p/../q", sequence=0), (INVALID, "INVALID_FIELD")),
    "a negative timeout": (publish(timeout=Duration(seconds=-1)), (INVALID, "INVALID_FIELD")),
    "a timeout of years": (publish(timeout=Duration(seconds=10**9)), (INVALID, "INVALID_FIELD")),
}
PULLS = {
    "no queue": (pb.PullRequest(topic=TOPIC, offset=0), (INVALID, "INVALID_FIELD")),
    "a negative offset": (pull(offset=-1), (INVALID, "INVALID_FIELD")),
    "the most negative offset": (pull(offset=-HUGE - 1), (INVALID, "INVALID_FIELD")),
    "a negative number of messages": (pull(max_messages=-1), (INVALID, "INVALID_FIELD")),
    "too many messages": (pull(max_messages=2**31 - 1), (INVALID, "INVALID_FIELD")),
    "too many bytes": (pull(max_bytes=2**31 - 1), (INVALID, "INVALID_FIELD")),
    "a wait of years": (pull(wait=Duration(seconds=10**9)), (INVALID, "INVALID_FIELD")),
    "a negative wait": (pull(wait=Duration(seconds=-5)), (INVALID, "INVALID_FIELD")),
    "a token that is none": (pull(at_least="1.2"), (INVALID, "INVALID_FIELD")),
    "a token with a huge offset": (pull(at_least=f"1.{2**70}.a"), (INVALID, "INVALID_FIELD")),
    "a million tags": (pull(tag="||".join(map(str, range(1_000_000)))), (INVALID, "INVALID_FIELD")),
    "a tag of 8 MiB": (pull(tag="t" * 8 * MIB), (INVALID, "INVALID_FIELD")),
    "a topic that is a path": (pull(topic="../commitlog"), (grpc.StatusCode.NOT_FOUND, "TOPIC_NOT_FOUND")),
}
PIN_ID = "0123456789abcdef0123456789abcdef"
MINUTE = Duration(seconds=60)
PINS: dict[str, tuple[str, audit_pb2.PinRequest | audit_pb2.RenewPinRequest | audit_pb2.UnpinRequest, tuple[grpc.StatusCode, str]]] = {
    "no lease": ("Pin", audit_pb2.PinRequest(run="r"), (INVALID, "INVALID_FIELD")),
    "a lease of years": ("Pin", audit_pb2.PinRequest(run="r", lease=Duration(seconds=10**9)), (INVALID, "INVALID_FIELD")),
    "a negative lease": ("Pin", audit_pb2.PinRequest(run="r", lease=Duration(seconds=-60)), (INVALID, "INVALID_FIELD")),
    "no run": ("Pin", audit_pb2.PinRequest(lease=MINUTE), (INVALID, "INVALID_FIELD")),
    "a run with a line break": ("Pin", audit_pb2.PinRequest(run='r"}\n', lease=MINUTE), (INVALID, "INVALID_FIELD")),
    "a run of a megabyte": ("Pin", audit_pb2.PinRequest(run="r" * MIB, lease=MINUTE), (INVALID, "INVALID_FIELD")),
    "bytes before the first": (
        "Pin",
        audit_pb2.PinRequest(run="r", lease=MINUTE, start_offset=-HUGE - 1),
        (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    ),
    "bytes behind the last": (
        "Pin",
        audit_pb2.PinRequest(run="r", lease=MINUTE, start_offset=HUGE),
        (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE"),
    ),
    "a renewal of nobody's pin": (
        "RenewPin",
        audit_pb2.RenewPinRequest(pin_id=PIN_ID, lease=MINUTE),
        (grpc.StatusCode.ABORTED, "SESSION_EXPIRED"),
    ),
    "a renewal by a path": ("RenewPin", audit_pb2.RenewPinRequest(pin_id="../pins", lease=MINUTE), (INVALID, "INVALID_FIELD")),
    "a renewal for ever": (
        "RenewPin",
        audit_pb2.RenewPinRequest(pin_id=PIN_ID, lease=Duration(seconds=2**62)),
        (INVALID, "INVALID_FIELD"),
    ),
    "an end without a pin": ("Unpin", audit_pb2.UnpinRequest(), (INVALID, "INVALID_FIELD")),
    "an end by a megabyte": ("Unpin", audit_pb2.UnpinRequest(pin_id="a" * MIB), (INVALID, "INVALID_FIELD")),
}


@pytest.mark.parametrize("what", PINS)
@pytest.mark.parametrize("name", COPIES)
def test_a_hostile_pin_is_refused_with_its_reason(group: RealGroup, name: str, what: str) -> None:
    method, request, expected = PINS[what]

    with pytest.raises(grpc.RpcError) as raised:
        group.call(name, f"ditto.audit.v1.AuditService/{method}", request, audit_pb2.PinResponse)

    assert refused(raised.value) == expected


def test_more_pins_than_the_limit_are_refused_and_hold_nothing(group: RealGroup) -> None:
    audit = "ditto.audit.v1.AuditService"
    request = audit_pb2.PinRequest(run="flood", lease=MINUTE)
    taken = [group.call(MASTER, f"{audit}/Pin", request, audit_pb2.PinResponse) for _ in range(16)]

    with pytest.raises(grpc.RpcError) as raised:
        group.call(MASTER, f"{audit}/Pin", request, audit_pb2.PinResponse)

    assert refused(raised.value) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "LIMIT_REACHED")
    for pin in taken:
        assert group.call(MASTER, f"{audit}/Unpin", audit_pb2.UnpinRequest(pin_id=pin.pin_id), audit_pb2.UnpinResponse).held


@pytest.mark.parametrize("what", PUBLISHES)
def test_a_hostile_publish_is_refused_with_its_reason(group: RealGroup, what: str) -> None:
    request, expected = PUBLISHES[what]

    with pytest.raises(grpc.RpcError) as raised:
        group.call(MASTER, PUBLISH, request, pb.PublishResponse)

    assert refused(raised.value) == expected


@pytest.mark.parametrize("what", PULLS)
@pytest.mark.parametrize("name", COPIES)
def test_a_hostile_pull_is_refused_with_its_reason(group: RealGroup, name: str, what: str) -> None:
    request, expected = PULLS[what]

    with pytest.raises(grpc.RpcError) as raised:
        group.call(name, PULL, request, pb.PullResponse)

    assert refused(raised.value) == expected


def test_largest_offset_is_out_of_range_on_the_master_only(group: RealGroup) -> None:
    """On a slave it is not there yet."""
    with pytest.raises(grpc.RpcError) as raised:
        group.call(MASTER, PULL, pull(offset=HUGE), pb.PullResponse)
    answer = group.call("a/1", PULL, pull(offset=HUGE), pb.PullResponse)

    assert refused(raised.value) == (grpc.StatusCode.OUT_OF_RANGE, "OFFSET_OUT_OF_RANGE")
    assert (answer.status, answer.next_offset) == (pb.PULL_STATUS_NO_NEW_MESSAGE, HUGE)


def test_a_hostile_batch_is_refused_whole_and_the_stream_goes_on(group: RealGroup) -> None:
    hostile = [
        pb.PublishStreamRequest(batch_id=1, messages=[message()] * 1_025),
        pb.PublishStreamRequest(batch_id=2),
        pb.PublishStreamRequest(batch_id=3, messages=[message(body=bytes(3 * MIB))] * 3),
        pb.PublishStreamRequest(batch_id=4, messages=[message(), message(topic="nowhere"), message()]),
        pb.PublishStreamRequest(batch_id=5, messages=[message(), message(body=bytes(4 * MIB + 1))]),
        pb.PublishStreamRequest(batch_id=6, messages=[message()], ack=UNKNOWN_ACK),
        pb.PublishStreamRequest(batch_id=7, messages=[message()], producer_id="p", first_sequence=2**62),
    ]

    answers = {
        answer.batch_id: answer.refused for answer in group.stream(MASTER, f"{MESSAGING}/PublishStream", hostile, pb.PublishStreamResponse)
    }

    assert {number: (each.reason, each.index if each.HasField("index") else None) for number, each in answers.items()} == {
        1: ("INVALID_FIELD", None),
        2: ("INVALID_FIELD", None),
        3: ("MESSAGE_TOO_LARGE", None),
        4: ("TOPIC_NOT_FOUND", 1),
        5: ("MESSAGE_TOO_LARGE", 1),
        6: ("INVALID_FIELD", None),
        7: ("INVALID_FIELD", None),
    }
    assert answers[1].message == "messages: a frame has 1 to 1,024 messages, not 1,025"


def test_a_request_beyond_every_limit_is_refused_before_it_is_read(group: RealGroup) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        group.call(MASTER, PUBLISH, publish(message=message(body=bytes(64 * MIB))), pb.PublishResponse)

    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("name", "method"), [("nameserver", GET_ROUTE), (MASTER, PUBLISH)])
def test_a_request_that_inflates_beyond_every_limit_is_refused_unallocated(group: RealGroup, name: str, method: str) -> None:
    """256 MiB of zeros in 256 KiB; whatever else the node does meanwhile takes less."""
    before = most_memory(group, name)

    with grpc.insecure_channel(group.address(name), compression=grpc.Compression.Gzip) as channel:
        call: Any = channel.unary_unary(f"/{method}")
        with pytest.raises(grpc.RpcError) as raised:
            call(bytes(256 * MIB), timeout=PATIENCE_S)

    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert most_memory(group, name) - before < 128 * MIB


def most_memory(group: RealGroup, name: str) -> int:
    """Bytes that the node has held in memory at most."""
    status = Path(f"/proc/{group.cluster.pid(name)}/status").read_text(encoding="utf-8")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize("name", ["nameserver", *COPIES])
def test_headers_larger_than_a_header_table_are_refused(group: RealGroup, name: str) -> None:
    with grpc.insecure_channel(group.address(name)) as channel:
        call: Any = channel.unary_unary(f"/{PUBLISH}")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=PATIENCE_S, metadata=[("x-filler", "x" * MIB)])

    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert raised.value.details() == f"received metadata size exceeds hard limit (value length {MIB} vs. 16384)"


@pytest.mark.parametrize("name", ["nameserver", *COPIES])
def test_a_flood_of_silent_connections_keeps_nobody_out(group: RealGroup, name: str) -> None:
    host, _, port = group.address(name).partition(":")

    with contextlib.ExitStack() as silent:
        for _ in range(500):
            silent.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE_S))
        with grpc.insecure_channel(group.address(name)) as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            answer = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_publish_without_a_message_is_refused(group: RealGroup) -> None:
    with grpc.insecure_channel(group.address(MASTER)) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.stream_unary(f"/{PUBLISH}")(iter(()), timeout=PATIENCE_S)

    assert refused(caught.value) == (INVALID, "INVALID_FIELD")


@pytest.mark.parametrize(("name", "method"), [(MASTER, PUBLISH), *((name, PULL) for name in COPIES)])  # a slave reads no message
def test_bytes_that_are_no_message_are_refused(group: RealGroup, name: str, method: str) -> None:
    with grpc.insecure_channel(group.address(name)) as channel:
        call: Any = channel.unary_unary(f"/{method}")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"\xff" * 1_000, timeout=PATIENCE_S)

    assert isinstance(raised.value, grpc.Call)
    assert raised.value.code() is INVALID
    assert "its bytes are no message of this call" in str(raised.value.details())


@pytest.mark.parametrize("name", ["nameserver", *COPIES])
@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 64, b""], ids=["HTTP/1.1", "noise", "silence"])
def test_what_is_no_grpc_at_all_harms_nobody(group: RealGroup, name: str, said: bytes) -> None:
    host, _, port = group.address(name).partition(":")

    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
        connection.sendall(said)


def test_the_replication_port_refuses_who_is_no_slave(group: RealGroup) -> None:
    port = group.cluster.node(MASTER).ports.replication
    assert port is not None

    method, nothing = "ditto.replication.v1.ReplicationService/Replicate", replication_pb2.ReplicateRequest()
    with pytest.raises(grpc.RpcError) as raised:
        group.stream(MASTER, method, [nothing], replication_pb2.ReplicateResponse, port=port)

    assert refused(raised.value)[1] == "INVALID_FIELD"
    assert group.status().in_sync_now == 3


def test_a_hostile_topic_is_not_created(group: RealGroup) -> None:
    for name in ["../x", "a\0b", "", "ö", "a" * 128, "%2e%2e/"]:
        request = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=name))
        with pytest.raises(grpc.RpcError) as raised:
            group.call(MASTER, "ditto.admin.v1.TopicService/CreateTopic", request, admin_pb2.CreateTopicResponse)
        assert refused(raised.value) == (INVALID, "INVALID_FIELD")
