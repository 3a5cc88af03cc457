"""ditto.messaging.v1 ↔ values: look-ups and cancellations. From the wire comes a valid value or InvalidField."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.message import StoredMessage
from dittomq.reads import DEFAULT_FOUND_MESSAGES, MAX_FOUND_MESSAGES, MAX_KEY_CHARACTERS, MAX_LONG, KeyPage, KeyQuery
from dittomq.wire.messaging import fill_stored, stored_message
from dittomq.wire.publishing import duration_s
from dittomq.wire.times import ms_from_pb, timestamp_to_pb


class CancelOutcome(Enum):
    """What became of a cancellation."""

    CANCELLED = pb.CANCEL_OUTCOME_CANCELLED
    ALREADY_DELIVERED = pb.CANCEL_OUTCOME_ALREADY_DELIVERED
    UNKNOWN = pb.CANCEL_OUTCOME_UNKNOWN


class CancelOrder(NamedTuple):
    """Which message, by the token of its receipt, and how long to wait; None: the broker's default."""

    token: str
    timeout_s: float | None


def time_of_queue(request: pb.FindOffsetRequest) -> tuple[str, int, int]:
    """Topic, queue and time in ms."""
    if not request.HasField("queue"):
        raise InvalidField("queue", "is missing; 0 is the first")
    if not request.HasField("time"):
        raise InvalidField("time", "is missing")
    return request.topic, request.queue, ms_from_pb(request.time)


def find_offset_request(topic: str, queue: int, time_ms: int) -> pb.FindOffsetRequest:
    """Ask for the offset of a time."""
    return pb.FindOffsetRequest(topic=topic, queue=queue, time=timestamp_to_pb(time_ms))


def key_query(request: pb.FindMessagesRequest) -> KeyQuery:
    """What is looked for, its limits checked."""
    if not 1 <= len(request.key) <= MAX_KEY_CHARACTERS or " " in request.key:
        raise InvalidField("key", f"has 1 to {MAX_KEY_CHARACTERS:,} characters and no space")
    if not 0 <= request.page_size <= MAX_FOUND_MESSAGES:
        raise InvalidField("page_size", f"{request.page_size:,} is outside 0 to {MAX_FOUND_MESSAGES}; 0 means {DEFAULT_FOUND_MESSAGES}")
    from_ms = ms_from_pb(request.from_time) if request.HasField("from_time") else 0
    to_ms = ms_from_pb(request.to_time) if request.HasField("to_time") else MAX_LONG
    if from_ms > to_ms:
        raise InvalidField("from_time", "is behind to_time")
    return KeyQuery(request.topic, request.key, from_ms, to_ms, request.page_size, request.page_token)


def find_messages_request(query: KeyQuery) -> pb.FindMessagesRequest:
    """Ask for a page."""
    request = pb.FindMessagesRequest(topic=query.topic, key=query.key, page_size=query.page_size, page_token=query.page_token)
    if query.from_ms > 0:
        request.from_time.CopyFrom(timestamp_to_pb(query.from_ms))
    if query.to_ms < MAX_LONG:
        request.to_time.CopyFrom(timestamp_to_pb(query.to_ms))
    return request


def found_message(message: StoredMessage, *, prefer_text: bool) -> pb.GetMessageResponse:
    """One message; its body as text where that was asked for and it is UTF-8."""
    response = pb.GetMessageResponse()
    fill_stored(response.message, message, prefer_text=prefer_text)
    return response


def found_messages(messages: Iterable[StoredMessage], next_token: str, *, prefer_text: bool) -> pb.FindMessagesResponse:
    """A page."""
    response = pb.FindMessagesResponse(next_page_token=next_token)
    for message in messages:
        fill_stored(response.messages.add(), message, prefer_text=prefer_text)
    return response


def key_page(response: pb.FindMessagesResponse) -> KeyPage:
    """Decode a page."""
    return KeyPage(tuple(stored_message(message) for message in response.messages), response.next_page_token)


def cancel_order(request: pb.CancelRequest) -> CancelOrder:
    """Which message is not to be delivered."""
    return CancelOrder(request.token, duration_s("timeout", request.timeout) if request.HasField("timeout") else None)


def cancel_request(order: CancelOrder) -> pb.CancelRequest:
    """Ask for it."""
    request = pb.CancelRequest(token=order.token)
    if order.timeout_s is not None:
        request.timeout.CopyFrom(Duration(seconds=int(order.timeout_s), nanos=int(order.timeout_s % 1 * 1_000_000_000)))
    return request


def cancel_outcome(response: pb.CancelResponse) -> CancelOutcome:
    """What became of it; an outcome that this version does not know is unknown."""
    known = {outcome.value: outcome for outcome in CancelOutcome}
    return known.get(response.outcome, CancelOutcome.UNKNOWN)
