"""Reads a log record by record, in windows; finds its feet again behind damage."""

from collections.abc import Callable
from typing import Protocol

from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.records import foreign
from dittomq.commitlog.records.format import MAX_RECORD_BYTES, START, Scan, problem_of, scan
from dittomq.commitlog.records.gathering import Batch, gather
from dittomq.commitlog.records.seals import Seals
from dittomq.commitlog.records.walk import HEADER_BYTES, View, next_start, span_at
from dittomq.message import MAX_BODY_BYTES

WINDOW_BYTES = 2 * MAX_RECORD_BYTES
# Records of RocketMQ up to this size are told from damage, and refused by name.
_LARGEST_BYTES = 64 * 1024 * 1024
_PAGE_BYTES = 4_096


class Source(Protocol):
    """A log's bytes."""

    def read(self, start: int, length: int, limit: int | None = None) -> bytes: ...

    def segment_of(self, offset: int) -> tuple[int, int]: ...


class LegiblePages:
    """A log read as far as its disk gives it: zeros stand for the pages that it does not give."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(self, start: int, length: int, limit: int | None = None) -> bytes:
        """As `Log.read` does."""
        try:
            return self._log.read(start, length, limit)
        except OSError:
            pages: list[bytes] = []
        stop = min(start + length, self.segment_of(start)[1], self._log.end if limit is None else limit)
        while start < stop:
            size = min(_PAGE_BYTES - start % _PAGE_BYTES, stop - start)
            try:
                pages.append(self._log.read(start, size, limit))
            except OSError:
                pages.append(bytes(size))
            start += size
        return b"".join(pages)

    def segment_of(self, offset: int) -> tuple[int, int]:
        """As `Log.segment_of` does."""
        return self._log.segment_of(offset)


Found = tuple[list[Batch], Scan]
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
    return [], scan(data, base, segment_end) if sealed else foreign.scan(data, base, segment_end)


def scan_at(log: Source, seals: Seals, start: int, limit: int, scanner: Scanner = scan_bytes) -> Found:
    """Whole records and marks of one stretch from `start`, where one begins, that end at or below `limit`; a window full at most.

    When nothing is left but bytes of a record that `limit` cuts off, `end` is `start` and there is no problem. Raises NotRead.
    """
    stretch = seals.at(start)
    border = min(limit, stretch.end)
    data = log.read(start, WINDOW_BYTES, border)
    batches, found = scanner(data, start, log.segment_of(start)[1], stretch.sealed)
    if found.problem and not stretch.sealed:
        _refuse_larger(log, found.end, border)
    if found.end > start or found.problem:
        return batches, found
    if len(data) == WINDOW_BYTES:
        return [], Scan([], start, "an end-of-file mark stands long before the segment's end")
    return [], Scan([], start, "a record reaches into what another hand wrote") if border < limit else found


def skip_damage(log: Source, start: int, limit: int) -> int:
    """The next position behind `start` where a record or mark begins; the segment's end or `limit` when there is none."""
    _, segment_end = log.segment_of(start)
    stop = min(segment_end, limit)
    at = start + 1
    while at < stop:
        data = log.read(at, WINDOW_BYTES, limit)
        found = next_start(View(data, at, segment_end), at)
        if found is not None:
            return found
        if at + len(data) >= stop:
            break
        at += len(data) - HEADER_BYTES
    return stop


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


def _refuse_larger(log: Source, start: int, limit: int) -> None:
    """Raise NotRead for a whole record that only a larger maxMessageSize than RocketMQ's own makes possible."""
    head = log.read(start, HEADER_BYTES, limit)
    if span_at(View(head, start, log.segment_of(start)[1]), start) is None:
        return
    size, _ = START.unpack_from(head)
    if MAX_RECORD_BYTES < size <= _LARGEST_BYTES:
        record = log.read(start, size, limit)
        if len(record) == size and not problem_of(record, start, sealed=False):
            raise foreign.NotRead(start, f"a queue with messages of more than {MAX_BODY_BYTES:,} bytes")
