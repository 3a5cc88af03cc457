"""One table: each error of ours ↔ its gRPC status, both ways.

An error crosses the wire as google.rpc.Status with ErrorInfo (reason, domain, its fields as metadata), BadRequest for a field,
RetryInfo where waiting helps, and details of our own where code acts on numbers. The other side raises the same class with the same fields.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc import StatusCode
from grpc_status import rpc_status

from dittomq import errors
from dittomq._pb.ditto.error.v1 import error_pb2
from dittomq.errors import ConnectionRefused, DittoError, Refused, Unavailable

DOMAIN = "dittomq"
DETAILS_KEY = "grpc-status-details-bin"
_MAX_TEXT_BYTES = 1_000  # of all fields: each is sent up to four times, and from 8 KiB on gRPC may refuse trailing metadata
_MAX_SENTENCE_BYTES = 3_000  # as gRPC writes it beside the details: a byte that is no printable ASCII character takes three
_MAX_PROBLEM_CHARACTERS = 200
_CUT = "…"

STATUS_OF: Mapping[type[DittoError], StatusCode] = {
    errors.InvalidField: StatusCode.INVALID_ARGUMENT,  # the caller must change the request
    errors.TopicNotFound: StatusCode.NOT_FOUND,
    errors.KeyNotFound: StatusCode.NOT_FOUND,
    errors.TopicExists: StatusCode.ALREADY_EXISTS,
    errors.QueueNotFound: StatusCode.NOT_FOUND,
    errors.MessageNotFound: StatusCode.NOT_FOUND,
    errors.GroupNotFound: StatusCode.NOT_FOUND,
    errors.GroupExists: StatusCode.ALREADY_EXISTS,
    errors.MessageTooLarge: StatusCode.INVALID_ARGUMENT,
    errors.OffsetOutOfRange: StatusCode.OUT_OF_RANGE,  # the caller must move its cursor
    errors.NotMaster: StatusCode.FAILED_PRECONDITION,  # refresh the route, then send there
    errors.NotReady: StatusCode.UNAVAILABLE,  # wait
    errors.StaleCopy: StatusCode.UNAVAILABLE,  # ask another node
    errors.NotEnoughReplicas: StatusCode.UNAVAILABLE,  # wait, or bring slaves back
    errors.DiskFull: StatusCode.RESOURCE_EXHAUSTED,
    errors.LimitReached: StatusCode.RESOURCE_EXHAUSTED,  # slow down
    errors.PermissionDenied: StatusCode.PERMISSION_DENIED,
    errors.Unauthenticated: StatusCode.UNAUTHENTICATED,  # show a certificate or a token that is valid
    errors.PreconditionFailed: StatusCode.FAILED_PRECONDITION,  # change the state of the group, then call again
    errors.OutOfOrderSequence: StatusCode.FAILED_PRECONDITION,
    errors.UnknownProducerId: StatusCode.FAILED_PRECONDITION,
    errors.CorruptRecord: StatusCode.DATA_LOSS,  # page someone; read another copy
    errors.WrongCluster: StatusCode.FAILED_PRECONDITION,
    errors.DuplicateBrokerId: StatusCode.ALREADY_EXISTS,
    errors.SessionExpired: StatusCode.ABORTED,  # open a new session
    errors.VersionConflict: StatusCode.ABORTED,  # read again from the first page
    errors.StaleEpoch: StatusCode.ABORTED,
    errors.LogTruncated: StatusCode.ABORTED,  # read again from where it was cut
    errors.StreamReset: StatusCode.ABORTED,  # send a handshake again
    errors.NeedsOperator: StatusCode.FAILED_PRECONDITION,
    errors.UnreadableRecord: StatusCode.FAILED_PRECONDITION,
    errors.StorageFailure: StatusCode.UNKNOWN,  # what was in flight is unknown
    errors.FencedEpoch: StatusCode.UNAVAILABLE,  # the same; ask the new master
}

RETRY_AFTER_MS: Mapping[type[DittoError], int] = {
    errors.NotReady: 1_000,
    errors.NotEnoughReplicas: 1_000,
    errors.LimitReached: 100,
    errors.DiskFull: 10_000,
}

# What gRPC says of a peer that is none of ours, or of a connection that broke, in words that say what to do.
_GRPC_TEXTS = (
    ("lookup failed", "its host name is not known; check the address"),
    ("resolution failed", "its host name is not known; check the address"),
    ("Received http2 header with status", "something else than dittomq listens there; check the address"),
    ("Failed parsing HTTP/2", "something else than dittomq listens there; check the address"),
    ("Method not found", "it does not know this call; check whether the address is a nameserver's or a broker's"),
    ("Internal error from Core", "it ended the call while a message was on its way to it"),  # gRPC lost the status itself
    ("Deadline Exceeded", "no answer in time"),
    ("Cancelling all calls", "it was stopped"),
    ("Socket closed", "the connection broke"),
    ("Connection reset", "the connection broke"),
    ("Broken pipe", "the connection broke"),
    ("Stream removed", "the connection broke"),
    ("ping timeout", "it fell silent and the connection was given up"),
    ("keepalive watchdog timeout", "it fell silent and the connection was given up"),
)

_CLASS_OF: Mapping[str, type[DittoError]] = {kind.reason: kind for kind in STATUS_OF}
_REFUSED = "connection refused"  # of a system, or of the simulated one
_SILENT = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.CANCELLED)


class ErrorFacts(NamedTuple):
    """An error as it crosses the wire, also inside a stream's frame."""

    code: StatusCode
    reason: str
    message: str
    metadata: dict[str, str]


