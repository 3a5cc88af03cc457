"""⑧ Neighbouring messages of a queue as their records, and messages out of those: for records as we mostly write them. Pure.

A node looks whether they are whole and hands them on as they lie in its log; whoever wants messages makes them of that, mostly in
another process.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.compression import COMPRESSED
from dittomq.commitlog.records.decoding import values_of
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, CRC_NAME, FIXED_BYTES, HEADER, IPV6_FLAGS, MAGIC_1
from dittomq.errors import CorruptRecord
from dittomq.message import StoredMessage

_ODD_FLAGS = IPV6_FLAGS | COMPRESSED
_HEADER_BYTES = HEADER.size
# size, magic, queue, queue offset, physical offset, system flag, body length
_PLACED = struct.Struct(">iI4xi4xqqi44xi")
# size, magic, queue, flag, queue offset, physical offset, system flag, born ms, store ms, body length
_FIELDS = struct.Struct(">iI4xiiqqiq8xq20xi")
_PRODUCER = b"PID\x01"
_SEQUENCE = b"SEQ\x01"
_NONE = b"\x02"  # no properties begin with it
_PROPERTY_END = 2
_MOST_PROPERTIES = 1 << 15


class Place(NamedTuple):
    """A message of a queue: its offset there, where its record begins, and the size of that."""

    offset: int
    position: int
    size: int

    @property
    def end(self) -> int:
        """One past the record's last byte."""
        return self.position + self.size


def count_whole(block: bytes, base: int, places: Sequence[Place], *, topic: str, queue: int) -> int:
    """How many of these places of one queue, from the first on, hold the record of its message, whole and as we write them mostly.

    `block` begins at position `base` and holds their records, which are sealed.
    """
    view, unpack, length, count = memoryview(block), _PLACED.unpack_from, len(block), 0
    named = _named(topic)
    named_bytes = len(named) + 2
    lasts, behind = -1, named  # neighbours mostly have as many bytes of properties: what stands behind the body of such a one
    for offset, position, size in places:
        at = position - base
        end = at + size
        tail, body = end - CRC_BYTES, at + _HEADER_BYTES
        if end > length or body > tail:
            break
        stated, magic, its_queue, its_offset, its_position, odd, body_bytes = unpack(block, at)
        named_at = body + body_bytes
        properties = named_at + named_bytes
        digits = block[end - 2 : tail + 8 : -1]
        if end - properties != lasts and 0 <= end - properties < _MOST_PROPERTIES:
            lasts = end - properties
            behind = named + lasts.to_bytes(2, "big")
        if (
            its_position != position
            or its_offset != offset
            or stated != size
            or magic != MAGIC_1
            or its_queue != queue
            or odd & _ODD_FLAGS
            or not body <= named_at <= properties <= tail
            or end - properties != lasts
            or not block.startswith(behind, named_at)
            or not block.startswith(CRC_NAME, tail)
            or block[end - 1] != _PROPERTY_END
            or not digits.isdigit()
            or int(digits) != crc32(view[at:tail]) & CRC_MASK
        ):
            break
        count += 1
    return count


def messages_in(records: bytes, *, topic: str, queue: int, node: str) -> list[StoredMessage]:
    """The messages of records of one queue that `count_whole` counted at `node`, one behind the other.

    They may have come a long way, so they are checked once more. Raises CorruptRecord.
    """
    found: list[StoredMessage] = []
    add, view, unpack, make, length = found.append, memoryview(records), _FIELDS.unpack_from, tuple.__new__, len(records)
    named = _named(topic)
    named_bytes = len(named) + 2
    # Neighbours are mostly of one producer, and differ in nothing but their sequence.
    opening, rest, (keys, tag, values) = _NONE, b"", values_of(b"")
    opening_bytes, at, last_tail = len(opening), 0, length - CRC_BYTES
    while at < length:
        if length - at < FIXED_BYTES:
            raise CorruptRecord(node, 0, "it came cut off")
        stated, magic, its_queue, flag, offset, position, odd, born_ms, store_ms, body_bytes = unpack(records, at)
        body, end = at + _HEADER_BYTES, at + stated
        body_end, tail = body + body_bytes, end - CRC_BYTES
        properties = body_end + named_bytes
        digits = records[end - 2 : tail + 8 : -1]
        if (
            not at < body <= body_end <= properties <= tail <= last_tail
            or magic != MAGIC_1
            or its_queue != queue
            or odd & _ODD_FLAGS
            or not records.startswith(named, body_end)
            or not digits.isdigit()
            or int(digits) != crc32(view[at:tail]) & CRC_MASK
        ):
            raise CorruptRecord(node, position, "it did not come as it lies there")
        if not records.startswith(opening, properties):
            opening = _opening_of(records[properties:tail])
            opening_bytes = len(opening)
        sequence = properties + opening_bytes
        others = records[(records.find(b"\x02", sequence, tail) + 1 if opening is not _NONE else 0) or properties : tail]
        if others != rest:
            rest, (keys, tag, values) = others, values_of(others)
        plain = (topic, queue, offset, position, stated, records[body:body_end], keys, tag, values.copy(), flag, born_ms, store_ms)
        add(make(StoredMessage, plain))
        at = end
    return found


def _named(topic: str) -> bytes:
    """What stands behind the body."""
    name = topic.encode()
    return bytes((len(name),)) + name


def _opening_of(properties: bytes) -> bytes:
    """What comes before a producer's sequence, which follows its id at the beginning; _NONE where it does not."""
    opening = properties[: properties.find(b"\x02") + 1 + len(_SEQUENCE)]
    return opening if properties.startswith(_PRODUCER) and opening.endswith(_SEQUENCE) else _NONE
