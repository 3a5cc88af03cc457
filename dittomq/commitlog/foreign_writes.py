"""Finds out whether someone else wrote behind our last stop. What they wrote becomes a stretch of its own in the epoch history.

RocketMQ opens our stores, appends, and leaves. After a clean stop everything behind the end that we stamped is theirs. After a
kill our own last records have no such border. There the first whole record is theirs that carries no record CRC, or that names
two hosts as ours never do. One that carries a wrong CRC, and nothing else strange, is a torn one of ours, unless RocketMQ's own marks
say that it was here. One with zeros in its properties, and nothing else strange, is a torn one of ours though they do.

RocketMQ takes a torn record, of ours or of its own, for whole when its properties alone are torn, and appends behind it. Such
records are damaged then, and what follows them is theirs.
"""

from collections.abc import Callable

import xxhash

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import Found, ReadablePages
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import Scan, body_problem, problem_of, store_ms_of
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, Span, View, span_at
from dittomq.commitlog.records.rocketmq_records import ORIGIN_BYTES, by_another_hand, may_be_ours, surely_anothers
from dittomq.commitlog.state import epoch_history_file
from dittomq.commitlog.state.recovery_point import RecoveryPoint
from dittomq.epoch_history import FOREIGN, EpochEntry, EpochHistory, newest_epoch, truncate_history
from dittomq.offsets import PhysicalOffset


class ForeignWrites:
    """The epoch history of a log while it is recovered; what is found is durable before it is used."""

    def __init__(self, storage: Storage, log: Log, mark: RecoveryPoint) -> None:
        self._storage = storage
        self._log = log
        self._epoch_history: EpochHistory = epoch_history_file.load(storage)
        self._are_theirs: Callable[[bytes], bool] = surely_anothers if index_checkpoint.abort_is_ours(storage) else _is_none_of_ours
        self.seals = ChecksumPolicy(self._epoch_history)
        if mark.closed:
            self._persist(mark.flushed, lambda _: True)

    def begin_at(self, position: int) -> bool:
        """Whether someone else's records begin at `position`, where no whole one of ours does. From there on nothing is ours."""
        return self.seals.at(position).sealed and self._persist(position, self._are_theirs)

    def begin_behind_torn_at(self, position: int) -> int | None:
        """Where the record at `position` ends, ours or RocketMQ's own, that is torn; None unless RocketMQ took it for whole and went on.

        Between ours and what RocketMQ appended more of ours may lie, torn ones and whole ones.
        """
        source = ReadablePages(self._log)
        first = _end_for_rocketmq(source, position, self._log.stop)
        sealed = self.seals.at(position).sealed
        at = first
        while at is not None:
            behind = first_record(self._log, at)
            if not sealed:  # one of theirs, of before they were killed
                return None if behind is None else first
            known = any(entry.start >= at and entry.master_id == FOREIGN for entry in self._epoch_history)
            if known or self._persist(at, self._are_theirs):
                return first
            if behind is not None and not may_be_ours(behind):
                return None
            at = _end_for_rocketmq(source, at, self._log.stop)
        return None

    def ours(self, found: Found) -> Found:
        """What of these sealed records behind our recovery point, scanned singly, is ours: all up to the first one of another hand."""
        batches, scan = found
        assert not batches, "each record is looked at"
        newest = self._epoch_history[-1].start if self._epoch_history else 0
        for number, entry in enumerate(scan.entries):
            if entry.topic and entry.start >= newest and by_another_hand(self._log.read(entry.start, ORIGIN_BYTES, self._log.stop)):
                return [], Scan(scan.entries[:number], entry.start, "")
        return found

    def _persist(self, position: int, are_theirs: Callable[[bytes], bool]) -> bool:
        """Durably begin a foreign stretch at `position`, if one is there: that is asked of its first record."""
        epoch_history = self._epoch_history
        if (
            not epoch_history
            or epoch_history[-1].start > position
            or (epoch_history[-1].start == position and epoch_history[-1].master_id == FOREIGN)
        ):
            return False
        first = first_record(self._log, position)
        if first is None or not are_theirs(first):
            return False
        entry = EpochEntry(newest_epoch(epoch_history), FOREIGN, xxhash.xxh3_64_intdigest(first), PhysicalOffset(position))
        self._epoch_history = (*truncate_history(epoch_history, entry.start), entry)
        epoch_history_file.save(self._storage, self._epoch_history)
        self.seals.adopt(self._epoch_history)
        return True


def _is_none_of_ours(record: bytes) -> bool:
    """What is asked where RocketMQ's own marks say that it was here: any seal but a right one, or that of a torn record, is a copy then."""
    return not may_be_ours(record)


def first_record(log: Log, position: int) -> bytes | None:
    """The record at `position`, or behind the mark there, if it is whole by the rule for records that nothing seals."""
    source = ReadablePages(log)
    while (span := _span(source, position, log.stop)) is not None:
        if span.sort is not Sort.MARK:
            record = source.read(position, span.end - span.start, log.stop)
            return None if problem_of(record, position, sealed=False) else record
        position = span.end
    return None


def newest_ms_before(log: Log, position: int) -> int:
    """A moment at which the records before `position` were stored, or earlier ones, and surely none behind it; 0 when that is not known."""
    record = first_record(log, position)
    return 0 if record is None else max(0, store_ms_of(record) - 1)


def _span(source: ReadablePages, position: int, stop: int) -> Span | None:
    """The record or mark at `position`, by its header alone; None where none is, and at `stop`, where the log's files end."""
    if position >= stop:
        return None
    return span_at(View(source.read(position, HEADER_BYTES, stop), position, source.segment_of(position)[1]), position)


def _end_for_rocketmq(source: ReadablePages, position: int, stop: int) -> int | None:
    """Where the record or mark at `position` ends, if RocketMQ takes it for whole: of a record it looks at the body only."""
    span = _span(source, position, stop)
    if span is None or (span.sort is Sort.RECORD and body_problem(source.read(position, span.end - position, span.end), position)):
        return None
    return span.end
