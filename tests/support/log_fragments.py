"""Stretches of a log as bytes: records of every kind that a scan may meet, whole ones, odd ones under a right checksum, and damage."""

import random
import struct
from dataclasses import dataclass

from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, MAGIC_1, MAGIC_2, mark, sealed_crc

TOPICS = (b"orders", b"a", b"orders2", "überall".encode(), b"t" * 127)
PRODUCERS = (b"", b"p" * 32, b"q" * 32, b"q", "ö".encode() * 20)
TAGS = (b"", b"", b"", b"TAGS\x01blue\x02", b"xTAGS\x01no\x02", b"TAGS\x01" + "grün".encode() + b"\x02", b"KEYS\x01k1 k2\x02")


@dataclass(frozen=True, slots=True)
class Kind:
    """What is unusual about a record; it is sealed as it is. `lengths` is added to the length that its properties have.

    With `short_hosts` a host takes 8 bytes, whatever the system flag says.
    """

    magic: int = MAGIC_1
    system_flag: int = 0
    short_hosts: bool = False
    queue: int | None = None
    offset: int | None = None
    topic: bytes | None = None
    position: int | None = None
    body_crc: int | None = None
    lengths: int = 0
    properties: bytes | None = None


PLAIN = Kind()
IPV6 = Kind(system_flag=0x30)
ODD = (
    Kind(magic=MAGIC_2), Kind(magic=0xDAA320FF), Kind(magic=0), Kind(system_flag=0x10), Kind(system_flag=0x20), IPV6, PLAIN,
    Kind(system_flag=0xC), Kind(system_flag=0x4), Kind(system_flag=1), Kind(queue=-1), Kind(queue=7), Kind(topic=b""), Kind(topic=b"a/b"),
    Kind(offset=-1), Kind(offset=(1 << 63) // 20 - 1), Kind(offset=(1 << 63) // 20), Kind(offset=(1 << 63) - 1),
    Kind(topic=b"\xff"), Kind(topic=b".."), Kind(topic=b"x" * 255), Kind(position=7), Kind(body_crc=1), Kind(lengths=1), Kind(lengths=-1),
    Kind(properties=b"PID\x01p\x02SEQ\x01x\x02"), Kind(properties=b"PID\x01p\x02SEQ\x01\x02"), Kind(properties=b"PID\x01p"),
    Kind(properties=b"PID\x01p\x02SEQ\x01" + b"9" * 19 + b"\x02"), Kind(properties=b"PID\x01p\x02SEQ\x01" + b"9" * 20 + b"\x02"),
    Kind(properties=b"PID\x01\x02SEQ\x017\x02"), Kind(properties=b"PID\x01p\x02SEQ\x0100007\x02"), Kind(properties=b"SEQ\x01PID\x01"),
    Kind(properties=b"a\x01b\x02" * 200), Kind(properties=b"long\x01" + b"v" * 400 + b"\x02TAGS\x01late\x02KEYS\x01late\x02"),
    Kind(properties=b"PID\x01" + b"l" * 300 + b"\x02SEQ\x0112\x02"), Kind(properties=b"PID\x01pp\x02SEQ\x01" + "٣".encode() + b"\x02"),
    Kind(properties=b"PID\x01p\x02SEQ\x017"), Kind(properties=b"PID\x01p\x02SEQ\x01+7\x02"),
    Kind(properties=b"PID\x01\xff\x02SEQ\x017\x02"), Kind(system_flag=0xC, properties=b"KEYS\x01k\x02"),
    Kind(system_flag=0x10, short_hosts=True), Kind(system_flag=0x20, short_hosts=True),
)  # fmt: skip


@dataclass(slots=True)
class Writer:
    """Writes records one behind the other; sequences and queue offsets mostly go on where they were."""

    chance: random.Random
    position: int
    queue_offsets: dict[tuple[bytes, int], int]
    sequences: dict[bytes, int]
    topic: bytes = TOPICS[0]
    producer: bytes = b""

    def record(self, kind: Kind) -> bytes:
        """The next record."""
        chance = self.chance
        if chance.random() < 0.2:
            self.topic, self.producer = chance.choice(TOPICS), chance.choice(PRODUCERS)
        topic = self.topic if kind.topic is None else kind.topic
        queue = chance.randrange(2) if kind.queue is None else kind.queue
        offset = self._next_offset(topic, queue) if kind.offset is None else kind.offset
        body = chance.randbytes(chance.choice((0, 1, 10, 100)))
        properties = self._properties() if kind.properties is None else kind.properties
        body_crc = crc32(body) & CRC_MASK if kind.body_crc is None else kind.body_crc
        wide = 0 if kind.short_hosts else kind.system_flag
        born_host, store_host = bytes(20 if wide & 0x10 else 8), bytes(20 if wide & 0x20 else 8)
        length = struct.pack(">H" if kind.magic == MAGIC_2 else ">B", len(topic))
        record = b"".join((
            bytes(4), struct.pack(">IIii", kind.magic, body_crc, queue, 3), struct.pack(">qq", offset, self._stated(kind)),
            struct.pack(">iq", kind.system_flag, 1_000), born_host, struct.pack(">q", 2_000 + chance.randrange(50)), store_host,
            struct.pack(">iqi", 0, 0, len(body)), body, length, topic,
            struct.pack(">h", len(properties) + CRC_BYTES + kind.lengths), properties,
        ))  # fmt: skip
        record = struct.pack(">i", len(record) + CRC_BYTES) + record[4:]
        record += sealed_crc(crc32(record))
        self.position += len(record)
        return record

    def _stated(self, kind: Kind) -> int:
        return self.position if kind.position is None else kind.position

    def _next_offset(self, topic: bytes, queue: int) -> int:
        offset = self.queue_offsets.get((topic, queue), 0)
        if self.chance.random() < 0.03:
            offset = self.chance.choice((0, offset + 2, max(0, offset - 3)))
        self.queue_offsets[topic, queue] = offset + 1
        return offset

    def _properties(self) -> bytes:
        chance, producer = self.chance, self.producer
        identity = b""
        if producer:
            sequence = self.sequences.get(producer, chance.choice((0, 7, 95, 10**17)))
            if chance.random() < 0.03:
                sequence += chance.randrange(-2, 3)
            self.sequences[producer] = max(0, sequence) + 1
            identity = b"PID\x01%b\x02SEQ\x01%d\x02" % (producer, max(0, sequence))
        return identity + (chance.choice(TAGS) if chance.random() < 0.3 else b"")


def stretch(chance: random.Random, base: int, count: int, odd: float, *, usual: Kind = PLAIN) -> bytes:
    """So many records from position `base` on, a part of them odd, the others of the usual kind."""
    writer = Writer(chance, base, {}, {})
    return b"".join(writer.record(chance.choice(ODD) if chance.random() < odd else usual) for _ in range(count))


def changed(chance: random.Random, data: bytes, base: int, segment_end: int) -> bytes:
    """The stretch with something done to it, or nothing."""
    match chance.randrange(6):
        case 0:
            return data
        case 1:
            return data[: chance.randrange(len(data) + 1)]
        case 2 | 3 if data:
            bits = bytearray(data)
            bits[chance.randrange(len(bits))] ^= 1 << chance.randrange(8)
            return bytes(bits)
        case 4:
            return data + bytes(chance.randrange(200))
        case _:
            remaining = max(8, segment_end - base - len(data) + chance.choice((0, 0, 0, 1)))
            return data + mark(remaining).ljust(min(remaining, 4_000), chance.choice((b"\0", b"\0", b"\1")))
