"""ditto.messaging.v1 ↔ values: messages that are leased. From the wire comes a valid value or InvalidField."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import consumer_leases_pb2 as pb
from dittomq.consumer.leases import MAX_LEASE_S, LeaseToken, decode_lease_token
from dittomq.consumer.retries import RETRY_TOPIC, tries_before
from dittomq.errors import InvalidField
from dittomq.message import StoredMessage
from dittomq.metadata.topics import check_topic_name
from dittomq.reads import MAX_PULL_WAIT_S
from dittomq.wire.messaging import fill_stored

MAX_LEASED_AT_ONCE: Final = 256
MIN_LEASE_S: Final = 1.0
_DEFAULT_LEASE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReceiveOrder:
    """Which messages, how many, how long to wait for the first, and how long they are the caller's. Seconds."""

    group: str
    topic: str
    max_messages: int
    wait_s: float
    lease_s: float


@dataclass(frozen=True, slots=True)
class Leased:
    """A message and its lease."""

    message: StoredMessage
    token: LeaseToken


def receive_order(request: pb.ReceiveRequest) -> ReceiveOrder:
    """Decode which messages are wanted."""
    check_topic_name(request.topic, "topic")
    most = request.max_messages if request.HasField("max_messages") else 1
    if not 1 <= most <= MAX_LEASED_AT_ONCE:
        raise InvalidField("max_messages", f"{most:,} is outside 1 to {MAX_LEASED_AT_ONCE}")
    wait_s = _seconds(request.wait)
    if not 0 <= wait_s <= MAX_PULL_WAIT_S:
        raise InvalidField("wait", f"{wait_s:g} s is outside 0 to {MAX_PULL_WAIT_S:g} s")
    return ReceiveOrder(request.group, request.topic, most, wait_s, _lease_s(request))


def receive_response(leased: Iterable[Leased], *, prefer_text: bool) -> pb.ReceiveResponse:
    """Encode leased messages."""
    response = pb.ReceiveResponse()
    for each in leased:
        found = response.messages.add(lease_token=each.token.encode(), tries=tries_before(each.message.properties))
        found.topic = each.message.properties.get(RETRY_TOPIC, each.message.topic)
        fill_stored(found.message, each.message, prefer_text=prefer_text)
    return response


def acknowledged_tokens(request: pb.AcknowledgeRequest) -> list[LeaseToken]:
    """Decode what is dealt with."""
    if not 1 <= len(request.lease_tokens) <= MAX_LEASED_AT_ONCE:
        raise InvalidField("lease_tokens", f"has {len(request.lease_tokens):,} tokens; send 1 to {MAX_LEASED_AT_ONCE}")
    return [decode_lease_token(text) for text in request.lease_tokens]


def acknowledge_response(tokens: Sequence[LeaseToken], acknowledged: Sequence[bool]) -> pb.AcknowledgeResponse:
    """Encode what became of each."""
    rows = zip(tokens, acknowledged, strict=True)
    return pb.AcknowledgeResponse(results=[pb.AcknowledgeResult(lease_token=token.encode(), acknowledged=done) for token, done in rows])


def extension(request: pb.ExtendLeaseRequest) -> tuple[LeaseToken, float]:
    """Decode which lease, and how many seconds from now."""
    return decode_lease_token(request.lease_token), _lease_s(request)


def _lease_s(request: pb.ReceiveRequest | pb.ExtendLeaseRequest) -> float:
    lease_s = _seconds(request.lease) if request.HasField("lease") else _DEFAULT_LEASE_S
    if not MIN_LEASE_S <= lease_s <= MAX_LEASE_S:
        raise InvalidField("lease", f"{lease_s:g} s is outside 1 s to 12 h")
    return lease_s


def _seconds(duration: Duration) -> float:
    return float(duration.seconds) + float(duration.nanos) / 1e9
