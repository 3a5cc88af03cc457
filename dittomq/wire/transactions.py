"""ditto.messaging.v1 ↔ values: transactions. From the wire comes a valid value or InvalidField."""

from typing import NamedTuple

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import transactions_pb2 as pb
from dittomq.errors import InvalidField
from dittomq.message import StoredMessage
from dittomq.transactions import TransactionEnd, check_group
from dittomq.wire.messaging import fill_stored, stored_message
from dittomq.wire.publishing import duration_s

_END_FROM_PB = {pb.TRANSACTION_END_COMMIT: TransactionEnd.COMMIT, pb.TRANSACTION_END_ROLLBACK: TransactionEnd.ROLLBACK}
_END_TO_PB = {end: number for number, end in _END_FROM_PB.items()}


class EndOrder(NamedTuple):
    """Which transaction ends how, and how long to wait until that is confirmed; None: the broker's default."""

    token: str
    end: TransactionEnd
    timeout_s: float | None


class TransactionCheck(NamedTuple):
    """A transaction that nobody has ended yet: `token` ends it, `message` is what waits, for `topic`."""

    token: str
    topic: str
    message: StoredMessage
    attempt: int


def end_order(request: pb.EndTransactionRequest) -> EndOrder:
    """Which transaction ends how."""
    end = _END_FROM_PB.get(request.end)
    if end is None:
        raise InvalidField("end", f"{request.end} is no end of a transaction; use TRANSACTION_END_COMMIT or TRANSACTION_END_ROLLBACK")
    return EndOrder(request.token, end, duration_s("timeout", request.timeout) if request.HasField("timeout") else None)


def end_request(order: EndOrder) -> pb.EndTransactionRequest:
    """Ask for it."""
    request = pb.EndTransactionRequest(token=order.token, end=_END_TO_PB[order.end])
    if order.timeout_s is not None:
        request.timeout.CopyFrom(Duration(seconds=int(order.timeout_s), nanos=int(order.timeout_s % 1 * 1_000_000_000)))
    return request


def watched_group(request: pb.WatchChecksRequest) -> str:
    """The producer group."""
    check_group(request.group)
    return request.group


def check_to_pb(check: TransactionCheck) -> pb.WatchChecksResponse:
    """One question."""
    response = pb.WatchChecksResponse(token=check.token, topic=check.topic, attempt=check.attempt)
    fill_stored(response.message, check.message, prefer_text=False)
    return response


def check_from_pb(response: pb.WatchChecksResponse) -> TransactionCheck:
    """The same, as a producer hears it."""
    return TransactionCheck(response.token, response.topic, stored_message(response.message), response.attempt)
