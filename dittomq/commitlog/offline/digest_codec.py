"""Digest files as bytes: JSON with a checksum of its own, so that a damaged file is never taken for a damaged store.

The checksum holds for a file that somebody wrote by hand too, so every field is looked at before anything is made of it.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import xxhash

from dittomq.commitlog.offline.store_digest import (
    FINE_LEAF_BYTES,
    MAX_FINE_RANGE_BYTES,
    VERSION,
    InvalidDigestFile,
    Range,
    RecordDigest,
    SegmentLeaves,
    StoreDigest,
)
from dittomq.copies import DIGEST_BYTES, LEAF_BYTES
from dittomq.errors import DittoError

_KINDS = ("dittomq", "RocketMQ")
_LARGEST = (1 << 63) - 1
_LARGEST_32 = (1 << 31) - 1
_SHOWN_LETTERS = 40


@dataclass(eq=False)
class _Unfit(DittoError):
    """A field does not hold what it should."""

    field: str
    problem: str

    def __str__(self) -> str:
        return f'its field "{self.field}" {self.problem}'


def to_bytes(digest: StoreDigest) -> bytes:
    """The file."""
    body: dict[str, Any] = {
        "dittomq_digest": VERSION,
        "kind": digest.kind,
        "segment_bytes": digest.segment_bytes,
        "low": digest.low,
        "end": digest.end,
        "leaf_bytes": digest.leaf_bytes,
        "asked": digest.asked,
        "segments": [
            [each.start, each.end, each.closed, base64.b64encode(b"".join(each.leaves)).decode(), each.unreadable]
            for each in digest.segments
        ],
        "damaged": digest.damaged,
        "damaged_left_out": digest.damaged_left_out,
        "records": [
            [each.start, each.end, each.topic, each.queue, each.queue_offset, each.keys, each.store_ms, each.digest, each.problem]
            for each in digest.records
        ],
    }
    return json.dumps({**body, "check": _check(body)}).encode() + b"\n"


def from_bytes(data: bytes, name: str) -> StoreDigest:
    """Read a digest file; raises InvalidDigestFile, which names the field that is wrong."""
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or "check" not in body:
            raise InvalidDigestFile(name, "it does not hold what such a file holds")
        check = body.pop("check")
        version = _field(body, "dittomq_digest")
        if type(version) is not int or version != VERSION:
            raise InvalidDigestFile(name, f"it has version {_shown(version)}, this program reads {VERSION}")
        if check != _check(body):
            raise InvalidDigestFile(name, "it is damaged itself")
        return _digest_of(body)
    except _Unfit as unfit:
        raise InvalidDigestFile(name, str(unfit)) from unfit
    except (ValueError, RecursionError) as error:
        raise InvalidDigestFile(name, "it is not JSON as such a file is") from error


def _digest_of(body: dict[str, Any]) -> StoreDigest:
    kind = _field(body, "kind")
    if kind not in _KINDS:
        raise _Unfit("kind", f"is {_shown(kind)}, neither {' nor '.join(_KINDS)}")
    segment_bytes = _number(_field(body, "segment_bytes"), "segment_bytes", 1, _LARGEST)
    low = _number(_field(body, "low"), "low", 0, _LARGEST)
    if low % segment_bytes:
        raise _Unfit("low", f"is {low:,}, where no segment of {segment_bytes:,} bytes begins")
    asked = _asked(_field(body, "asked"))
    leaf_bytes = LEAF_BYTES if asked is None else FINE_LEAF_BYTES
    if _number(_field(body, "leaf_bytes"), "leaf_bytes", 1, _LARGEST) != leaf_bytes:
        raise _Unfit("leaf_bytes", f"is {body['leaf_bytes']:,}, not {leaf_bytes:,}")
    frame = _DigestShape(segment_bytes, low, _number(_field(body, "end"), "end", low, _LARGEST), leaf_bytes, asked)
    damaged = tuple(frame.damaged(_field(body, "damaged")))
    left_out = _number(body.get("damaged_left_out", 0), "damaged_left_out", 0, _LARGEST)
    if left_out and not damaged:
        raise _Unfit("damaged_left_out", f'is {left_out:,}, though "damaged" names no stretch before those')
    segments, records = tuple(frame.segments(_field(body, "segments"))), tuple(frame.records(_field(body, "records")))
    return StoreDigest(kind, segment_bytes, low, frame.end, leaf_bytes, asked, segments, damaged, records, left_out)


def _asked(value: object) -> Range | None:
    if value is None:
        return None
    start, end = _row(value, "asked", 2)
    asked = _range(start, end, "asked", 0, most=_LARGEST)
    if asked.end - asked.start > MAX_FINE_RANGE_BYTES:
        raise _Unfit("asked", f"is a range of {asked.end - asked.start:,} bytes, more than {MAX_FINE_RANGE_BYTES:,}")
    return asked


@dataclass(frozen=True, slots=True)
class _DigestShape:
    """What all parts of a digest must fit."""

    segment_bytes: int
    low: int
    end: int
    leaf_bytes: int
    asked: Range | None

    def segments(self, rows: object) -> Iterator[SegmentLeaves]:
        behind = self.low
        for number, row in enumerate(_list(rows, "segments")):
            field = f"segments[{number}]"
            start, end, closed, leaves, why = _row(row, field, 5)
            found = _range(start, end, field, behind, most=_LARGEST)
            segment_start = found.start - found.start % self.segment_bytes
            behind = segment_start + self.segment_bytes
            if type(closed) is not bool:
                raise _Unfit(field, f"says {_shown(closed)}, not true or false, for whether anything comes behind it")
            made = SegmentLeaves(found.start, found.end, closed, _leaves(leaves, field), _text(why, field))
            if made.unreadable:
                self._check_unread(made, field, Range(segment_start, behind))
            else:
                self._check_read(made, field, Range(segment_start, behind))
            yield made

    def _check_unread(self, made: SegmentLeaves, field: str, segment: Range) -> None:
        if (made.start, made.end) != segment:
            raise _Unfit(field, f"was not read, and is not the segment of bytes {segment.start:,} to {segment.end:,}")
        if made.leaves:
            raise _Unfit(field, f"was not read, and has {len(made.leaves):,} leaves")

    def _check_read(self, made: SegmentLeaves, field: str, segment: Range) -> None:
        first, stop = segment.start, min(segment.end, self.end)
        if self.asked is not None:
            wanted = max(first, self.asked.start)
            first, stop = wanted - (wanted - first) % self.leaf_bytes, min(stop, self.asked.end)
        if made.start != first or made.end > stop:
            raise _Unfit(field, f"is of bytes {made.start:,} to {made.end:,}; it begins at {first:,} and ends at {stop:,} at most")
        leaves = -(-(made.end - made.start) // self.leaf_bytes)
        if len(made.leaves) != leaves:
            raise _Unfit(field, f"has {len(made.leaves):,} leaves; its {made.end - made.start:,} bytes have {leaves:,}")

    def damaged(self, rows: object) -> Iterator[Range]:
        behind = self.low
        for number, row in enumerate(_list(rows, "damaged")):
            field = f"damaged[{number}]"
            start, end = _row(row, field, 2)
            found = _range(start, end, field, behind, most=_LARGEST)
            if self.end <= found.start:
                raise _Unfit(field, f"begins at {found.start:,}, where the log has ended at {self.end:,}")
            behind = found.end
            yield found

    def records(self, rows: object) -> Iterator[RecordDigest]:
        behind = self.low
        for number, row in enumerate(_list(rows, "records")):
            field = f"records[{number}]"
            start, end, topic, queue, queue_offset, keys, store_ms, digest, problem = _row(row, field, 9)
            found = _range(start, end, field, behind, most=self.end)
            if self.asked is None or self.asked.end <= found.start or found.end <= self.asked.start:
                raise _Unfit(field, "has no byte of the range in which records were asked for")
            behind = found.end
            if not isinstance(digest, str) or len(digest) != 2 * DIGEST_BYTES or set(digest) - set("0123456789abcdef"):
                raise _Unfit(field, f"has a digest that is not {2 * DIGEST_BYTES} hexadecimal digits: {_shown(digest)}")
            yield RecordDigest(
                *found,
                topic=_text(topic, field),
                queue=_number(queue, field, -_LARGEST_32 - 1, _LARGEST_32),
                queue_offset=_number(queue_offset, field, -_LARGEST - 1, _LARGEST),
                keys=tuple(_text(key, field) for key in _list(keys, field)),
                store_ms=_number(store_ms, field, -_LARGEST - 1, _LARGEST),
                digest=digest,
                problem=_text(problem, field),
            )


def _field(body: dict[str, Any], field: str) -> Any:
    if field not in body:
        raise _Unfit(field, "is missing")
    return body[field]


def _number(value: object, field: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise _Unfit(field, f"has {_shown(value)} where a whole number from {least:,} to {most:,} belongs")
    return value


def _range(start: object, end: object, field: str, least: int, *, most: int) -> Range:
    """Of at least one byte, within [least, most)."""
    first = _number(start, field, least, most)
    return Range(first, _number(end, field, first + 1, most))


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not _is_unicode(value):
        raise _Unfit(field, f"has {_shown(value)} where a text belongs")
    return value


def _is_unicode(text: str) -> bool:
    """Whether it can be printed: JSON can spell halves of letters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _list(value: object, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise _Unfit(field, f"has {_shown(value)} where a list belongs")
    return value


def _row(value: object, field: str, length: int) -> list[Any]:
    row = _list(value, field)
    if len(row) != length:
        raise _Unfit(field, f"has {len(row):,} values, not {length}")
    return row


def _leaves(value: object, field: str) -> tuple[bytes, ...]:
    try:
        joined = base64.b64decode(_text(value, field), validate=True)
    except ValueError as error:
        raise _Unfit(field, f"has leaves that are not base64: {_shown(value)}") from error
    if len(joined) % DIGEST_BYTES:
        raise _Unfit(field, f"has leaves of {len(joined):,} bytes, and each has {DIGEST_BYTES}")
    return tuple(joined[at : at + DIGEST_BYTES] for at in range(0, len(joined), DIGEST_BYTES))


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}…"


def _check(body: dict[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
