"""A log of sealed records in memory, and a source that reads copies of it, faults included."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from dittomq.client.replica_reader import NodeAddress
from dittomq.commitlog.records.digest import leaf_digest, root_digest
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import Host, mark
from dittomq.copies import LEAF_BYTES, RangeDigests
from dittomq.errors import LimitReached, Unavailable
from dittomq.message import Draft
from dittomq.offsets import PhysicalOffset

HOST = Host(bytes([127, 0, 0, 1]), 10911)


@dataclass(frozen=True, slots=True)
class Placed:
    """A record of the log and what was put into it."""

    topic: str
    queue: int
    queue_offset: int
    start: int
    end: int
    body_start: int
    body_end: int


@dataclass(slots=True)
class SyntheticLog:
    """Records of random sizes from byte 0 on, in segments of one size."""

    segment_bytes: int
    data: bytearray = field(default_factory=bytearray)
    records: list[Placed] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)

    def fill(self, chance: random.Random, records: int, max_body: int = 900) -> "SyntheticLog":
        for _ in range(records):
            self.append(chance.choice(("orders", "lines")), chance.randrange(3), chance.randbytes(chance.randrange(1, max_body)))
        return self

    def append(self, topic: str, queue: int, body: bytes) -> None:
        offset = self.offsets.get((topic, queue), 0)
        record = self._encoded(topic, queue, offset, body)
        remaining = self.segment_bytes - len(self.data) % self.segment_bytes
        if len(record) + 8 > remaining:
            self.data += mark(remaining).ljust(remaining, b"\0")
            record = self._encoded(topic, queue, offset, body)
        start = len(self.data)
        self.data += record
        self.offsets[topic, queue] = offset + 1
        self.records.append(Placed(topic, queue, offset, start, start + len(record), start + 88, start + 88 + len(body)))

    def record_at(self, position: int) -> Placed:
        return next(record for record in self.records if record.start <= position < record.end)

    def _encoded(self, topic: str, queue: int, offset: int, body: bytes) -> bytes:
        draft = Draft(topic, queue, 0, 1_700_000_000_000, body, b"KEYS\x01k-%d\x02" % offset, 0)
        return encode_draft(draft, offset, len(self.data), 1_700_000_000_123, host=HOST)


@dataclass(slots=True)
class Copies:
    """Reads copies that are byte strings; as ReplicaReader does.

    Ranges with a byte in `bad` cannot be read on that node. A node's next so many calls in `refusals` find its queue full.
    """

    copies: dict[str, bytes]
    bad: dict[str, range] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=dict)

    async def digests(self, node: NodeAddress, start: int, end: int, salt: int, *, leaves: bool) -> RangeDigests:
        data = self._data(node, start, end)
        found = tuple(leaf_digest(data[at : at + LEAF_BYTES], salt) for at in range(0, len(data), LEAF_BYTES))
        return RangeDigests(PhysicalOffset(start), PhysicalOffset(end), root_digest(found, salt), found if leaves else ())

    async def read(self, node: NodeAddress, start: int, end: int) -> AsyncIterator[bytes]:
        yield self._data(node, start, end)

    def _data(self, node: NodeAddress, start: int, end: int) -> bytes:
        if self.refusals.get(node.name, 0) > 0:
            self.refusals[node.name] -= 1
            raise LimitReached("the queue of audit reads", 64)
        bad = self.bad.get(node.name, range(0))
        if bad and start < bad.stop and bad.start < end:
            raise Unavailable(node.name, "Input/output error")
        return self.copies[node.name][start:end]


def address(node: str) -> NodeAddress:
    """The address of "broker/id"; nobody listens there."""
    broker, _, number = node.partition("/")
    return NodeAddress(broker, int(number), "test", f"{node}:10911")
