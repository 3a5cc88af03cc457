"""⑧ Messages out of neighbouring records, for readers: the quick way for records as we write them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.compression import COMPRESSED
from dittomq.commitlog.records.decoding import values_of
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, HEADER, IPV6_FLAGS, MAGIC_1
from dittomq.message import StoredMessage

_ODD_FLAGS = IPV6_FLAGS | COMPRESSED
_SEQUENCE_DIGITS = 19
_PROPERTY_END = 2
_PRODUCER = b"PID\x01"
_SEQUENCE = b"SEQ\x01"


class Place(NamedTuple):
    """A message of a queue: its offset there, where its record begins, and the size of that."""

    offset: int
    position: int
    size: int

    @property
    def end(self) -> int:
        """One past the record's last byte."""
        return self.position + self.size


def plain_messages(block: bytes, base: int, places: Sequence[Place], *, topic: str, queue: int) -> list[StoredMessage]:
    """The messages at these places of one queue, verified, up to the first that is damaged or is none that we write mostly.

    `block` begins at position `base` and holds their records, which are sealed.
    """
    found: list[StoredMessage] = []
    view, unpack, make = memoryview(block), HEADER.unpack_from, tuple.__new__
    name = topic.encode()
    named = bytes((len(name),)) + name
    opening = b""
    for offset, position, size in places:
        at = position - base
        end = at + size
        tail, body = end - CRC_BYTES, at + HEADER.size
        if end > len(block) or body > tail:
            break
        stated, magic, _, its_queue, flag, its_offset, its_position, odd, born_ms, _, _, store_ms, _, _, _, _, body_bytes = unpack(
            block, at
        )
        body_end = body + body_bytes
        properties = body_end + len(named) + 2
        if (
            (stated, magic, its_queue, its_offset, its_position) != (size, MAGIC_1, queue, offset, position)
            or odd & _ODD_FLAGS
            or not body <= body_end <= properties <= tail
            or block[body_end : properties - 2] != named
            or int.from_bytes(block[properties - 2 : properties], "big", signed=True) != end - properties
            or block[tail:end] != b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(view[at:tail]) & CRC_MASK))[::-1]
        ):
            break
        written = block[properties:tail]
        # Neighbours are mostly of one producer, and have nothing but its id and their sequence: only the digits differ.
        digits = written[len(opening) : -1] if opening and written.startswith(opening) else b""
        if digits.isdigit() and len(digits) <= _SEQUENCE_DIGITS and written[-1] == _PROPERTY_END:
            values = tuple[str, ...](), "", dict[str, str]()
        else:
            values = values_of(written)
            opening = _opening_of(written)
        body_of = block[body:body_end]
        found.append(make(StoredMessage, (topic, queue, offset, position, size, body_of, *values, flag, born_ms, store_ms)))
    return found


def _opening_of(properties: bytes) -> bytes:
    """What comes before the digits of a producer's sequence; b"" where there is none, or more than that."""
    opening = properties[: properties.find(b"\x02") + len(_SEQUENCE) + 1]
    return opening if properties.startswith(_PRODUCER) and opening.endswith(_SEQUENCE) else b""
