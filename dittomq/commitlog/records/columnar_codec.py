"""Many records at once, as columns of their fields: one step of numpy instead of one of Python for each record. Pure.

It only ever says "whole". What it does not vouch for may be whole all the same: other versions, hosts of another kind than the first
record's, marks and damage are left to the plain ways, record by record, which alone judge them. Layout: see
`dittomq.commitlog.records.format`.
"""

import struct
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.format import (
    CRC_BYTES,
    CRC_MASK,
    CRC_NAME,
    FIXED_BYTES,
    IPV4,
    IPV6,
    IPV6_FLAGS,
    MAGIC_1,
    MARK_BYTES,
    MAX_QUEUE_OFFSETS,
    Form,
)

Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]

_SIZE = struct.Struct(">i")
FIELDS = np.dtype([
    ("size", ">i4"), ("magic", ">u4"), ("body_crc", ">u4"), ("queue", ">i4"), ("flag", ">i4"), ("queue_offset", ">i8"), ("position", ">i8"),
    ("system_flag", ">i4"), ("born_ms", ">i8"), ("born_host", "V8"), ("store_ms", ">i8"), ("store_host", "V8"), ("reconsumed", ">i4"),
    ("prepared_offset", ">i8"), ("body_bytes", ">i4"),
])  # fmt: skip
"""The fixed fields of a record of version 1 with IPv4 hosts, up to its body."""
_FIELDS_IPV6 = np.dtype([(name, "V20" if name.endswith("_host") else FIELDS[name]) for name in FIELDS.names or ()])
UNITS = np.dtype([("position", ">i8"), ("size", ">i4"), ("code", ">i8")])
"""Units of a consume queue."""
_FLAGS_AT = 39
_DIGITS = 10
_NAME = np.frombuffer(CRC_NAME, np.uint8).reshape(-1, 1)
# A CRC is written with its lowest digit first; a float holds all of them exactly.
_POWERS = 10.0 ** np.arange(_DIGITS)
_PROPERTY_END = 2


@dataclass(frozen=True, slots=True, eq=False)
class RecordColumns:
    """Records that are said to begin at indexes `starts` of `view`; one row in each column for each.

    Where `fits` is false the other columns mean nothing. `topics` and `properties` are indexes of the first byte of each, `ends` of
    the byte behind the record; `properties_bytes` counts the record CRC too. `stated` is the record CRC, -1 for none.
    """

    view: memoryview
    starts: Numbers
    fits: Truths
    ends: Numbers
    topics: Numbers
    topic_bytes: Numbers
    properties: Numbers
    properties_bytes: Numbers
    stated: Numbers
    _header: NDArray[np.void]
    _body_at: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def plain(self) -> Truths:
        """Version 1, hosts like the first record's, in its place, where a queue can be, lengths that add up, and a record CRC at its end.

        With `record_crcs_hold` and, where it matters, `body_crcs_hold` such a record is whole. Its topic's name is not judged.
        """
        return self.fits & (self.stated >= 0)

    @property
    def follows(self) -> Truths:
        """Whether a record begins where the one in the row before ends; false for the first."""
        touches: Truths = np.zeros(len(self.starts), np.bool_)
        np.equal(self.starts[1:], self.ends[:-1], out=touches[1:])
        return touches

    @property
    def bodies(self) -> Numbers:
        """Indexes of the first byte of each body."""
        return self.starts + self._body_at

    def field(self, name: str) -> Numbers:
        """A column of the header: size, magic, body_crc, queue, flag, queue_offset, position, system_flag, born_ms, store_ms,
        reconsumed, prepared_offset or body_bytes.
        """
        return self._header[name].astype(np.int64)

    def first(self, count: int) -> "RecordColumns":
        """The first rows only."""
        return self if count == len(self) else self.part(slice(count))

    def part(self, rows: slice) -> "RecordColumns":
        """Some of the rows."""
        return RecordColumns(
            self.view, self.starts[rows], self.fits[rows], self.ends[rows], self.topics[rows], self.topic_bytes[rows],
            self.properties[rows], self.properties_bytes[rows], self.stated[rows], self._header[rows], self._body_at,
        )  # fmt: skip


def follow(data: bytes | memoryview, at: int = 0, most: int = 1 << 62) -> list[int]:
    """Indexes at which records begin, one behind the other from index `at` on by their sizes; at most so many, all in `data`.

    A mark, or damage that leaves the size possible, is among them.
    """
    starts: list[int] = []
    last, length, unpack = len(data) - FIXED_BYTES, len(data), _SIZE.unpack_from
    for _ in range(most):
        if at > last:
            break
        (size,) = unpack(data, at)
        if size < FIXED_BYTES or at + size > length:
            break
        starts.append(at)
        at += size
    return starts