def facts(error: DittoError) -> ErrorFacts:
    """What the other side must know to raise `error` again. Long texts are cut."""
    short = _shortened(error)
    metadata = {field.name: str(getattr(short, field.name)) for field in _fields(type(short))}
    return ErrorFacts(STATUS_OF[type(short)], short.reason, str(short), metadata)


def rebuild(reason: str, metadata: Mapping[str, str]) -> DittoError | None:
    """The error of `reason` with its fields, None when it is not one of ours or a field is malformed.

    A field that is missing, as an older version does not send it, has its default; without one, None.
    """
    kind = _CLASS_OF.get(reason)
    if kind is None:
        return None
    try:
        sent = [field for field in _fields(kind) if field.name in metadata or field.default is dataclasses.MISSING]
        return kind(**{field.name: _value(field.type, metadata[field.name]) for field in sent})
    except (KeyError, ValueError):
        return None


def encode(error: DittoError) -> grpc.Status:
    """The status that a server aborts a call with."""
    code, reason, message, metadata = facts(error)
    status = status_pb2.Status(code=code.value[0], message=_shortened_sentence(message))
    for detail in (error_details_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata), *_details(_shortened(error))):
        status.details.add().Pack(detail)
    return rpc_status.to_status(status)


def decode(error: grpc.aio.AioRpcError, who: str) -> DittoError:
    """The typed error behind a failed call to `who`; Unavailable when the answer, or its absence, was not one of ours."""
    code = error.code()
    for key, value in error.trailing_metadata() or ():
        if key == DETAILS_KEY and isinstance(value, bytes):
            typed = _unpacked(value)
            if typed is not None:
                return typed
    details = error.details() or "no answer"
    problem = next((words for mark, words in _GRPC_TEXTS if mark in details), "")
    if problem:
        return Unavailable(who, problem)
    problem = _short_problem(details)
    if code is StatusCode.UNAVAILABLE and _REFUSED in problem.lower():
        return ConnectionRefused(who, problem)
    return Unavailable(who, problem if code in _SILENT else f"{code.name}: {problem}")


def _short_problem(details: str) -> str:
    """One line; of gRPC's report on a connection what the system said."""
    line = " ".join(details.split())
    # "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused"
    short = f"cannot connect: {line.rpartition(': ')[2]}" if line.startswith("failed to connect to all addresses") else line
    return short if len(short) <= _MAX_PROBLEM_CHARACTERS else short[: _MAX_PROBLEM_CHARACTERS - 1] + "…"


def _unpacked(value: bytes) -> DittoError | None:
    try:
        status = status_pb2.Status.FromString(value)
    except DecodeError:
        return None
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.domain == DOMAIN:
            return rebuild(info.reason, info.metadata)
    return None


def _details(error: DittoError) -> list[Message]:
    found: list[Message] = []
    match error:
        case errors.InvalidField(field=field, problem=problem):
            violation = error_details_pb2.BadRequest.FieldViolation(field=field, description=problem)
            found.append(error_details_pb2.BadRequest(field_violations=[violation]))
        case errors.NotMaster(node=node, master=master):
            found.append(error_pb2.NotMaster(node=node, master_address=master))
        case errors.OffsetOutOfRange(asked=asked, start=start, end=end):
            found.append(error_pb2.OffsetOutOfRange(asked=asked, start=start, end=end))
        case _:
            pass
    retry_ms = RETRY_AFTER_MS.get(type(error))
    if retry_ms is not None:
        found.append(error_details_pb2.RetryInfo(retry_delay=Duration(seconds=retry_ms // 1_000, nanos=retry_ms % 1_000 * 1_000_000)))
    return found


def _fields(kind: type[DittoError]) -> tuple[dataclasses.Field[Any], ...]:
    if not issubclass(kind, Refused | errors.StorageFailure | errors.FencedEpoch):
        raise TypeError(f"{kind.__name__} does not cross the wire")
    return dataclasses.fields(kind)  # type: ignore[arg-type]  # every leaf is a dataclass; a test demands it


def _shortened(error: DittoError) -> DittoError:
    """The longest texts are cut: what a short one leaves of its share goes to those that need more."""
    texts = {field.name: getattr(error, field.name) for field in _fields(type(error)) if field.type is str}
    left, cut = _MAX_TEXT_BYTES, {}
    for done, (name, text) in enumerate(sorted(texts.items(), key=lambda item: len(item[1].encode()))):
        encoded, share = text.encode(), left // (len(texts) - done)
        if len(encoded) > share:
            cut[name] = encoded[: share - len(_CUT.encode())].decode(errors="ignore") + _CUT
        left -= min(len(encoded), share)
    return dataclasses.replace(error, **cut) if cut else error  # type: ignore[type-var]


def _shortened_sentence(text: str) -> str:
    """A sentence may name a long field twice."""
    left = _MAX_SENTENCE_BYTES
    for at, character in enumerate(text):
        left -= 1 if " " <= character <= "~" and character != "%" else 3 * len(character.encode())
        if left < 0:
            return text[: at - 3 * len(_CUT.encode())] + _CUT
    return text


def _value(kind: Any, text: str) -> str | int:
    return int(text) if kind is int else text
