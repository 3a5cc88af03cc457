"""Reads a log record by record, in windows; finds its feet again behind damage."""

from collections.abc import Callable
from typing import Protocol

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.storage import PAGE_BYTES, speaks_of_bytes
from dittomq.commitlog.records import rocketmq_records
from dittomq.commitlog.records.batch_index import RecordBatch, gather
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import MAX_RECORD_BYTES, START, Scan, problem_of, scan
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, View, next_start, span_at
from dittomq.message import MAX_BODY_BYTES

WINDOW_BYTES = 2 * MAX_RECORD_BYTES
# Records of RocketMQ up to this size are told from damage, and refused by name.
_LARGEST_BYTES = 64 * 1024 * 1024


class Source(Protocol):
    """A log's bytes."""

    def read(self, start: int, length: int, limit: int | None = None) -> bytes: ...

    def segment_of(self, offset: int) -> tuple[int, int]: ...

    def withheld(self, start: int, end: int) -> int | None: ...


class ReadablePages:
    """A log read as far as its disk gives it: zeros stand for the pages that it does not give. Raises what says nothing of the bytes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._withheld: list[int] = []  # pages of the last read

    def read(self, start: int, length: int, limit: int | None = None) -> bytes:
        """As `Log.read` does."""
        self._withheld = []
        try:
            return self._log.read(start, length, limit)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            pages: list[bytes] = []
        stop = min(start + length, self.segment_of(start)[1], self._log.end if limit is None else limit)
        while start < stop:
            size = min(PAGE_BYTES - start % PAGE_BYTES, stop - start)
            try:
                pages.append(self._log.read(start, size, limit))
            except OSError as error:
                if not speaks_of_bytes(error):
                    raise
                pages.append(bytes(size))
                self._withheld.append(start)
            start += size
        return b"".join(pages)

    def segment_of(self, offset: int) -> tuple[int, int]:
        """As `Log.segment_of` does."""
        return self._log.segment_of(offset)

    def withheld(self, start: int, end: int) -> int | None:
        """The first byte of [start, end), which was read last, for which a zero stands; None: the disk gave all of them."""
        return next((at for at in self._withheld if start <= at < end), None)


Found = tuple[list[RecordBatch], Scan]
"""Whole records: ordinary ones, many at once, and what comes behind them."""
Scanner = Callable[[bytes, int, int, bool], Found]


def scan_bytes(data: bytes, base: int, segment_end: int, sealed: bool) -> Found:
    """Whole records and marks in `data`, by the rule of those who wrote them."""
    if not sealed:
        return scan_singly(data, base, segment_end, sealed)
    batches, at = gather(data, base, segment_end)
    return batches, scan(data, base, segment_end, at)


def scan_singly(data: bytes, base: int, segment_end: int, sealed: bool) -> Found:
    """The same, each record by itself."""
    return [], scan(data, base, segment_end) if sealed else rocketmq_records.scan(data, base, segment_end)


def scan_at(log: Source, seals: ChecksumPolicy, start: int, limit: int, *, scanner: Scanner = scan_bytes) -> Found:
    """Whole records and marks of one stretch from `start`, where one begins, that end at or below `limit`; a window full at most.

    When nothing is left but bytes of a record that `limit` cuts off, `end` is `start` and there is no problem. Raises NotRead.
    """
    sealed_range = seals.at(start)
    border = min(limit, sealed_range.end)
    data = log.read(start, WINDOW_BYTES, border)
    batches, found = scanner(data, start, log.segment_of(start)[1], sealed_range.sealed)
    if not sealed_range.sealed:  # so no checksum covers all of a record
        found = _up_to(found, start, log.withheld(start, found.end))
        if found.problem:
            _refuse_larger(log, found.end, border)
    if found.end > start or found.problem:
        return batches, found
    if len(data) == WINDOW_BYTES:
        return [], Scan([], start, "an end-of-file mark stands long before the segment's end")
    return [], Scan([], start, "a record reaches into what another hand wrote") if border < limit else found


def skip_damage(log: Source, seals: ChecksumPolicy, start: int, limit: int) -> int:
    """The next position behind `start` where a whole record or a mark begins; the segment's end or `limit` when there is none.

    Each byte is read a bounded number of times, whatever seems to begin there: a body may be full of headers.
    """
    _, segment_end = log.segment_of(start)
    stop = min(segment_end, limit)
    at = start + 1
    while at < stop:
        data = log.read(at, WINDOW_BYTES, limit)
        view = View(data, at, segment_end)
        found = next_start(view, at)
        while found is not None and _is_damaged(view, found, seals, limit):
            found = next_start(view, found + 1)
        if found is not None:
            span = span_at(view, found)
            if found == at or span is None or span.sort is Sort.MARK or span.end <= view.end:
                return found
            at = found  # not all of it was read
        elif view.end >= stop:
            break
        else:
            at = view.end - HEADER_BYTES
    return stop


def _is_damaged(view: View, at: int, seals: ChecksumPolicy, limit: int) -> bool:
    """Whether the record that seems to begin there is all in view, or can be none, and is not whole."""
    span, sealed_range = span_at(view, at), seals.at(at)
    if span is None or span.sort is not Sort.RECORD:
        return False
    if span.end > min(limit, sealed_range.end) or (sealed_range.sealed and span.end - at > MAX_RECORD_BYTES):
        return True
    if span.end > view.end:
        return False
    try:
        _, found = scan_singly(view.data[at - view.base : span.end - view.base], at, view.segment_end, sealed_range.sealed)
    except rocketmq_records.NotRead:  # whole; whoever reads on is told
        return False
    return found.end == at


def start_before(log: Source, position: int, least: int, limit: int) -> int:
    """A place at or before `position` where a record or mark is sure to begin, not below its segment's start and `least`."""
    segment_start, segment_end = log.segment_of(position)
    lowest = max(segment_start, least)
    back = MAX_RECORD_BYTES
    while position - back > lowest:
        at = position - back
        found = next_start(View(log.read(at, back + HEADER_BYTES, limit), at, segment_end), at)
        if found is not None and found <= position:
            return found
        back *= 2
    return lowest


def _up_to(found: Scan, start: int, withheld: int | None) -> Scan:
    """Of what was found from `start` on the records in front of a byte that the disk did not give."""
    if withheld is None:
        return found
    entries = [entry for entry in found.entries if entry.end <= withheld]
    return Scan(entries, entries[-1].end if entries else start, "the disk does not give all of it")


def _refuse_larger(log: Source, start: int, limit: int) -> None:
    """Raise NotRead for a whole record that only a larger maxMessageSize than RocketMQ's own makes possible."""
    head = log.read(start, HEADER_BYTES, limit)
    if span_at(View(head, start, log.segment_of(start)[1]), start) is None:
        return
    size, _ = START.unpack_from(head)
    if MAX_RECORD_BYTES < size <= _LARGEST_BYTES:
        record = log.read(start, size, limit)
        if len(record) == size and not problem_of(record, start, sealed=False):
            raise rocketmq_records.NotRead(start, f"a queue with messages of more than {MAX_BODY_BYTES:,} bytes")