def columns_of(data: bytes | memoryview, base: int, starts: Numbers, segment_end: int, *, sealed: bool = True) -> RecordColumns:
    """What stands at each of the indexes `starts` of `data`, which begins at position `base` of a segment that ends at `segment_end`.

    Any index may be given, in any order, also one outside `data`: no record fits there. `sealed` False: nobody asks for the record
    CRCs, and none is looked for.
    """
    view, length = memoryview(data), len(data)
    form, fields = _form_of(view, starts)
    body_at, fixed_bytes = form.header.size, form.fixed_bytes
    if length < fixed_bytes:
        return _nowhere(view, starts)
    safe = np.minimum(np.maximum(starts, 0), length - fixed_bytes)
    header = windows(view, safe, body_at).view(fields).reshape(-1)
    sizes, body_bytes = header["size"].astype(np.int64), header["body_bytes"].astype(np.int64)
    ends = safe + sizes
    fits = (
        (safe == starts) & (header["magic"] == MAGIC_1) & (header["system_flag"] & IPV6_FLAGS == form.system_flag)
        & (header["position"] == safe + base) & (header["queue"] >= 0)
        & (header["queue_offset"].astype(np.uint64) < MAX_QUEUE_OFFSETS) & (ends <= min(length, segment_end - MARK_BYTES - base))
        & (body_bytes >= 0) & (body_bytes <= sizes - fixed_bytes)
    )  # fmt: skip
    whole = np.frombuffer(view, np.uint8)
    body_ends = np.where(fits, safe + body_at + body_bytes, 0)
    topic_bytes = whole[body_ends].astype(np.int64)
    properties = body_ends + topic_bytes + 3
    fits &= properties <= ends
    lengths = windows(view, np.where(fits, properties - 2, 0), 2).view(">i2").reshape(-1).astype(np.int64)
    fits &= properties + lengths == ends
    stated = np.full(len(starts), -1)
    if sealed:
        stated = np.where(fits & (lengths >= CRC_BYTES), _stated(view, np.where(fits, ends, length)), -1)
    return RecordColumns(view, safe, fits, ends, body_ends + 1, topic_bytes, properties, lengths, stated, header, body_at)


def record_crcs_hold(columns: RecordColumns) -> Truths:
    """Whether each record's bytes give the CRC that it states; false for one that is not plain."""
    rows = np.flatnonzero(columns.plain)
    whole: Truths = np.zeros(len(columns), np.bool_)
    whole[rows] = _crcs(columns.view, columns.starts[rows], columns.ends[rows] - CRC_BYTES) == columns.stated[rows]
    return whole


def body_crcs_hold(columns: RecordColumns) -> Truths:
    """Whether each body gives the CRC in its record's header, as far as it is not empty; false for a record that does not fit."""
    rows = np.flatnonzero(columns.fits)
    lengths, bodies = columns.field("body_bytes")[rows], columns.bodies[rows]
    whole: Truths = np.zeros(len(columns), np.bool_)
    whole[rows] = (lengths == 0) | (_crcs(columns.view, bodies, bodies + lengths) == columns.field("body_crc")[rows])
    return whole


def both_crcs_hold(columns: RecordColumns) -> Truths:
    """Whether `record_crcs_hold` and `body_crcs_hold`; sooner than one after the other, a body is still near when it is read again."""
    plain = columns.plain
    rows = slice(None) if plain.all() else np.flatnonzero(plain)
    bodies, lengths = columns.bodies[rows], columns.field("body_bytes")[rows]
    low = np.stack((columns.starts[rows], bodies), axis=1)
    high = np.stack((columns.ends[rows] - CRC_BYTES, bodies + lengths), axis=1)
    found = _crcs(columns.view, low.ravel(), high.ravel()).reshape(-1, 2)
    whole: Truths = np.zeros(len(columns), np.bool_)
    whole[rows] = (found[:, 0] == columns.stated[rows]) & ((found[:, 1] == columns.field("body_crc")[rows]) | (lengths == 0))
    return whole


def windows(view: memoryview, at: Numbers, count: int) -> NDArray[np.uint8]:
    """`count` bytes from each of these indexes on, one row for each. All of them must lie in the view."""
    kind = np.dtype((np.void, count))
    every: NDArray[np.void] = np.ndarray((len(view) - count + 1,), kind, view, 0, (1,))
    return every[at].view(np.uint8).reshape(-1, count)


def _crcs(view: memoryview, low: Numbers, high: Numbers) -> Numbers:
    """Of the bytes [low, high) of each."""
    found = [crc32(view[start:stop]) for start, stop in zip(low.tolist(), high.tolist(), strict=True)]
    return np.frombuffer(array("I", found), np.uint32).astype(np.int64) & CRC_MASK


def _stated(view: memoryview, ends: Numbers) -> Numbers:
    """The record CRC that stands before each of these indexes; -1 where none does."""
    seals = np.ascontiguousarray(windows(view, ends - CRC_BYTES, CRC_BYTES).T)  # numpy is slow along a short last axis
    digits = seals[len(_NAME) : -1] - np.uint8(ord("0"))
    there = (seals[: len(_NAME)] == _NAME).all(axis=0) & (digits.max(axis=0) <= 9) & (seals[-1] == _PROPERTY_END)
    return np.where(there, (_POWERS @ digits.astype(np.float64)).astype(np.int64), -1)


def _form_of(view: memoryview, starts: Numbers) -> tuple[Form, np.dtype[np.void]]:
    """Of the first record; the others are mostly of one node too."""
    at = int(starts[0]) + _FLAGS_AT if len(starts) else -1
    return (IPV6, _FIELDS_IPV6) if 0 <= at < len(view) and view[at] & IPV6_FLAGS == IPV6_FLAGS else (IPV4, FIELDS)


def _nowhere(view: memoryview, starts: Numbers) -> RecordColumns:
    nothing: Any = np.zeros(len(starts), np.int64)
    fits: Truths = np.zeros(len(starts), np.bool_)
    return RecordColumns(view, starts, fits, nothing, nothing, nothing, nothing, nothing, nothing - 1, np.zeros(len(starts), FIELDS), 0)
