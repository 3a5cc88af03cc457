"""What follows from the log alone: the queues' next offsets, the producers' table, the newest store time."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.dispatch import Dispatch, Waiting, WaitingBatch, carried, unqueued, waiting_batch_of
from dittomq.commitlog.queues.producer_state import Producers, Sequenced
from dittomq.commitlog.records.batch_index import DAY_MS, RecordBatch
from dittomq.commitlog.records.format import UNIT, IndexEntry, Scan


class DerivedIndexes:
    """Kept in step with the log by whoever writes it."""

    def __init__(self, index: QueueIndex, producers: Producers, dispatch: Dispatch, store_ms: int) -> None:
        self.index = index
        self.producers = producers
        self.dispatch = dispatch
        self.store_ms = store_ms

    def absorb(self, batches: Sequence[RecordBatch], found: Scan, *, queues_from: int = 0, producers_from: int = 0) -> None:
        """Take in records that are in the log now, behind all before, first the batches. On a slave's hot path.

        Records before `queues_from` are in the queues already, those before `producers_from` in the producers' table.
        """
        many = [self._take(batch, queues_from, producers_from) for batch in batches] if batches else ()
        waiting: list[Waiting] = []
        store_ms, queues, pack = self.store_ms, self.index.queues, UNIT.pack
        # Neighbours in the log that are neighbours in their producer's sequences, of one day.
        producer, known, positions, day = "", 0, array("q"), 0
        for entry in found.entries:
            start, stop, topic, queue_id, queue_offset, code, stored_ms, producer_id, sequence, keyed = entry
            if producer_id and start >= producers_from:
                if producer_id != producer or sequence != known + len(positions) or stored_ms // DAY_MS != day:
                    self.producers.record(producer, known, positions, day * DAY_MS)
                    producer, known, positions, day = producer_id, sequence, array("q"), stored_ms // DAY_MS
                positions.append(start)
            if start < queues_from:
                continue
            store_ms = max(store_ms, stored_ms)
            if queue_id < 0:
                waiting.append(unqueued(entry))
                continue
            queue = queues.get((topic, queue_id)) or self.index.queue(topic, queue_id)
            keys = carried(topic, stored_ms, keyed) if keyed else None
            waiting.append((stop, queue, queue_offset, pack(start, stop - start, code), keys))
            if queue_offset == queue.next:
                queue.next = queue_offset + 1
            else:
                queue.extend(queue_offset, queue_offset + 1, None if self.index.is_ours(start) else start)
        self.producers.record(producer, known, positions, day * DAY_MS)
        self.store_ms = store_ms
        self.dispatch.collect([*many, *waiting] if many else waiting, found.end, sum(map(len, many)))

    def repair(self, entries: Sequence[IndexEntry], end: int) -> None:
        """Take in records that were missing, some of them perhaps for the second time; the log ends at `end`."""
        self.producers.repair(
            [Sequenced(entry.producer_id, entry.sequence, entry.start, entry.store_ms) for entry in entries if entry.producer_id]
        )
        for entry in entries:
            self.store_ms = max(self.store_ms, entry.store_ms)
            if entry.queue >= 0:
                queue = self.index.queue(entry.topic, entry.queue)
                queue.next = max(queue.next, entry.queue_offset + 1)
        if entries and entries[-1].end > self.dispatch.applied:
            self.dispatch.drop_waiting(end)

    def _take(self, batch: RecordBatch, queues_from: int, producers_from: int) -> WaitingBatch:
        for producer_id, first, positions, store_ms in batch.sequences:
            known = bisect_left(positions, producers_from)
            self.producers.record(producer_id, first + known, positions[known:], store_ms)
        waiting = waiting_batch_of(self.index, batch, queues_from)
        for queue, run in waiting.runs:
            queue.extend(run.first, run.first + len(run.rows))  # only sealed records come in batches
        self.store_ms = max(self.store_ms, int(batch.store_ms[waiting.taken :].max(initial=0)))
        return waiting
