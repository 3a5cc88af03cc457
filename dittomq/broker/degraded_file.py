"""`dittomq/degraded`: what this node knows of ranges that fewer copies confirmed than asked.

A master writes what it records, a slave what its master tells. Its checksum is a value of the document itself, "crc": versions that know
none pass over it, and what they write has none.
"""

import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.errors import UnreadableStore
from dittomq.offsets import PhysicalOffset
from dittomq.replication.degraded import Degraded, DegradedRange, united

PATH = "dittomq/degraded"


@dataclass(frozen=True, slots=True)
class Written:
    """What is written down. The messages of the range that goes on are those up to `counted_to`; None: that is not known."""

    ranges: Degraded = ()
    counted_to: PhysicalOffset | None = None


def load(storage: Storage) -> Written:
    """What was written down; nothing when nothing was. Raises UnreadableStore."""
    if not storage.exists(PATH):
        return Written()
    try:
        kept = _unsealed(read_file(storage, PATH))
        ranges = [_closed(*row) for row in kept["closed"]]
        if kept["open"] is not None:
            since_ms, messages = _number_or_none(kept.get("since_ms")), _number_or_none(kept.get("messages"))
            ranges.append(DegradedRange(PhysicalOffset(_number(kept["open"])), None, since_ms, messages))
        counted_to = kept.get("counted_to")
        return Written(united((), ranges), None if counted_to is None else PhysicalOffset(_number(counted_to)))
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise UnreadableStore(
            PATH, f"the record of degraded ranges is damaged ({problem}); move the file away to go on without it"
        ) from problem


def document(ranges: Iterable[DegradedRange], counted_to: PhysicalOffset | None) -> bytes:
    """All of it, to be written down."""
    closed: list[list[int | None]] = []
    value: dict[str, Any] = {"open": None, "since_ms": None, "counted_to": counted_to, "messages": None}
    for each in ranges:
        if each.end is None:
            value |= {"open": each.start, "since_ms": each.since_ms, "messages": each.messages}
        else:
            closed.append([each.start, each.end, each.since_ms, each.messages])
    value = {"closed": closed} | value
    return json.dumps(value | {"crc": _crc(value)}).encode()


def save(storage: Storage, document: bytes) -> None:
    """Write it down, durably."""
    replace_file(storage, PATH, document)


def save_if_room(storage: Storage, document: bytes) -> bool:
    """Write it down, durably, unless the disk is full; whether that was done."""
    has_room = storage.free_bytes() >= side_file.ROOM_BYTES + len(document)
    if has_room:
        save(storage, document)
    return has_room


def _unsealed(data: bytes) -> Any:
    kept = json.loads(data)
    if "crc" in kept and kept.pop("crc") != _crc(kept):
        raise ValueError("its checksum does not match")
    return kept


def _crc(value: dict[str, Any]) -> int:
    """Of what was written down; read, it is written in the same order again."""
    return zlib.crc32(json.dumps(value).encode())


def _closed(start: object, end: object, since_ms: object = None, messages: object = None) -> DegradedRange:
    """A range as it was written down; the first versions of this program wrote only where it lies."""
    return DegradedRange(PhysicalOffset(_number(start)), PhysicalOffset(_number(end)), _number_or_none(since_ms), _number_or_none(messages))


def _number_or_none(value: object) -> int | None:
    return None if value is None else _number(value)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value
