"""Finds out whether someone else wrote behind our last stop. What they wrote becomes a stretch of its own in the lineage.

RocketMQ opens our stores, appends, and leaves. After a clean stop everything behind the end that we stamped is theirs. After a
kill our own last records have no such border. There the first whole record is theirs that carries no record CRC, or that names
two hosts as ours never do. One that carries a wrong CRC, and nothing else strange, is a torn one of ours, unless RocketMQ's own
marks say that it was here.
"""

import xxhash

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import Found, LegiblePages
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues import checkpoint
from dittomq.commitlog.records.foreign import ORIGIN_BYTES, by_another_hand, carries_seal
from dittomq.commitlog.records.format import Scan, problem_of
from dittomq.commitlog.records.seals import Seals
from dittomq.commitlog.records.walk import HEADER_BYTES, Sort, View, span_at
from dittomq.commitlog.state import lineage_file
from dittomq.commitlog.state.watermark import Watermark
from dittomq.lineage import FOREIGN, Lineage, LineageEntry, cut_lineage, newest_epoch
from dittomq.offsets import PhysicalOffset


class Visits:
    """The lineage of a log while it is recovered; what is found is durable before it is used."""

    def __init__(self, storage: Storage, log: Log, mark: Watermark) -> None:
        self._storage = storage
        self._log = log
        self._lineage: Lineage = lineage_file.load(storage)
        self._sure = not checkpoint.abort_is_ours(storage)
        self.seals = Seals(self._lineage)
        if mark.closed:
            self._note(mark.flushed, sure=True)

    def begin_at(self, position: int) -> bool:
        """Whether someone else's records begin at `position`, where no whole one of ours does. From there on nothing is ours."""
        return self.seals.at(position).sealed and self._note(position, sure=self._sure)

    def ours(self, found: Found) -> Found:
        """What of these sealed records behind our watermark, scanned singly, is ours: all up to the first one of another hand."""
        batches, scan = found
        assert not batches, "each record is looked at"
        newest = self._lineage[-1].start if self._lineage else 0
        for number, entry in enumerate(scan.entries):
            if entry.topic and entry.start >= newest and by_another_hand(self._log.read(entry.start, ORIGIN_BYTES, self._log.stop)):
                return [], Scan(scan.entries[:number], entry.start, "")
        return found

    def _note(self, position: int, *, sure: bool) -> bool:
        """Durably begin a foreign stretch at `position`, if one is there. `sure`: nothing of ours can be."""
        lineage = self._lineage
        if not lineage or lineage[-1].start > position or (lineage[-1].start == position and lineage[-1].opener_id == FOREIGN):
            return False
        first = first_record(self._log, position)
        if first is None or not (sure or by_another_hand(first) or not carries_seal(first)):
            return False
        entry = LineageEntry(newest_epoch(lineage), FOREIGN, xxhash.xxh3_64_intdigest(first), PhysicalOffset(position))
        self._lineage = (*cut_lineage(lineage, entry.start), entry)
        lineage_file.save(self._storage, self._lineage)
        self.seals.adopt(self._lineage)
        return True


def first_record(log: Log, position: int) -> bytes | None:
    """The record at `position`, or behind the mark there, if it is whole by the rule for records that nothing seals."""
    source = LegiblePages(log)
    while position < log.stop:
        segment_end = log.segment_of(position)[1]
        span = span_at(View(source.read(position, HEADER_BYTES, log.stop), position, segment_end), position)
        if span is None:
            return None
        if span.sort is not Sort.MARK:
            record = source.read(position, span.end - span.start, log.stop)
            return None if problem_of(record, position, sealed=False) else record
        position = span.end
    return None
