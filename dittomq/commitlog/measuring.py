"""What a store on disk holds, by topic and queue, in one reading that proves it against itself too.

Memory grows with the number of queues, not with the log.
"""

from dataclasses import dataclass, field

from dittomq.commitlog.decoding import Record
from dittomq.commitlog.inspect import Progress, StoreOnDisk
from dittomq.commitlog.verifying import Report, verify


@dataclass(slots=True)
class Tally:
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


@dataclass(frozen=True, slots=True)
class Measured:
    """`report` is what `verify` found on the way."""

    store: StoreOnDisk
    report: Report
    topics: dict[str, dict[int, Tally]] = field(default_factory=dict)

    @property
    def tallies(self) -> list[Tally]:
        """Of all queues."""
        return [tally for queues in self.topics.values() for tally in queues.values()]


def measure(store: StoreOnDisk, progress: Progress | None = None) -> Measured:
    """Read the whole log: no lock, no change."""
    topics: dict[str, dict[int, Tally]] = {}

    def hear(record: Record) -> None:
        queues = topics.setdefault(record.topic, {})
        tally = queues.get(record.queue)
        if tally is None:
            tally = queues[record.queue] = Tally(record.queue_offset, record.store_ms, record.store_ms)
        tally.add(record)

    report = verify(store, progress, hear)
    return Measured(store, report, topics)
