"""③ Many messages encoded at once: steps of numpy over columns instead of a round of Python for each message. Pure.

A batch of hundreds costs less than half of what its messages cost one by one; one of a few costs more. The bytes are those of
`dittomq.commitlog.records.encoding`. What needs a closer look (a topic seen for the first time, a limit, a checksum that a producer
sent) is left to whoever looks at messages one by one.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.columnar_codec import FIELDS, UNITS, Numbers
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, FIXED_BYTES, KEY_NAME, MAGIC_1, Host, sealed_crc
from dittomq.delays import SCHEDULE_TOPIC
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Draft, DraftBatch, DraftRuns
from dittomq.properties import RECORD_CRC

LEAST_MESSAGES = 24
"""From so many messages on it is quicker than one by one."""

_Column = int | tuple[int, ...] | Numbers
_PORT = struct.Struct(">i")
_HEADER_ITEM, _LENGTH_ITEM, _SEAL_ITEM = (np.dtype((np.void, count)) for count in (FIELDS.itemsize, 2, CRC_BYTES))
# A CRC is written with its lowest digit first.
_SEAL = np.dtype([("name", "V9"), ("low", "u4"), ("middle", "u4"), ("high", "u2"), ("end", "V1")])
_UNSEALED = np.frombuffer(sealed_crc(0), _SEAL)
_FOUR = np.uint32(10_000)
_FOUR_DIGITS = np.frombuffer(b"".join((b"%04d" % number)[::-1] for number in range(_FOUR)), np.uint32)
_TWO_DIGITS = _FOUR_DIGITS.view(np.uint16)[::2]
_SEPARATOR = 2
_CRC_NAME = RECORD_CRC.encode()
_PID_NAME = b"PID\x01"


class GroupStamp(NamedTuple):
    """What all records of a group have in common."""

    store_ms: int
    host: Host


class Encoded(NamedTuple):
    """Records one behind the other. Of each: where it begins, where it ends, its unit for the consume queue."""

    data: bytes
    starts: Numbers
    ends: Numbers
    units: NDArray[np.void]


class Neighbours(NamedTuple):
    """Messages [start, end) of a batch, which go into one queue."""

    topic: str
    queue: int
    start: int
    end: int


class _MessageColumns(NamedTuple):
    """What the messages hold; one number stands for all."""

    neighbours: list[Neighbours]
    queues: _Column
    flags: _Column
    born_ms: _Column
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    tags_codes: _Column


@dataclass(frozen=True, slots=True, eq=False)
class BulkMessages:
    """Messages that need no closer look, column by column. `sizes` is what their records take; `keyed`: one may have keys."""

    sizes: Numbers
    size: int
    keyed: bool
    _columns: _MessageColumns
    _names: Sequence[bytes]
    _body_bytes: Numbers
    _properties_bytes: Numbers

    @classmethod
    def of(cls, drafts: Sequence[Draft], names: Mapping[str, bytes], *, identified: bool) -> Self | None:
        """None when one of them needs a closer look. `names` are topics as they are written; `identified`: they carry a producer's id."""
        columns = _columns_of_runs(drafts.runs) if isinstance(drafts, DraftRuns) else _columns_of(drafts)
        written: list[bytes] = []
        for topic, queue, start, end in columns.neighbours:
            if topic not in names or queue < 0 or topic == SCHEDULE_TOPIC:
                return None
            written += [names[topic]] * (end - start)
        joined = b"".join(columns.properties)
        if _contains(joined, _CRC_NAME) or (not identified and _contains(joined, _PID_NAME)):
            return None
        body_bytes, properties_bytes = _lengths(columns.bodies), _lengths(columns.properties)
        last = np.frombuffer(joined, np.uint8)[properties_bytes.cumsum() - 1] if joined else _SEPARATOR
        if body_bytes.max() > MAX_BODY_BYTES or properties_bytes.max() > MAX_PROPERTIES_BYTES - CRC_BYTES:
            return None
        if not np.all((last == _SEPARATOR) | (properties_bytes == 0)):
            return None
        properties_bytes += CRC_BYTES
        topic_bytes = len(written[0]) if len(columns.neighbours) == 1 else _lengths(written)
        sizes = body_bytes + properties_bytes + topic_bytes + (FIXED_BYTES - 1)
        return cls(sizes, int(sizes.sum()), _contains(joined, KEY_NAME), columns, written, body_bytes, properties_bytes)

    @property
    def neighbours(self) -> Sequence[Neighbours]:
        """Which messages go into which queue, in order."""
        return self._columns.neighbours

    @property
    def properties(self) -> Sequence[bytes]:
        """Of each message, as its draft has them."""
        return self._columns.properties

    def encode(self, position: int, queue_offsets: Sequence[int], stamp: GroupStamp) -> Encoded:
        """The records that begin at `position`, all in one segment."""
        ends = position + self.sizes.cumsum()
        starts = ends - self.sizes
        heads = _items(self._headers(starts, queue_offsets, stamp), _HEADER_ITEM)
        lengths = _items(self._properties_bytes.astype(">i2"), _LENGTH_ITEM)
        records = list(map(b"".join, zip(heads, self._columns.bodies, self._names, lengths, self.properties, strict=True)))
        parts: list[bytes] = [b""] * (2 * len(records))
        parts[0::2], parts[1::2] = records, _seals(records)
        units = np.empty(len(heads), UNITS)
        units["position"], units["size"], units["code"] = starts, self.sizes, self._columns.tags_codes
        return Encoded(b"".join(parts), starts, ends, units)

    def _headers(self, starts: Numbers, queue_offsets: Sequence[int], stamp: GroupStamp) -> NDArray[np.void]:
        columns = self._columns
        header = np.zeros(len(starts), FIELDS)
        header["size"] = self.sizes
        header["magic"] = MAGIC_1
        header["body_crc"] = _crcs(columns.bodies)
        header["queue"] = columns.queues
        header["flag"] = columns.flags
        header["queue_offset"] = queue_offsets
        header["position"] = starts
        header["born_ms"] = columns.born_ms
        header["born_host"] = header["store_host"] = np.void(stamp.host.address + _PORT.pack(stamp.host.port))
        header["store_ms"] = stamp.store_ms
        header["body_bytes"] = self._body_bytes
        return header


