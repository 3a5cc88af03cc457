"""What follows from the log alone: the queues' next offsets, the producers' table, the newest store time."""

from collections.abc import Sequence

from dittomq.commitlog.dispatch import Dispatch, Waiting, waiting_of
from dittomq.commitlog.format import Entry
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
        """Take in records that are in the log now, behind all before; it ends at `end`."""
        waiting: list[Waiting] = []
        for entry in entries:
            one = waiting_of(self.index, entry)
            waiting.append(one)
            queue = one[1]
            if queue is None:
                continue
            if entry.queue_offset >= queue.next:
                queue.next = entry.queue_offset + 1
            if entry.producer_id and entry.start >= producers_from:
                self.producers.note(entry.producer_id, entry.sequence, (entry.start,))
            self.store_ms = max(self.store_ms, entry.store_ms)
        self.dispatch.collect(waiting, end)
