"""What follows from the log alone: the queues' next offsets, the producers' table, the newest store time."""

from array import array
from collections.abc import Sequence

from dittomq.commitlog.dispatch import Dispatch, Waiting, carried
from dittomq.commitlog.format import UNIT, Entry
from dittomq.commitlog.producers import Producers
from dittomq.commitlog.queue_index import QueueIndex


class Derived:
    """Kept in step with the log by whoever writes it."""

    def __init__(self, index: QueueIndex, producers: Producers, dispatch: Dispatch, store_ms: int) -> None:
        self.index = index
        self.producers = producers
        self.dispatch = dispatch
        self.store_ms = store_ms

    def absorb(self, entries: Sequence[Entry], end: int, *, producers_from: int = 0) -> None:
        """Take in records that are in the log now, behind all before; it ends at `end`. On a slave's hot path."""
        waiting: list[Waiting] = []
        store_ms, queues, pack = self.store_ms, self.index.queues, UNIT.pack
        producer, first, positions = "", 0, array("q")  # neighbours in the log that are neighbours in their producer's sequences
        for start, stop, topic, queue_id, queue_offset, code, stored_ms, producer_id, sequence, keyed in entries:
            if queue_id < 0:
                waiting.append((stop, None, 0, b"", None))
                store_ms = max(store_ms, stored_ms)
                continue
            queue = queues.get((topic, queue_id)) or self.index.queue(topic, queue_id)
            keys = carried(stored_ms, keyed) if keyed else None
            waiting.append((stop, queue, queue_offset, pack(start, stop - start, code), keys))
            if queue_offset >= queue.next:
                queue.next = queue_offset + 1
            elif queue_offset == 0:  # a topic that RocketMQ deleted and that was made again
                queue.next = max(1, queue.min)
            store_ms = max(store_ms, stored_ms)
            if not producer_id or start < producers_from:
                continue
            if producer_id != producer or sequence != first + len(positions):
                self.producers.note(producer, first, positions)
                producer, first, positions = producer_id, sequence, array("q")
            positions.append(start)
        self.producers.note(producer, first, positions)
        self.store_ms = store_ms
        self.dispatch.collect(waiting, end)
