"""From the log into the consume queues and the key index (RocketMQ: reput), up to the readable end and never beyond.

What was just written waits in memory as ready units, a bounded number of them; what no longer fits is read from the log again.

    applied ≤ ... log must be read ... ≤ collected_from ≤ ... waits in memory ... ≤ end
"""

import threading
from collections import deque
from collections.abc import Iterable

from dittomq.commitlog.format import UNIT, Entry, lay_out
from dittomq.commitlog.key_index import Keyed, KeyIndex
from dittomq.commitlog.log import Log
from dittomq.commitlog.queue_index import Queue, QueueIndex
from dittomq.commitlog.scanning import scan_at, skip_damage
from dittomq.commitlog.seals import Seals

MAX_WAITING_UNITS = 65_536
_BATCH_UNITS = 16_384
# Longer properties of a message with keys are read from the log again, so that what waits stays small.
_CARRIED_BYTES = 512

Waiting = tuple[int, Queue | None, int, bytes, tuple[int, bytes] | None]
"""Record's end, its queue (None for the mark at a segment's end), its offset there, its unit; what `carried` gave for one with keys."""


class Dispatch:
    """Builds the queues and the key index. One thread collects (it holds the store's lock), one runs."""

    def __init__(self, log: Log, seals: Seals, index: QueueIndex, keys: KeyIndex, applied: int) -> None:
        self.applied = applied
        self.keys = keys
        self._log = log
        self._seals = seals
        self._index = index
        self._collected_from = applied
        self._waiting: deque[Waiting] = deque()
        self._lock = threading.Lock()

    def collect(self, waiting: Iterable[Waiting], end: int) -> None:
        """Remember what was written up to `end`, behind all that was collected before."""
        with self._lock:
            self._waiting.extend(waiting)
            if len(self._waiting) > MAX_WAITING_UNITS:
                self._waiting.clear()
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

    def _take(self, upto: int) -> list[Waiting]:
        batch: list[Waiting] = []
        waiting = self._waiting
        if self.applied < self._collected_from:
            return batch
        while waiting and waiting[0][0] <= upto and len(batch) < _BATCH_UNITS:
            batch.append(waiting.popleft())
        return batch

    def _from_log(self, limit: int) -> tuple[list[Waiting], int]:
        found = scan_at(self._log, self._seals, self.applied, limit)
        reached = found.end
        if reached == self.applied and found.problem:
            reached = skip_damage(self._log, reached, limit)  # its queues keep a hole, which readers are told of
        return [waiting_of(self._index, entry) for entry in found.entries], reached

    def _write(self, batch: list[Waiting]) -> None:
        runs: dict[Queue, list[tuple[int, list[bytes]]]] = {}
        named: list[Keyed] = []
        for _, queue, offset, unit, kept in batch:
            if queue is None:
                continue
            if kept is not None:
                named.append(self._keyed(queue, unit, kept))
            mine = runs.setdefault(queue, [])
            if mine and mine[-1][0] + len(mine[-1][1]) == offset:
                mine[-1][1].append(unit)
            else:
                mine.append((offset, [unit]))
        for queue, neighbours in runs.items():
            for first, units in neighbours:
                self._index.write(queue, first, units)
        if named:
            self.keys.add(named)

    def _keyed(self, queue: Queue, unit: bytes, kept: tuple[int, bytes]) -> Keyed:
        position, size, _ = UNIT.unpack(unit)
        store_ms, properties = kept
        if not properties:
            record = self._log.read(position, size)
            layout = lay_out(record)
            properties = record[layout.properties :] if layout else b""
        return Keyed(queue.topic, position, store_ms, properties)


def carried(store_ms: int, properties: bytes) -> tuple[int, bytes]:
    """What waits of a message with keys."""
    return store_ms, properties if len(properties) <= _CARRIED_BYTES else b""


def waiting_of(index: QueueIndex, entry: Entry) -> Waiting:
    """What the queues and the key index keep of a record."""
    if entry.queue < 0:
        return entry.end, None, 0, b"", None
    unit = UNIT.pack(entry.start, entry.end - entry.start, entry.tags_code)
    keyed = carried(entry.store_ms, entry.keyed) if entry.keyed else None
    return entry.end, index.queue(entry.topic, entry.queue), entry.queue_offset, unit, keyed
