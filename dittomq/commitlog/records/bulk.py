"""③ Many messages encoded at once: steps of numpy over columns instead of a round of Python for each message. Pure.

A frame of hundreds costs less than half of what its messages cost one by one; one of a few costs more. The bytes are those of
`dittomq.commitlog.records.encoding`. What needs a closer look (a topic seen for the first time, a limit, a checksum that a producer
sent) is left to whoever looks at messages one by one.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.columns import FIELDS, UNITS, Numbers
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, FIXED_BYTES, KEY_NAME, MAGIC_1, Host, sealed_crc
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Draft
from dittomq.properties import RECORD_CRC

LEAST_MESSAGES = 24
"""From so many messages on it is quicker than one by one."""

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


class Stamp(NamedTuple):
    """What all records of a group have in common."""

    store_ms: int
    host: Host


class Encoded(NamedTuple):
    """Records one behind the other. Of each: where it begins, where it ends, its unit for the consume queue."""

    data: bytes
    starts: Numbers
    ends: Numbers
    units: NDArray[np.void]


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    """Messages that need no closer look, column by column. `sizes` is what their records take; `keyed`: one may have keys."""

    topics: tuple[str, ...]
    queues: tuple[int, ...]
    properties: tuple[bytes, ...]
    sizes: Numbers
    size: int
    keyed: bool
    _flags: tuple[int, ...]
    _born_ms: tuple[int, ...]
    _bodies: tuple[bytes, ...]
    _tags_codes: tuple[int, ...]
    _names: Sequence[bytes]
    _body_bytes: Numbers
    _properties_bytes: Numbers

    @classmethod
    def of(cls, drafts: Sequence[Draft], names: Mapping[str, bytes], *, identified: bool) -> Self | None:
        """None when one of them needs a closer look. `names` are topics as they are written; `identified`: they carry a producer's id."""
        topics, queues, flags, born_ms, bodies, properties, codes = zip(*drafts, strict=True)
        try:
            written = [names[topics[0]]] * len(drafts) if _same(topics) else [names[topic] for topic in topics]
        except KeyError:
            return None
        joined = b"".join(properties)
        if min(queues) < 0 or _holds(joined, _CRC_NAME) or (not identified and _holds(joined, _PID_NAME)):
            return None
        body_bytes, properties_bytes = _lengths(bodies), _lengths(properties)
        last = np.frombuffer(joined, np.uint8)[properties_bytes.cumsum() - 1] if joined else _SEPARATOR
        if body_bytes.max() > MAX_BODY_BYTES or properties_bytes.max() > MAX_PROPERTIES_BYTES - CRC_BYTES:
            return None
        if not np.all((last == _SEPARATOR) | (properties_bytes == 0)):
            return None
        properties_bytes += CRC_BYTES
        sizes = body_bytes + properties_bytes + (len(written[0]) if _same(topics) else _lengths(written)) + (FIXED_BYTES - 1)
        keyed = _holds(joined, KEY_NAME)
        return cls(
            topics, queues, properties, sizes, int(sizes.sum()), keyed, flags, born_ms, bodies, codes, written, body_bytes, properties_bytes
        )

    @property
    def has_one_queue(self) -> bool:
        """Whether all of them are for the same."""
        return _same(self.topics) and _same(self.queues)

    def encode(self, position: int, queue_offsets: Sequence[int], stamp: Stamp) -> Encoded:
        """The records that begin at `position`, all in one segment."""
        ends = position + self.sizes.cumsum()
        starts = ends - self.sizes
        heads = _items(self._headers(starts, queue_offsets, stamp), _HEADER_ITEM)
        lengths = _items(self._properties_bytes.astype(">i2"), _LENGTH_ITEM)
        records = list(map(b"".join, zip(heads, self._bodies, self._names, lengths, self.properties, strict=True)))
        parts: list[bytes] = [b""] * (2 * len(records))
        parts[0::2], parts[1::2] = records, _seals(records)
        units = np.empty(len(heads), UNITS)
        units["position"], units["size"], units["code"] = starts, self.sizes, _column(self._tags_codes)
        return Encoded(b"".join(parts), starts, ends, units)

    def _headers(self, starts: Numbers, queue_offsets: Sequence[int], stamp: Stamp) -> NDArray[np.void]:
        header = np.zeros(len(starts), FIELDS)
        header["size"] = self.sizes
        header["magic"] = MAGIC_1
        header["body_crc"] = _crcs(self._bodies)
        header["queue"] = _column(self.queues)
        header["flag"] = _column(self._flags)
        header["queue_offset"] = queue_offsets
        header["position"] = starts
        header["born_ms"] = _column(self._born_ms)
        header["born_host"] = header["store_host"] = np.void(stamp.host.address + _PORT.pack(stamp.host.port))
        header["store_ms"] = stamp.store_ms
        header["body_bytes"] = self._body_bytes
        return header


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


def _holds(joined: bytes, name: bytes) -> bool:
    return name[:1] in joined and name in joined  # a single byte is found much quicker


def _same(column: tuple[object, ...]) -> bool:
    """Whether all are the same as the first."""
    return column.count(column[0]) == len(column)


def _column(numbers: tuple[int, ...]) -> int | tuple[int, ...]:
    """The same for numpy, which takes one number for all much quicker than many."""
    return numbers[0] if _same(numbers) else numbers
