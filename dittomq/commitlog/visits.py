"""Finds out whether someone else wrote behind our last stop. What they wrote becomes a stretch of its own in the lineage.

RocketMQ opens our stores, appends, and leaves. After a clean stop everything behind the end that we stamped is theirs. After a
kill our own last records have no such border: whole ones carry the record CRC, so the first whole record without one is theirs.
A record that carries one which is wrong is a torn one of ours, unless RocketMQ's own marks say that it was here.
"""

import xxhash

from dittomq.commitlog import checkpoint, lineage_file
from dittomq.commitlog.foreign import carries_seal
from dittomq.commitlog.format import problem_of
from dittomq.commitlog.log import Log
from dittomq.commitlog.seals import Seals
from dittomq.commitlog.storage import Storage
from dittomq.commitlog.walk import HEADER_BYTES, Sort, View, span_at
from dittomq.commitlog.watermark import Watermark
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

    def _note(self, position: int, *, sure: bool) -> bool:
        """Durably begin a foreign stretch at `position`, if one is there. `sure`: nothing of ours can be."""
        lineage = self._lineage
        if not lineage or lineage[-1].start > position or (lineage[-1].start == position and lineage[-1].opener_id == FOREIGN):
            return False
        first = first_record(self._log, position)
        if first is None or (not sure and carries_seal(first)):
            return False
        entry = LineageEntry(newest_epoch(lineage), FOREIGN, xxhash.xxh3_64_intdigest(first), PhysicalOffset(position))
        self._lineage = (*cut_lineage(lineage, entry.start), entry)
        lineage_file.save(self._storage, self._lineage)
        self.seals.adopt(self._lineage)
        return True


def first_record(log: Log, position: int) -> bytes | None:
    """The record at `position`, or behind the mark there, if it is whole by the rule for records that nothing seals."""
    while position < log.stop:
        segment_end = log.segment_of(position)[1]
        span = span_at(View(log.read(position, HEADER_BYTES, log.stop), position, segment_end), position)
        if span is None:
            return None
        if span.sort is not Sort.MARK:
            record = log.read(position, span.end - span.start, log.stop)
            return None if problem_of(record, position, sealed=False) else record
        position = span.end
    return None
