"""What a store on disk holds, by topic and queue, in one reading that proves it against itself too.

Memory grows with the number of queues, not with the log.
"""

from dataclasses import dataclass, field

from dittomq.commitlog.offline.open_store import Progress, StoreOnDisk
from dittomq.commitlog.offline.verify import Report, verify
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.columnar_codec import Numbers, RecordColumns
from dittomq.commitlog.records.decoding import Record


@dataclass(slots=True)
class QueueTally:
    """Whole records of one queue. Times are store times in ms; offsets are queue offsets as the records state them."""

    first_offset: int
    oldest_ms: int
    newest_ms: int
    last_offset: int = 0
    records: int = 0
    record_bytes: int = 0
    body_bytes: int = 0

    def add(self, record: Record) -> None:
        """Count a record, the next in the log."""
        self.last_offset = record.queue_offset
        self.oldest_ms = min(self.oldest_ms, record.store_ms)
        self.newest_ms = max(self.newest_ms, record.store_ms)
        self.records += 1
        self.record_bytes += record.size
        self.body_bytes += len(record.body)

    def add_all(self, columns: RecordColumns, rows: Numbers) -> None:
        """Count some rows, the next of the queue."""
        times = columns.field("store_ms")[rows]
        self.last_offset = int(columns.field("queue_offset")[rows[-1]])
        self.oldest_ms = min(self.oldest_ms, int(times.min()))
        self.newest_ms = max(self.newest_ms, int(times.max()))
        self.records += len(rows)
        self.record_bytes += int((columns.ends - columns.starts)[rows].sum())
        self.body_bytes += int(columns.field("body_bytes")[rows].sum())


@dataclass(frozen=True, slots=True)
class Measured:
    """`report` is what `verify` found on the way."""

    store: StoreOnDisk
    report: Report
    topics: dict[str, dict[int, QueueTally]] = field(default_factory=dict)

    @property
    def tallies(self) -> list[QueueTally]:
        """Of all queues."""
        return [tally for queues in self.topics.values() for tally in queues.values()]


def measure(store: StoreOnDisk, progress: Progress | None = None) -> Measured:
    """Read the whole log: no lock, no change."""
    counting = _Counting()
    report = verify(store, progress, counting)
    return Measured(store, report, counting.topics)


class _Counting:
    """Hears of every record."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, QueueTally]] = {}

    def record(self, record: Record) -> None:
        self._tally((record.topic, record.queue), record.queue_offset, record.store_ms).add(record)

    def records(self, key: QueueKey, columns: RecordColumns, rows: Numbers) -> None:
        offsets, times = columns.field("queue_offset"), columns.field("store_ms")
        self._tally(key, int(offsets[rows[0]]), int(times[rows[0]])).add_all(columns, rows)

    def _tally(self, key: QueueKey, offset: int, store_ms: int) -> QueueTally:
        """That of the queue; a new one begins with a record of that offset and time."""
        topic, queue = key
        queues = self.topics.setdefault(topic, {})
        if queue not in queues:
            queues[queue] = QueueTally(offset, store_ms, store_ms)
        return queues[queue]
