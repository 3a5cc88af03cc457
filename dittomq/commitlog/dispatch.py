"""From the log into the consume queues (RocketMQ: reput), up to the readable end and never beyond.

What was just written waits in memory as ready units, a bounded number of them; what no longer fits is read from the log again.

    applied ≤ ... log must be read ... ≤ collected_from ≤ ... waits in memory ... ≤ end
"""

import threading
from collections import deque
from collections.abc import Iterable

from dittomq.commitlog.format import UNIT, Entry
from dittomq.commitlog.log import Log
from dittomq.commitlog.queue_index import Queue, QueueIndex
from dittomq.commitlog.scanning import scan_at, skip_damage

MAX_WAITING_UNITS = 65_536
_BATCH_UNITS = 16_384

Waiting = tuple[int, Queue | None, int, bytes]
"""Record's end, its queue (None for the mark at a segment's end), its offset there, its unit."""


class Dispatch:
    """Builds the queues. One thread collects (it holds the store's lock), one runs."""

    def __init__(self, log: Log, index: QueueIndex, applied: int) -> None:
        self.applied = applied
        self._log = log
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
        found = scan_at(self._log, self.applied, limit)
        reached = found.end
        if reached == self.applied and found.problem:
            reached = skip_damage(self._log, reached, limit)  # its queues keep a hole, which readers are told of
        return [waiting_of(self._index, entry) for entry in found.entries], reached

    def _write(self, batch: list[Waiting]) -> None:
        runs: dict[Queue, list[tuple[int, list[bytes]]]] = {}
        for _, queue, offset, unit in batch:
            if queue is None:
                continue
            mine = runs.setdefault(queue, [])
            if mine and mine[-1][0] + len(mine[-1][1]) == offset:
                mine[-1][1].append(unit)
            else:
                mine.append((offset, [unit]))
        for queue, neighbours in runs.items():
            for first, units in neighbours:
                self._index.write(queue, first, units)


def waiting_of(index: QueueIndex, entry: Entry) -> Waiting:
    """What the queues keep of a record."""
    if entry.queue < 0:
        return entry.end, None, 0, b""
    unit = UNIT.pack(entry.start, entry.end - entry.start, entry.tags_code)
    return entry.end, index.queue(entry.topic, entry.queue), entry.queue_offset, unit
