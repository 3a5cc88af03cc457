"""③ A master's appends: gives every message its offsets and its store time, encodes a whole group, writes each stretch at once.

The hot path. A message costs one header, two checksums and a few lookups; the bytes are joined once for each piece. Large batches
are encoded by columns, see `dittomq.commitlog.records.bulk`; what this module does for one message and that one for many is the same.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.queues.consume_queue import ConsumeQueue
from dittomq.commitlog.queues.dispatch import Kept, Waiting, WaitingBatch, carried
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.records.batch_index import OffsetRun
from dittomq.commitlog.records.bulk import LEAST_MESSAGES, BulkMessages, GroupStamp
from dittomq.commitlog.records.columnar_codec import Numbers
from dittomq.commitlog.records.format import (
    CRC_BYTES,
    CRC_MASK,
    CRC_NAME,
    IPV4,
    KEY_NAME,
    LENGTH_16,
    MAGIC_1,
    MARK_BYTES,
    MAX_TOPIC_BYTES,
    UNIT,
    Host,
    form_of,
    mark,
    safe_topic,
    scheduled_code,
    sequence_of,
    strip_crc,
)
from dittomq.delays import SCHEDULE_TOPIC
from dittomq.errors import InvalidField, MessageTooLarge, Refused
from dittomq.message import MAX_BODY_BYTES, MAX_PROPERTIES_BYTES, Draft
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.places import AppendResult, concat
from dittomq.properties import RECORD_CRC

# Below these, and with a topic that was seen before, a message needs no closer look. Every segment holds such a record.
_EASY_BODY_BYTES = 2_048
_EASY_PROPERTIES_BYTES = 1_024
# A batch of so many bytes is a piece by itself: its bytes are copied once less.
_LARGE_BYTES = 128 * 1024
_SEPARATOR = b"\x02"
_RECORD_CRC = RECORD_CRC.encode()


class AppendBatch(NamedTuple):
    """Messages of one producer, stored all or none. `producer_id` "" and `first_sequence` -1: not idempotent.

    No try of it can lie below `sent_since`; None: nobody says so.
    """

    drafts: Sequence[Draft]
    producer_id: str = ""
    first_sequence: int = -1
    sent_since: int | None = None


@dataclass(frozen=True, slots=True)
class AppendGroup:
    """What one append wrote: [start, end). `pieces` are its bytes with their positions, none across a segment's end.

    `placed` answers each batch: where its messages lie, in its order, or why nothing of it was stored.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    pieces: list[tuple[PhysicalOffset, bytes]]
    placed: list[list[AppendResult] | Refused]
    store_ms: int

    @property
    def messages(self) -> int:
        """How many messages were written; what was there before is not among them."""
        runs = [run for batch in self.placed if isinstance(batch, list) for run in batch]
        return sum(len(run.sizes) for run in runs if not run.duplicate)


@dataclass(slots=True)
class _GroupBytes:
    """The part of a group under construction; `done` are (bytes, zeros behind them) that are complete."""

    position: int
    segment_end: int
    start: int
    parts: list[bytes | bytearray]
    done: list[tuple[bytes, int]]
    waiting: list[Waiting | WaitingBatch]
    in_batches: int = 0


