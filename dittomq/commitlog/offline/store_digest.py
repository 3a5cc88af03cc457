"""Digests of a whole store on disk, small enough to carry away: 16 bytes a MiB. RocketMQ's stores and ours; reads, never writes.

Left out on purpose, because copies may differ in it: what follows an end-of-file mark, and what follows the last whole record.
With a range, leaves of 4 KiB and every record in it by name and digest; still no payload.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from dittomq.commitlog.disk import segment
from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.records.digest import leaf_digest
from dittomq.commitlog.records.format import MARK_BYTES
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, Span, View, fields_of, next_start, problem_of, spans
from dittomq.commitlog.state import identity
from dittomq.copies import LEAF_BYTES
from dittomq.errors import InvalidField, StartError, StoreOpenFailed

VERSION = 1
FINE_LEAF_BYTES = 4 * 1024
MAX_FINE_RANGE_BYTES = 64 * 1024 * 1024
MAX_DAMAGED = 1_000
"""So many stretches without a record are named; of a store that is rotten all through there may be millions."""
_WINDOW_BYTES = 16 * 1024 * 1024
_TAIL_SPANS = 16


@dataclass(eq=False)
class InvalidDigestFile(StartError):
    """The file is no digest file that this version reads."""

    reason = "NOT_A_DIGEST_FILE"
    name: str
    problem: str

    def __str__(self) -> str:
        return f"{self.name} is no digest file: {self.problem}; make it again with: dittomq log digest STORE -o FILE"


class Range(NamedTuple):
    """Bytes [start, end) of the log."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentLeaves:
    """Leaves of [start, end) of one segment. `closed`: nothing comes behind `end` in it. `unreadable` says why there are none."""

    start: int
    end: int
    closed: bool
    leaves: tuple[bytes, ...]
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class RecordDigest:
    """A record by name and digest. `problem` says why it is not whole, empty when its own checksum matches."""

    start: int
    end: int
    topic: str
    queue: int
    queue_offset: int
    keys: tuple[str, ...]
    store_ms: int
    digest: str
    problem: str


@dataclass(frozen=True, slots=True)
class StoreDigest:
    """What one store holds. `end` is one past its last whole record, or past a newest segment that could not be read.

    `asked` None: the whole store, in leaves of 1 MiB.
    `damaged_left_out`: so many stretches behind those of `damaged` hold no record either. Leaves cover all of them.
    """

    kind: str
    segment_bytes: int
    low: int
    end: int
    leaf_bytes: int
    asked: Range | None
    segments: tuple[SegmentLeaves, ...]
    damaged: tuple[Range, ...]
    records: tuple[RecordDigest, ...]
    damaged_left_out: int = 0

    @property
    def readable_end(self) -> int:
        """Up to where it is known what the store holds: less than `end` when its newest segment could not be read."""
        if not self.segments or not self.segments[-1].unreadable:
            return self.end
        last = next((each for each in reversed(self.segments) if not each.unreadable), None)
        if last is None:
            return self.low
        return last.end + -last.end % self.segment_bytes if last.closed else last.end


Progress = Callable[[int, int], None]
"""Hears how many bytes are done, and of how many."""


def digest_store(storage: Storage, name: str, asked: Range | None = None, progress: Progress | None = None) -> StoreDigest:
    """Digest a store that may be in use; `name` is what a person calls it. Raises StoreOpenFailed, InvalidField."""
    identity.refuse_newer(storage, name)
    starts, segment_bytes = segment.segments_of(storage, name)
    shifted = next((start for start in starts if start % segment_bytes), None)
    if shifted is not None:  # the other store's would have other borders
        change = f"does not begin at a multiple of its size ({segment_bytes:,} bytes); give it its own name or its whole size"
        raise StoreOpenFailed(name, f"{segment.path_of(shifted)} {change}")
    if asked is not None and not 0 < asked.end - asked.start <= MAX_FINE_RANGE_BYTES:
        raise InvalidField("--bytes", f"takes 1 to {MAX_FINE_RANGE_BYTES:,} bytes, not {asked.end - asked.start:,}")
    reading = _DigestPass(storage, segment_bytes, asked)
    for done, start in enumerate(starts, 1):
        reading.take(start)
        if progress is not None:
            progress(done * segment_bytes, len(starts) * segment_bytes)
    return reading.result("dittomq" if storage.exists("dittomq") else "RocketMQ", starts[0])


class _Newest(NamedTuple):
    """One of a segment's newest records, and how many stretches without one lie before it."""

    span: Span
    damaged_before: int


class _Content(NamedTuple):
    """What a segment holds: bytes that count up to `end`, the newest records, those in the asked range.

    `damaged` are the first of its stretches without a record, `damaged_count` counts them all.
    """

    end: int
    closed: bool
    damaged: list[Range]
    damaged_count: int
    tail: list[_Newest]
    asked: list[Span]


