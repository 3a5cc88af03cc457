"""ditto.coordination.v1 ↔ group records. To a nameserver they are documents; a broker decodes them."""

import re

from dittomq._pb.ditto.coordination.v1 import coordination_pb2 as pb
from dittomq.doors.coordination import Conflict, GroupKey, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.errors import InvalidField, UnreadableRecord
from dittomq.group_record import MAX_RECORD_BYTES, GroupRecord, decode, encode

_BROKER = re.compile(r"[a-zA-Z0-9_.-]{1,63}")
_MAX_VERSION_CHARACTERS = 127

Keyed = pb.GetRequest | pb.CompareAndSetRequest | pb.WatchRequest


def group_key(request: Keyed) -> GroupKey:
    """Which record is asked for. Raises InvalidField."""
    if not _BROKER.fullmatch(request.broker):
        raise InvalidField("broker", f'"{request.broker[:63]}" is not 1 to 63 letters, digits, dots, dashes or underscores')
    return GroupKey(request.cluster, request.broker)


def get_request(key: GroupKey) -> pb.GetRequest:
    return pb.GetRequest(cluster=key.cluster, broker=key.broker)


def get_response(document: str, version: str) -> pb.GetResponse:
    """Both "": there is no record."""
    return pb.GetResponse(record=document.encode(), version=version)


def versioned(response: pb.GetResponse, where: str) -> Versioned | None:
    """What was read from the store `where`. Raises UnreadableRecord."""
    if not response.record and not response.version:
        return None
    if not response.record or not 1 <= len(response.version) <= _MAX_VERSION_CHARACTERS:
        raise UnreadableRecord(where, "it has no version, or it has a version and no content")
    return Versioned(decode(response.record, where), response.version)


def compare_and_set_request(key: GroupKey, record: GroupRecord | None, expected: Versioned | None) -> pb.CompareAndSetRequest:
    """`record` None: delete it."""
    return pb.CompareAndSetRequest(
        cluster=key.cluster,
        broker=key.broker,
        expected_version="" if expected is None else expected.version,
        record=b"" if record is None else encode(record),
    )


def document(request: pb.CompareAndSetRequest) -> str:
    """The new document, "" for none. Raises InvalidField."""
    if len(request.record) > MAX_RECORD_BYTES:
        raise InvalidField("record", f"has {len(request.record):,} bytes, and a record has at most {MAX_RECORD_BYTES:,}")
    try:
        return request.record.decode()
    except UnicodeDecodeError as error:
        raise InvalidField("record", f"is no UTF-8 text ({error})") from error


def compare_and_set_response(version: str | None) -> pb.CompareAndSetResponse:
    """`version` as it is now, "" after a deletion; None: nothing was written."""
    return pb.CompareAndSetResponse(written=version is not None, version=version or "")


def write_outcome(response: pb.CompareAndSetResponse, *, deletes: bool) -> WriteOutcome:
    if not response.written:
        return Conflict()
    if deletes:
        return Written("")
    if not 1 <= len(response.version) <= _MAX_VERSION_CHARACTERS:
        return WriteUnknown("the nameserver wrote the record, and its answer names no version")
    return Written(response.version)


def watch_request(key: GroupKey) -> pb.WatchRequest:
    return pb.WatchRequest(cluster=key.cluster, broker=key.broker)