def _columns_of_runs(runs: Sequence[DraftBatch]) -> _MessageColumns:
    counts = [len(run.bodies) for run in runs]
    ends = list(accumulate(counts))
    neighbours = [Neighbours(run.topic, run.queue, end - count, end) for run, count, end in zip(runs, counts, ends, strict=True)]
    bodies = runs[0].bodies if len(runs) == 1 else list(chain.from_iterable(run.bodies for run in runs))
    properties = runs[0].properties if len(runs) == 1 else list(chain.from_iterable(run.properties for run in runs))

    def column(numbers: list[int]) -> _Column:
        return numbers[0] if _same(numbers) else np.repeat(numbers, counts)

    queues, codes = column([run.queue for run in runs]), column([run.tags_code for run in runs])
    return _MessageColumns(neighbours, queues, 0, column([run.born_ms for run in runs]), bodies, properties, codes)


def _columns_of(drafts: Sequence[Draft]) -> _MessageColumns:
    topics, queues, flags, born_ms, bodies, properties, codes = zip(*drafts, strict=True)
    if _same(topics) and _same(queues):
        neighbours = [Neighbours(topics[0], queues[0], 0, len(drafts))]
    else:
        keys = list(zip(topics, queues, strict=True))
        starts = [row for row in range(len(keys)) if not row or keys[row] != keys[row - 1]]
        neighbours = [Neighbours(*keys[start], start, end) for start, end in pairwise([*starts, len(keys)])]
    return _MessageColumns(neighbours, _column(queues), _column(flags), _column(born_ms), bodies, properties, _column(codes))


def _items(rows: NDArray[Any], item: np.dtype[np.void]) -> list[bytes]:
    """The bytes of each row."""
    found: list[bytes] = rows.view(item).tolist()
    return found


def _seals(records: Sequence[bytes]) -> list[bytes]:
    """The property that seals each record."""
    seals = _UNSEALED.repeat(len(records))
    rest, low = np.divmod(_crcs(records), _FOUR)
    high, middle = np.divmod(rest, _FOUR)
    seals["low"], seals["middle"], seals["high"] = _FOUR_DIGITS[low], _FOUR_DIGITS[middle], _TWO_DIGITS[high]
    return _items(seals, _SEAL_ITEM)


def _crcs(parts: Sequence[bytes]) -> NDArray[np.uint32]:
    return np.fromiter(map(crc32, parts), np.uint32, len(parts)) & np.uint32(CRC_MASK)


def _lengths(parts: Sequence[bytes]) -> Numbers:
    return np.fromiter(map(len, parts), np.int64, len(parts))


def _contains(joined: bytes, name: bytes) -> bool:
    return name[:1] in joined and name in joined  # a single byte is found much quicker


def _same(column: Sequence[object]) -> bool:
    """Whether all are the same as the first."""
    return column.count(column[0]) == len(column)


def _column(numbers: tuple[int, ...]) -> _Column:
    """The same for numpy, which takes one number for all much quicker than many."""
    return numbers[0] if _same(numbers) else numbers
