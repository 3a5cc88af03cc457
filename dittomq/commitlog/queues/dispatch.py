"""From the log into the consume queues and the key index (RocketMQ: reput), up to the readable end and never beyond.

What was just written waits in memory as ready units, a bounded number of them; what no longer fits is read from the log again.

    applied ≤ ... log must be read ... ≤ collected_from ≤ ... waits in memory ... ≤ end
"""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages, scan_at, skip_damage
from dittomq.commitlog.disk.storage import speaks_of_bytes
from dittomq.commitlog.queues.consume_queue import ConsumeQueue, QueueIndex
from dittomq.commitlog.queues.key_index import Keyed, KeyIndex
from dittomq.commitlog.records.batch_index import OffsetRun, RecordBatch
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.columnar_codec import Numbers
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES, IndexEntry, lay_out

MAX_WAITING_UNITS = 65_536
_BATCH_UNITS = 16_384
# Longer properties of a message with keys are read from the log again, so that what waits stays small.
_CARRIED_BYTES = 512

Kept = tuple[str, int, bytes]
"""What `carried` gave for a record with keys."""
Waiting = tuple[int, ConsumeQueue | None, int, bytes, Kept | None]
"""Record's end, its queue (None for a mark and a record that no queue knows), its offset there, its unit, what is kept of one with keys.

When a batch is taken: a part's end, a queue, the first offset, neighbouring units; or no queue, a unit, and what is kept of its record.
"""


@dataclass(slots=True)
class WaitingBatch:
    """Many records that wait, from row `taken` on; `ends` are the ends of all. `named`: rows with keys, their units, what is kept."""

    ends: Numbers
    runs: list[tuple[ConsumeQueue, OffsetRun]]
    named: list[tuple[int, bytes, Kept]]
    taken: int

    def __len__(self) -> int:
        return len(self.ends) - self.taken

    def take(self, upto: int) -> list[Waiting]:
        """What records that end at or below `upto` bring, in parts that all end where the last of them does."""
        low, high = self.taken, int(self.ends.searchsorted(upto, side="right"))
        if low >= high:
            return []
        self.taken, end = high, int(self.ends[high - 1])
        parts = [(queue, run.between(low, high)) for queue, run in self.runs]
        taken: list[Waiting] = [(end, queue, part.first, part.units, None) for queue, part in parts if part.units]
        taken += [(end, None, 0, unit, kept) for row, unit, kept in self.named if low <= row < high]
        return taken


