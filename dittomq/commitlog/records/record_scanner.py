"""Walks raw bytes of a log from record to record and finds its feet again after damage. Pure; RocketMQ's stores and ours.

A record names its own position, so a place where the magic stands *and* the position is right is a record's start: a body
that happens to hold a record, or a copy of one, cannot fool the search. One that was made for its very place can: there the
checksum of the record around it decides.
"""

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from dittomq.commitlog.records.format import (
    BORN_IPV6,
    FIXED_BYTES,
    MAGIC_1,
    MAGIC_2,
    MAGIC_MARK,
    MARK_BYTES,
    START,
    any_set,
    decode_properties,
    lay_out,
    queue_problem,
)
from dittomq.commitlog.records.format import problem_of as record_problem
from dittomq.properties import KEY_SEPARATOR, KEYS

HEADER_BYTES = 36
"""Size, magic and the record's own position lie in these."""

_OWN_POSITION = struct.Struct(">q")
_STORE_MS_AT = 56
_FIRST_BLOCK_BYTES = 4 * 1024  # a start is as a rule near
_BLOCK_BYTES = 256 * 1024
_MAGICS = (b"\xda\xa3\x20", b"\xcb\xd4\x31\x94")


class Sort(Enum):
    """What a stretch of a log is."""

    RECORD = "record"
    MARK = "end-of-file mark"
    DAMAGED = "damaged"


class Span(NamedTuple):
    """A stretch [start, end) of the log. A mark ends where its segment does; only its first 8 bytes mean anything."""

    sort: Sort
    start: int
    end: int


class Fields(NamedTuple):
    """What a whole record says of itself."""

    topic: str
    queue: int
    queue_offset: int
    store_ms: int
    keys: tuple[str, ...]
    body_start: int
    body_end: int


class View(NamedTuple):
    """Bytes of one segment: `data` begins at position `base`, the segment ends at `segment_end`."""

    data: bytes
    base: int
    segment_end: int

    @property
    def end(self) -> int:
        return self.base + len(self.data)


def span_at(view: View, at: int) -> Span | None:
    """The record or mark that starts at `at`, by its header alone; None when none does or the header is not all in view."""
    index = at - view.base
    if index < 0 or index + MARK_BYTES > len(view.data):
        return None
    size, magic = START.unpack_from(view.data, index)
    if magic == MAGIC_MARK:
        return Span(Sort.MARK, at, at + size) if at + size == view.segment_end else None
    if magic not in {MAGIC_1, MAGIC_2} or not FIXED_BYTES <= size <= view.segment_end - at - MARK_BYTES:
        return None
    if index + HEADER_BYTES > len(view.data) or _OWN_POSITION.unpack_from(view.data, index + 28)[0] != at:
        return None
    return Span(Sort.RECORD, at, at + size)


def next_start(view: View, at: int) -> int | None:
    """The first position at or after `at` where a record or mark starts; None when none does in view."""
    index, block, bytes_in_view = max(0, at - view.base), _FIRST_BLOCK_BYTES, memoryview(view.data)
    while index < len(view.data):
        stop = index + block
        # What lies behind a log's end is as a rule all zeros, and seen to be zero sooner than searched.
        if any_set(bytes_in_view[index : stop + MARK_BYTES]):
            found = min(
                (start for magic in _MAGICS if (start := _found(view, magic, index, stop + MARK_BYTES - 1)) is not None), default=None
            )
            if found is not None:
                return found
        index, block = stop, min(2 * block, _BLOCK_BYTES)
    return None


def spans(view: View, at: int) -> Iterator[Span]:
    """Every stretch from `at`, a record's start, in order and without gaps; ends where the next header is not all in view.

    Where no record starts, a DAMAGED stretch reaches to the next one, or to the end of the view.
    """
    span = span_at(view, at)
    while at < view.end and (span is not None or view.end - at >= HEADER_BYTES):
        if span is not None:
            follower = span_at(view, span.end)
            if follower is not None or (span.end + HEADER_BYTES > view.end and not _swallows(view, span)):
                yield span
                at, span = span.end, follower
                continue
        # Nothing starts behind it: either that is damaged, or the size in this header is.
        again = next_start(view, at + 1)
        if span is not None and (again is None or again >= span.end or _is_whole(view, span)):
            yield span
            at = span.end
            again = next_start(view, at) if again is not None and again < at else again
        stop = view.end if again is None else again
        if stop > at:
            yield Span(Sort.DAMAGED, at, stop)
        at, span = stop, span_at(view, stop)


def problem_of(view: View, span: Span, *, sealed: bool) -> str:
    """Why the record or mark is not whole, empty when it is. `sealed`: its epoch's records all carry the record CRC."""
    if span.sort is Sort.MARK:
        return ""
    if span.sort is Sort.DAMAGED:
        return "no record starts here"
    if span.end > view.end:
        return "it is cut off"
    return record_problem(_bytes(view, span), span.start, sealed=sealed)


def problem_for_node(view: View, span: Span, *, sealed: bool) -> str:
    """The same for a node, for which a record that no queue can hold is damaged too."""
    problem = problem_of(view, span, sealed=sealed)
    return queue_problem(_bytes(view, span)) if span.sort is Sort.RECORD and not problem else problem


def fields_of(view: View, span: Span) -> Fields | None:
    """What the record says of itself; None when its lengths do not add up or it is not all in view."""
    record = _bytes(view, span) if span.sort is Sort.RECORD and span.end <= view.end else b""
    layout = lay_out(record)
    if layout is None:
        return None
    ipv6 = int.from_bytes(record[36:40], "big") & BORN_IPV6
    (store_ms,) = _OWN_POSITION.unpack_from(record, _STORE_MS_AT + (12 if ipv6 else 0))
    properties = decode_properties(record[layout.properties :])
    return Fields(
        topic=record[layout.topic : layout.properties - 2].decode("utf-8", "replace"),
        queue=int.from_bytes(record[12:16], "big", signed=True),
        queue_offset=int.from_bytes(record[20:28], "big", signed=True),
        store_ms=store_ms,
        keys=tuple(properties[KEYS].split(KEY_SEPARATOR)) if KEYS in properties else (),
        body_start=span.start + layout.body,
        body_end=span.start + layout.body_end,
    )


def _swallows(view: View, span: Span) -> bool:
    """Whether a record starts inside another one: then the size of the outer one is damaged."""
    inner = next_start(view, span.start + 1)
    return inner is not None and inner < span.end


def _is_whole(view: View, span: Span) -> bool:
    """Whether a record is whole by its own checksum: then what seems to start inside it is a producer's body."""
    return span.sort is Sort.RECORD and not problem_of(view, span, sealed=False)


def _bytes(view: View, span: Span) -> bytes:
    return view.data[span.start - view.base : span.end - view.base]


def _found(view: View, magic: bytes, index: int, stop: int) -> int | None:
    found = view.data.find(magic, index + 4, max(0, stop))
    while found >= 0:
        at = view.base + found - 4
        if span_at(view, at) is not None:
            return at
        found = view.data.find(magic, found + 1, max(0, stop))
    return None
