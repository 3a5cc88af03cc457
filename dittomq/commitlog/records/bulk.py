"""② Many messages encoded at once: steps of numpy over columns instead of a round of Python for each message. Pure.

A frame of hundreds costs less than half of what its messages cost one by one; one of a few costs more. The bytes are those of
`format.encode`. What needs a closer look (a topic seen for the first time, a limit, a checksum that a producer sent) is left to
whoever looks at messages one by one.
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
_HEADER_ITEM, _LENGTH_ITEM = (np.dtype((np.void, count)) for count in (FIELDS.itemsize, 2))
_UNSEALED = sealed_crc(0)
_DIGITS = 10
# A CRC is written with its lowest digit first.
_POWERS = 10 ** np.arange(_DIGITS, dtype=np.uint32)
_DIGITS_AT = np.arange(-_DIGITS - 1, -1)
_SEPARATOR = 2
_CRC_NAME = RECORD_CRC.encode()
_PID_NAME = b"PID\x01"


class Stamp(NamedTuple):
    """What all records of a group have in common."""

    store_ms: int
    host: Host


class Encoded(NamedTuple):
    """Records one behind the other. Of each: where it begins, how long it is, where it ends, its unit for the consume queue."""

    data: bytearray
    positions: list[int]
    sizes: list[int]
    ends: Numbers
    units: NDArray[np.void]


@dataclass(frozen=True, slots=True, eq=False)
class Bulk:
    """Messages that need no closer look, column by column. `size` is what their records take; `keyed`: one may have keys."""

    topics: tuple[str, ...]
    queues: tuple[int, ...]
    properties: tuple[bytes, ...]
    size: int
    keyed: bool
    _flags: tuple[int, ...]
    _born_ms: tuple[int, ...]
    _bodies: tuple[bytes, ...]
    _tags_codes: tuple[int, ...]
    _names: Sequence[bytes]
    _sizes: Numbers
    _body_bytes: Numbers
    _properties_bytes: Numbers

    @classmethod
    def of(cls, drafts: Sequence[Draft], names: Mapping[str, bytes], *, identified: bool) -> Self | None:
        """None when one of them needs a closer look. `names` are topics as they are written; `identified`: they carry a producer's id."""
        topics, queues, flags, born_ms, bodies, properties, codes = zip(*drafts, strict=True)
        try:
            written = [names[topic] for topic in topics]
        except KeyError:
            return None
        joined = b"".join(properties)
        if min(queues) < 0 or joined.find(_CRC_NAME) >= 0 or (not identified and joined.find(_PID_NAME) >= 0):
            return None
        count = len(drafts)
        body_bytes, properties_bytes, name_bytes = (np.fromiter(map(len, each), np.int64, count) for each in (bodies, properties, written))
        last = np.frombuffer(joined, np.uint8)[properties_bytes.cumsum() - 1] if joined else _UNSEALED[-1:]
        if body_bytes.max() > MAX_BODY_BYTES or properties_bytes.max() > MAX_PROPERTIES_BYTES - CRC_BYTES:
            return None
        if not np.all((last == _SEPARATOR) | (properties_bytes == 0)):
            return None
        properties_bytes += CRC_BYTES
        sizes = body_bytes + properties_bytes + name_bytes + (FIXED_BYTES - 1)
        keyed = joined.find(KEY_NAME) >= 0
        return cls(
            topics, queues, properties, int(sizes.sum()), keyed, flags, born_ms, bodies, codes, written, sizes, body_bytes, properties_bytes
        )

    def encode(self, position: int, queue_offsets: Sequence[int], stamp: Stamp) -> Encoded:
        """The records that begin at `position`, all in one segment."""
        ends = position + self._sizes.cumsum()
        starts = ends - self._sizes
        heads = _items(self._headers(starts, queue_offsets, stamp), _HEADER_ITEM)
        lengths = _items(self._properties_bytes.astype(">i2"), _LENGTH_ITEM)
        parts: list[bytes] = [_UNSEALED] * (6 * len(heads))
        parts[0::6], parts[1::6], parts[2::6], parts[3::6], parts[4::6] = heads, self._bodies, self._names, lengths, self.properties
        data = bytearray().join(parts)
        _seal(data, starts - position, ends - position)
        units = np.empty(len(heads), UNITS)
        units["position"], units["size"], units["code"] = starts, self._sizes, self._tags_codes
        return Encoded(data, starts.tolist(), self._sizes.tolist(), ends, units)

    def _headers(self, starts: Numbers, queue_offsets: Sequence[int], stamp: Stamp) -> NDArray[np.void]:
        header = np.zeros(len(starts), FIELDS)
        header["size"] = self._sizes
        header["magic"] = MAGIC_1
        header["body_crc"] = np.fromiter(map(crc32, self._bodies), np.uint32, len(starts)) & CRC_MASK
        header["queue"] = self.queues
        header["flag"] = self._flags
        header["queue_offset"] = queue_offsets
        header["position"] = starts
        header["born_ms"] = self._born_ms
        header["born_host"] = header["store_host"] = np.void(stamp.host.address + _PORT.pack(stamp.host.port))
        header["store_ms"] = stamp.store_ms
        header["body_bytes"] = self._body_bytes
        return header


def _items(rows: NDArray[Any], item: np.dtype[np.void]) -> list[bytes]:
    """The bytes of each row."""
    found: list[bytes] = rows.view(item).tolist()
    return found


def _seal(data: bytearray, starts: Numbers, ends: Numbers) -> None:
    """Put the CRC of each record over the zeros that stand for it."""
    view, stops = memoryview(data), ends - CRC_BYTES
    found = [crc32(view[start:stop]) for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
    crcs = np.array(found, np.uint32) & np.uint32(CRC_MASK)
    digits = crcs[:, None] // _POWERS % np.uint32(10) + np.uint32(ord("0"))
    np.frombuffer(data, np.uint8)[ends[:, None] + _DIGITS_AT] = digits