class Dispatch:
    """Builds the queues and the key index. One thread collects (it holds the store's lock), one runs."""

    def __init__(self, log: Log, seals: ChecksumPolicy, index: QueueIndex, keys: KeyIndex, *, applied: int) -> None:
        self.applied = applied
        self.keys = keys
        self._log = log
        self._seals = seals
        self._index = index
        self._collected_from = applied
        self._waiting: deque[Waiting | WaitingBatch] = deque()
        self._in_batches = 0
        self._grown: set[ConsumeQueue] = set()
        self._lock = threading.Lock()

    def collect(self, waiting: Sequence[Waiting | WaitingBatch], end: int, in_batches: int = 0) -> None:
        """Remember what was written up to `end`, behind all that was collected before; so many records of it are in batches."""
        with self._lock:
            self._waiting.extend(waiting)
            self._in_batches += in_batches
            full = len(self._waiting) + self._in_batches > MAX_WAITING_UNITS
        if full:
            self.drop_waiting(end)

    def pass_over(self, end: int) -> None:
        """What lies between all that was collected and `end` is not there."""
        self.collect([(end, None, 0, b"", None)], end)

    def drop_waiting(self, end: int) -> None:
        """Read from the log, which ends at `end`, what waits: there is more of it than was collected."""
        with self._lock:
            self._waiting.clear()
            self._in_batches = 0
            self._collected_from = end

    def run(self, upto: int) -> int:
        """Build the queues for records that end at or below `upto`; returns how far they are built."""
        while self.applied < upto:
            with self._lock:
                batch = self._take(upto)
                behind = self._collected_from
            reached = batch[-1][0] if batch else self.applied
            if not batch and self.applied < behind:
                batch, reached = self._from_log(min(upto, behind))
            if reached == self.applied:
                break
            self._write(batch)
            self.applied = reached
        return self.applied

    def take_grown(self) -> list[tuple[str, int]]:
        """Topic and queue of each queue that grew since this was asked last; for the thread that runs."""
        grown, self._grown = self._grown, set()
        return [(queue.topic, queue.queue) for queue in grown]

    def _take(self, upto: int) -> list[Waiting]:
        taken: list[Waiting] = []
        waiting = self._waiting
        if self.applied < self._collected_from:
            return taken
        while waiting and len(taken) < _BATCH_UNITS:
            first = waiting[0]
            if isinstance(first, WaitingBatch):
                before = len(first)
                taken += first.take(upto)
                self._in_batches -= before - len(first)
                if len(first):
                    break
            elif first[0] <= upto:
                taken.append(first)
            else:
                break
            waiting.popleft()
        return taken

    def _from_log(self, limit: int) -> tuple[list[Waiting], int]:
        source = ReadablePages(self._log)
        batches, found = scan_at(source, self._seals, self.applied, limit)
        reached = found.end
        if reached == self.applied and found.problem:
            reached = skip_damage(source, self._seals, reached, limit)  # its queues keep a hole, which readers are told of
        taken = [part for batch in batches for part in waiting_batch_of(self._index, batch).take(limit)]
        return taken + [waiting_of(self._index, entry) for entry in found.entries], reached

    def _write(self, taken: list[Waiting]) -> None:
        runs: dict[ConsumeQueue, list[tuple[int, list[bytes]]]] = {}
        nexts: dict[ConsumeQueue, int] = {}
        named: list[Keyed] = []
        for _, queue, offset, units, kept in taken:
            if kept is not None:
                named.append(self._keyed(units, kept))
            if queue is None:
                continue
            if nexts.get(queue) == offset:
                runs[queue][-1][1].append(units)
            else:
                runs.setdefault(queue, []).append((offset, [units]))
            nexts[queue] = offset + len(units) // UNIT_BYTES
        self._grown.update(runs)
        for queue, neighbours in runs.items():
            for first, parts in neighbours:
                self._index.write(queue, first, b"".join(parts))
        if named:
            self.keys.add(named)

    def _keyed(self, unit: bytes, kept: Kept) -> Keyed:
        position, size, _ = UNIT.unpack(unit)
        topic, store_ms, properties = kept
        if not properties:
            try:
                record = self._log.read(position, size)
            except OSError as error:
                if not speaks_of_bytes(error):
                    raise
                record = b""  # who reads the message is told; it is not found by its keys
            layout = lay_out(record)
            properties = record[layout.properties :] if layout else b""
        return Keyed(topic, position, store_ms, properties)


def carried(topic: str, store_ms: int, properties: bytes) -> Kept:
    """What waits of a message with keys."""
    return topic, store_ms, properties if len(properties) <= _CARRIED_BYTES else b""


def waiting_of(index: QueueIndex, entry: IndexEntry) -> Waiting:
    """What the queues and the key index keep of a record."""
    if entry.queue < 0:
        return unqueued(entry)
    unit = UNIT.pack(entry.start, entry.end - entry.start, entry.tags_code)
    keyed = carried(entry.topic, entry.store_ms, entry.keyed) if entry.keyed else None
    return entry.end, index.queue(entry.topic, entry.queue), entry.queue_offset, unit, keyed


def waiting_batch_of(index: QueueIndex, batch: RecordBatch, start: int = 0) -> WaitingBatch:
    """The same of many records, those before position `start` left out."""
    low = int(np.searchsorted(batch.starts, start))
    runs = [(index.queue(run.topic, run.queue), run) for run in (run.between(low, len(batch)) for run in batch.runs) if run.units]
    named = []
    for row, topic, properties in batch.named:
        position, end, store_ms = int(batch.starts[row]), int(batch.ends[row]), int(batch.store_ms[row])
        named.append((row, UNIT.pack(position, end - position, 0), carried(topic, store_ms, properties)))
    return WaitingBatch(batch.ends, runs, named, low)


def unqueued(entry: IndexEntry) -> Waiting:
    """The same of a record that no queue knows: a prepared transaction has keys all the same."""
    if not entry.keyed:
        return entry.end, None, 0, b"", None
    unit = UNIT.pack(entry.start, entry.end - entry.start, 0)
    return entry.end, None, 0, unit, carried(entry.topic, entry.store_ms, entry.keyed)