class _DigestPass:
    """Goes through the segments in order; only when the next one holds something is it known that one is closed."""

    def __init__(self, storage: Storage, segment_bytes: int, asked: Range | None) -> None:
        self._storage = storage
        self._segment_bytes = segment_bytes
        self._asked = asked
        self._leaf_bytes = LEAF_BYTES if asked is None else FINE_LEAF_BYTES
        self._open: tuple[int, _Content] | None = None
        self._unread: list[SegmentLeaves] = []  # behind the open one, which they may close or not
        self._segments: list[SegmentLeaves] = []
        self._damaged: list[Range] = []
        self._damaged_left_out = 0
        self._records: list[RecordDigest] = []
        self._end = 0

    def take(self, start: int) -> None:
        """Read the segment that begins at `start`."""
        try:
            with closing(self._storage.open(segment.path_of(start), readonly=True)) as file:
                content = _content(file, start, start + self._segment_bytes, self._asked)
        except OSError as error:
            self._unread.append(SegmentLeaves(start, start + self._segment_bytes, closed=True, leaves=(), unreadable=str(error)))
            return
        if content.tail or content.closed:
            self._close(closed=True)
            self._open = start, content

    def result(self, kind: str, low: int) -> StoreDigest:
        """The digest of all that was taken."""
        self._close(closed=False)
        return StoreDigest(
            kind=kind,
            segment_bytes=self._segment_bytes,
            low=low,
            end=max(low, self._end),
            leaf_bytes=self._leaf_bytes,
            asked=self._asked,
            segments=tuple(self._segments),
            damaged=tuple(self._damaged),
            records=tuple(self._records),
            damaged_left_out=self._damaged_left_out,
        )

    def _close(self, *, closed: bool) -> None:
        if self._open is not None:
            self._digest(*self._open, closed=closed)
        if self._unread:
            self._segments += self._unread
            self._end = self._unread[-1].end
        self._open, self._unread = None, []

    def _digest(self, start: int, content: _Content, *, closed: bool) -> None:
        try:
            with closing(self._storage.open(segment.path_of(start), readonly=True)) as file:
                end, damaged_count = self._extent(file, start, content, closed=closed)
                first = start if self._asked is None else _aligned(max(start, self._asked.start), start, self._leaf_bytes)
                stop = end if self._asked is None else min(end, self._asked.end)
                leaves = tuple(leaf_digest(piece) for piece in _pieces(file, first - start, stop - start, self._leaf_bytes))
                records = [_named(file, start, self._segment_bytes, span) for span in content.asked if span.end <= end]
        except OSError as error:
            self._segments.append(SegmentLeaves(start, start + self._segment_bytes, closed=closed, leaves=(), unreadable=str(error)))
            self._end = start + self._segment_bytes
            return
        if leaves:
            self._segments.append(SegmentLeaves(first, stop, (closed or content.closed) and stop == end, leaves))
        self._records += records
        named = content.damaged[: min(damaged_count, MAX_DAMAGED - len(self._damaged))]
        self._damaged += named
        self._damaged_left_out += damaged_count - len(named)
        self._end = start + self._segment_bytes if closed or content.closed else end

    def _extent(self, file: File, start: int, content: _Content, *, closed: bool) -> tuple[int, int]:
        """Where the bytes that count end: behind the mark, or in the newest segment behind the last whole record.

        And how many stretches without a record lie before that.
        """
        if content.closed:
            return content.end, content.damaged_count
        if closed:
            return start + self._segment_bytes, content.damaged_count
        for span, damaged_before in reversed(content.tail):
            view = View(file.pread(span.end - span.start, span.start - start), span.start, start + self._segment_bytes)
            if not problem_of(view, span, sealed=False):
                return span.end, damaged_before
        first, damaged_before = content.tail[0]
        return first.start, damaged_before


def _content(file: File, start: int, stop: int, asked: Range | None) -> _Content:
    damaged: list[Range] = []
    tail: deque[_Newest] = deque(maxlen=_TAIL_SPANS)
    wanted: list[Span] = []
    end, damaged_count = start, 0
    for span in _segment_spans(file, start, stop):
        if span.sort is Sort.MARK:
            return _Content(span.start + MARK_BYTES, True, damaged, damaged_count, list(tail), wanted)
        if span.sort is Sort.DAMAGED:
            if span.end == stop:
                break  # what nothing follows is no damage but the log's end
            damaged_count += 1
            if len(damaged) < MAX_DAMAGED:
                damaged.append(Range(span.start, span.end))
            continue
        end = span.end
        tail.append(_Newest(span, damaged_count))
        if asked is not None and span.start < asked.end and asked.start < span.end:
            wanted.append(span)
    return _Content(end, False, damaged, damaged_count, list(tail), wanted)


def _segment_spans(file: File, start: int, stop: int) -> Iterator[Span]:
    """Every stretch of a segment, read in windows; the last one is DAMAGED where the segment holds no more."""
    at = start
    lost_at = None
    while at < stop and (data := file.pread(_WINDOW_BYTES, at - start)):
        view = View(data, at, stop)
        again = min(stop, max(at + 1, view.end - HEADER_BYTES)) if view.end < stop else stop
        if lost_at is not None:
            found = next_start(view, at)
            if found is None:
                at = again
                continue
            yield Span(Sort.DAMAGED, lost_at, found)
            lost_at, at = None, found
        for span in spans(view, at):
            at = span.end
            if span.sort is Sort.DAMAGED and span.end >= view.end:
                lost_at, at = span.start, again
                break
            yield span
        else:
            at = max(at, again) if view.end >= stop else at
    if lost_at is not None:
        yield Span(Sort.DAMAGED, lost_at, stop)


def _pieces(file: File, start: int, stop: int, size: int) -> Iterator[bytes]:
    for at in range(start, stop, size):
        yield file.pread(min(size, stop - at), at)


def _named(file: File, start: int, segment_bytes: int, span: Span) -> RecordDigest:
    view = View(file.pread(span.end - span.start, span.start - start), span.start, start + segment_bytes)
    problem = problem_of(view, span, sealed=False)
    fields = fields_of(view, span)
    digest = leaf_digest(view.data).hex()
    named = (fields.topic, fields.queue, fields.queue_offset, fields.keys, fields.store_ms) if fields else ("", -1, -1, (), 0)
    return RecordDigest(span.start, span.end, *named, digest, problem)


def _aligned(at: int, segment_start: int, leaf_bytes: int) -> int:
    return at - (at - segment_start) % leaf_bytes