class Appender:
    """Appends groups to a log whose end is a record's end. One thread at a time."""

    def __init__(self, log: Log, derived: DerivedIndexes, host: Host, find: Callable[[int], AppendResult]) -> None:
        """`find` reads from the log which message lies at a position, raising CorruptRecord."""
        self._log = log
        self._derived = derived
        self._host = host
        self._form = form_of(host)
        self._find = find
        self._topics: dict[str, bytes] = {}

    def append(self, batches: Sequence[AppendBatch], now_ms: int) -> AppendGroup:
        """Write the batches that are not refused. Nothing of a refused batch is stored."""
        derived, log = self._derived, self._log
        derived.store_ms = max(derived.store_ms, now_ms)
        start = log.end
        pending = _GroupBytes(start, log.segment_of(start)[1], start, [], [], [])
        placed: list[list[AppendResult] | Refused] = []
        for batch in batches:
            drafts, identified = batch.drafts, bool(batch.producer_id)
            large = len(drafts) >= LEAST_MESSAGES and self._form is IPV4
            bulk = BulkMessages.of(drafts, self._topics, identified=identified) if large else None
            if bulk is not None and pending.position + bulk.size + MARK_BYTES > pending.segment_end:
                bulk = None  # the segment ends within it, or no segment can hold one of them
            try:
                if bulk is None:
                    self._look_closer(batch)
                answer = self._known(batch, start, placed) if identified else []
            except Refused as refused:
                placed.append(refused)
                continue
            if bulk is not None and not answer:
                self._encode_bulk(batch, bulk, pending, answer)
            else:
                self._encode(batch, sum(len(run.sizes) for run in answer), pending, answer)
            placed.append(answer)
        _close(pending, 0)
        pieces = self._write(start, pending)
        derived.dispatch.collect(pending.waiting, log.end, pending.in_batches)
        return AppendGroup(PhysicalOffset(start), PhysicalOffset(log.end), pieces, placed, derived.store_ms)

    def _look_closer(self, batch: AppendBatch) -> None:
        """Raise Refused for a batch that cannot be stored; learn its topics."""
        topics, idempotent = self._topics, bool(batch.producer_id)
        for draft in batch.drafts:
            topic, queue, _, _, body, properties, _ = draft
            if topic not in topics or queue < 0 or len(body) > _EASY_BODY_BYTES or len(properties) > _EASY_PROPERTIES_BYTES:
                self._check(draft)
            if not idempotent and properties.startswith(b"PID\x01"):
                raise InvalidField("properties", '"PID" is reserved; use another name')

    def _known(self, batch: AppendBatch, start: int, placed: Sequence[list[AppendResult] | Refused]) -> list[AppendResult]:
        """Where the batch's leading messages lie that are stored already: below `start` in the log, behind it as `placed` in this group.

        Raises Refused when its sequences do not follow.
        """
        assert sequence_of(batch.drafts[0].properties) == (batch.producer_id, batch.first_sequence), "drafts carry their frame's sequence"
        positions = self._derived.producers.known(batch.producer_id, batch.first_sequence, len(batch.drafts), batch.sent_since)
        if isinstance(positions, Refused):
            raise positions
        if not positions:
            return []
        here = {one.physical_offset: one for answer in placed if not isinstance(answer, Refused) for run in answer for one in run.each()}
        found = [here[PhysicalOffset(position)] if position >= start else self._find(position) for position in positions]
        return concat(one._replace(duplicate=True) for one in found)

    def _check(self, draft: Draft) -> None:
        topic, queue, _, _, body, properties, _ = draft
        if len(body) > MAX_BODY_BYTES:
            raise MessageTooLarge("the body", len(body), MAX_BODY_BYTES)
        properties_bytes = len(properties) + (properties[-1:] not in {b"", _SEPARATOR})
        if properties_bytes + CRC_BYTES > MAX_PROPERTIES_BYTES:
            raise MessageTooLarge("the properties with our checksum", properties_bytes + CRC_BYTES, MAX_PROPERTIES_BYTES)
        if topic not in self._topics:
            self._learn(topic)
        if queue < 0:
            raise InvalidField("queue", f"{queue} is negative")
        size = self._form.record_bytes(len(self._topics[topic]) - 1, len(body), properties_bytes)
        if size + MARK_BYTES > self._log.segment_bytes:
            raise MessageTooLarge("the record", size, self._log.segment_bytes - MARK_BYTES)

    def _learn(self, topic: str) -> None:
        """Remember the topic as it is written: its length in one byte, its name."""
        name = topic.encode()
        if len(name) > MAX_TOPIC_BYTES or not safe_topic(name):
            raise InvalidField("topic", f'"{topic[:64]}" is no topic name: 1 to {MAX_TOPIC_BYTES} characters of [%|a-zA-Z0-9_-]')
        self._topics[topic] = bytes((len(name),)) + name

    def _encode(self, batch: AppendBatch, skip: int, pending: _GroupBytes, placed: list[AppendResult]) -> None:
        """Encode the batch's messages behind the first `skip`, and say where they will lie."""
        queues, topics = self._derived.index.queues, self._topics
        store_ms, (address, port) = self._derived.store_ms, self._host
        pack, system_flag, fixed_bytes = self._form.header.pack, self._form.system_flag, self._form.fixed_bytes
        waiting, parts, position = pending.waiting, pending.parts, pending.position
        positions, sizes, neighbour = [], [0], None
        for draft in batch.drafts[skip:]:
            topic, queue_id, flag, born_ms, body, properties, code = draft
            if properties and (properties[-1] != 2 or properties.find(_RECORD_CRC) >= 0):
                properties = strip_crc(properties)
            name = topics[topic]
            body_length, properties_length = len(body), len(properties) + CRC_BYTES
            size = fixed_bytes - 1 + body_length + len(name) + properties_length
            if position + size + MARK_BYTES > pending.segment_end:
                pending.position = position
                self._roll(pending)
                parts, position, neighbour = pending.parts, pending.position, None
            queue = queues.get((topic, queue_id)) or self._derived.index.queue(topic, queue_id)
            queue_offset = queue.next
            head = pack(
                size, MAGIC_1, crc32(body) & CRC_MASK, queue_id, flag, queue_offset, position, system_flag,
                born_ms, address, port, store_ms, address, port, 0, 0, body_length,
            )  # fmt: skip
            tail = name + LENGTH_16.pack(properties_length) + properties
            crc = crc32(tail, crc32(body, crc32(head))) & CRC_MASK
            parts += (head, body, tail, CRC_NAME, (b"%010d" % crc)[::-1], _SEPARATOR)
            queue.next = queue_offset + 1
            if queue is not neighbour:
                sizes, neighbour = [], queue
                placed.append(AppendResult(topic, queue_id, QueueOffset(queue_offset), PhysicalOffset(position), sizes, store_ms))
            sizes.append(size)
            positions.append(position)
            if topic == SCHEDULE_TOPIC:
                code = scheduled_code(properties, store_ms)
            keys = carried(topic, store_ms, properties) if properties.find(KEY_NAME) >= 0 else None
            waiting.append((position + size, queue, queue_offset, UNIT.pack(position, size, code), keys))
            position += size
        pending.position = position
        if batch.producer_id:
            self._derived.producers.record(batch.producer_id, batch.first_sequence + skip, positions, store_ms)

    def _encode_bulk(self, batch: AppendBatch, bulk: BulkMessages, pending: _GroupBytes, placed: list[AppendResult]) -> None:
        """Encode the batch, all of which fits into the segment, and say where its messages will lie."""
        store_ms, sizes, make = self._derived.store_ms, bulk.sizes.tolist(), tuple.__new__
        offsets, rows = self._assign(bulk)
        found = bulk.encode(pending.position, offsets, GroupStamp(store_ms, self._host))
        starts = found.starts.tolist()
        for topic, queue_id, low, high in bulk.neighbours:
            placed.append(make(AppendResult, (topic, queue_id, offsets[low], starts[low], sizes[low:high], store_ms, False)))
        runs = [(queue, OffsetRun(queue.topic, queue.queue, offsets[mine[0]], mine, found.units[mine].tobytes())) for queue, mine in rows]
        named: list[tuple[int, bytes, Kept]] = []
        for topic, _, low, high in bulk.neighbours if bulk.keyed else ():
            keyed = (row for row in range(low, high) if bulk.properties[row].find(KEY_NAME) >= 0)
            named += [(row, found.units[row].tobytes(), carried(topic, store_ms, bulk.properties[row])) for row in keyed]
        pending.waiting.append(WaitingBatch(found.ends, runs, named, 0))
        pending.in_batches += len(offsets)
        pending.parts.append(found.data)
        pending.position += bulk.size
        if batch.producer_id:
            self._derived.producers.record(batch.producer_id, batch.first_sequence, array("q", found.starts.tobytes()), store_ms)
        if bulk.size >= _LARGE_BYTES:
            _close(pending, 0)

    def _assign(self, bulk: BulkMessages) -> tuple[list[int], list[tuple[ConsumeQueue, Numbers]]]:
        """Give each message the next offset of its queue; also says which messages each queue gets."""
        index = self._derived.index
        offsets: list[int] = []
        rows: dict[ConsumeQueue, list[int]] = {}
        for topic, queue_id, low, high in bulk.neighbours:
            queue = index.queues.get((topic, queue_id)) or index.queue(topic, queue_id)
            first, queue.next = queue.next, queue.next + high - low
            offsets += range(first, queue.next)
            rows.setdefault(queue, []).extend(range(low, high))
        return offsets, [(queue, np.array(mine)) for queue, mine in rows.items()]

    def _roll(self, pending: _GroupBytes) -> None:
        """End the segment with its mark; the group goes on in the next one."""
        remaining = pending.segment_end - pending.position
        pending.parts.append(mark(remaining))
        pending.waiting.append((pending.segment_end, None, 0, b"", None))
        _close(pending, remaining - MARK_BYTES)
        pending.position = pending.start = pending.segment_end
        pending.segment_end += self._log.segment_bytes

    def _write(self, start: int, pending: _GroupBytes) -> list[tuple[PhysicalOffset, bytes]]:
        pieces = []
        for data, gap in pending.done:
            self._log.write(data, gap=gap)
            pieces.append((PhysicalOffset(start), data + bytes(gap) if gap else data))
            start += len(data) + gap
        return pieces


def _close(pending: _GroupBytes, gap: int) -> None:
    if pending.parts:
        pending.done.append((b"".join(pending.parts), gap))
        pending.parts = []
