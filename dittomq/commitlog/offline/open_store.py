"""Reads a store that lies on a disk, ours or RocketMQ's: no lock, no change, memory that does not grow with the log.

A store that is in use may be read too: what is being written at the moment looks like a torn end.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dittomq.commitlog import store_swap
from dittomq.commitlog.disk.damaged_pages import ReadableFile
from dittomq.commitlog.disk.segment import path_of, segments_of
from dittomq.commitlog.disk.state_file import CorruptStateFile
from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.offline.bulk_verify import Prover, WholeRun
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.decoding import Record, decode
from dittomq.commitlog.records.format import MAGIC_1, MAGIC_2, MAX_RECORD_BYTES, START, any_set, queue_problem, start_problem
from dittomq.commitlog.records.record_scanner import HEADER_BYTES, Sort, Span, View, next_start, problem_of, span_at, spans
from dittomq.commitlog.records.rocketmq_records import surely_anothers
from dittomq.commitlog.state import epoch_history_file, identity, recovery_point
from dittomq.errors import StoreOpenFailed

_WINDOW_BYTES = 4 * MAX_RECORD_BYTES
_PROGRESS_BYTES = 16 * 1024 * 1024
_CUT_OFF = "no record starts here, and none comes behind it"
Progress = Callable[[int, int], None]
"""Hears how many bytes of how many were read."""


@dataclass(frozen=True, slots=True)
class StoreOnDisk:
    """What is known of a store before its log is read. `seals` says which records must carry the record CRC.

    It learns from what is read: behind `flushed` a whole record without one is someone else's, and so is all that follows it.
    """

    storage: Storage
    name: str
    ours: bool
    starts: tuple[int, ...]
    segment_bytes: int
    seals: ChecksumPolicy
    flushed: int

    @property
    def stop(self) -> int:
        """One past the last byte of the last segment."""
        return self.starts[-1] + self.segment_bytes if self.starts else 0


class Item(NamedTuple):
    """A stretch [start, end) of the log. `record` None: a mark, or nothing that can be read; `problem` "" when it is whole.

    A whole record that names a queue which cannot be has both. `is_torn`: nothing comes behind it. `is_unsupported`: it begins as no record
    does that this version knows.
    """

    sort: Sort
    start: int
    end: int
    record: Record | None
    problem: str
    is_torn: bool = False
    is_unsupported: bool = False


def open_on_disk(storage: Storage, name: str) -> StoreOnDisk:
    """Look at a store's folder. Raises StoreOpenFailed for one that has no log, segments of different sizes, or a newer format."""
    identity.refuse_newer(storage, name)
    if store_swap.is_halfway(storage):
        raise StoreOpenFailed(name, "a new copy is taking its place; start its node, which finishes that")
    segments = segments_of(storage, name)
    try:
        ours = identity.load(storage) is not None
        epoch_history = epoch_history_file.load(storage)
    except CorruptStateFile as damage:
        raise StoreOpenFailed(name, str(damage)) from damage
    mark = recovery_point.RecoveryPoint(0, 0, 0)
    with contextlib.suppress(CorruptStateFile):  # the log can be read without it
        mark = recovery_point.load(storage) or mark
    seals = ChecksumPolicy(epoch_history)
    if mark.closed:
        seals.end_at(mark.flushed)
    return StoreOnDisk(storage, name, ours, *segments, seals, mark.flushed)


def items(store: StoreOnDisk, progress: Progress | None = None) -> Iterator[Item]:
    """Everything in the log in order: records, marks and what is damaged; ends where the log does.

    Bytes that are not zero behind the last whole record are its last item.
    """
    return (piece for piece in pieces(store, None, progress) if isinstance(piece, Item))


def pieces(store: StoreOnDisk, prover: Prover | None, progress: Progress | None = None) -> Iterator[Item | WholeRun]:
    """Like `items`, with those records in runs that the prover found whole."""
    lost: Item | None = None
    low, total, heard = store.starts[0], store.stop - store.starts[0], store.starts[0]
    for start in store.starts:
        for piece in _segment_pieces(store, start, prover, start):
            # The log's end, if nothing comes behind it.
            tail = piece if isinstance(piece, Item) and piece.sort is Sort.DAMAGED and piece.end == start + store.segment_bytes else None
            if lost is not None and tail is not None and tail.start == start:
                lost = lost._replace(end=tail.end)
                continue
            if lost is not None:
                yield from _look_again(store, lost, prover)
            lost = tail
            if tail is None:
                yield piece
            if progress is not None and piece.end - heard >= _PROGRESS_BYTES:
                heard = piece.end
                progress(heard - low, total)
    if progress is not None:
        progress(total, total)
    if lost is not None:
        end, problem = _last_set_byte(store, lost.start)
        if end > lost.start:
            yield lost._replace(end=end, problem=problem or _CUT_OFF, is_torn=not problem, is_unsupported=False)


def _look_again(store: StoreOnDisk, lost: Item, prover: Prover | None) -> Iterator[Item | WholeRun]:
    """What was the log's end, and has something behind it: damage, or a broker has written on since, into the next segment by now."""
    before: Item | None = None  # damage, which may go on in the next segment
    for start in store.starts:
        if start + store.segment_bytes <= lost.start or lost.end <= start:
            continue
        for piece in _segment_pieces(store, start, prover, max(start, lost.start)):
            damage = piece if isinstance(piece, Item) and piece.sort is Sort.DAMAGED else None
            if before is not None and damage is not None and damage.start == before.end == start:
                before = before._replace(end=damage.end)
                continue
            if before is not None:
                yield before
            before = damage
            if damage is None:
                yield piece
    if before is not None:
        yield before


def _segment_pieces(store: StoreOnDisk, start: int, prover: Prover | None, at: int) -> Iterator[Item | WholeRun]:
    """Of the segment that begins at `start`, from position `at` on."""
    with contextlib.closing(_open_segment(store, start)) as file:
        legible = ReadableFile(file)
        for piece in _stretches(legible, (start, start + store.segment_bytes), prover, at):
            if isinstance(piece, WholeRun):
                yield piece
                continue
            span, view = piece
            problem = problem_of(view, span, sealed=store.seals.at(span.start).sealed)
            if span.start >= store.flushed and store.seals.at(span.start).sealed and _begins_anothers(view, span):
                store.seals.end_at(span.start)
                problem = ""
            record, is_unsupported = None, False
            unread = "" if span.sort is Sort.MARK else legible.problem(span.start - start, span.end - start)
            if unread:  # what stands for it may pass for a record in which nothing but its body is checked
                span, problem = span._replace(sort=Sort.DAMAGED), unread
            elif span.sort is Sort.DAMAGED:
                why, is_unsupported = _why_no_start(span, view)
                problem = why or problem
            if span.sort is Sort.RECORD and not problem:
                data = view.data[span.start - view.base : span.end - view.base]
                record, problem = decode(data, span.start), queue_problem(data)
            yield Item(span.sort, span.start, span.end, record, problem, is_unsupported=is_unsupported)


def _open_segment(store: StoreOnDisk, start: int) -> File:
    try:
        return store.storage.open(path_of(start), readonly=True)
    except FileNotFoundError as gone:
        raise StoreOpenFailed(store.name, f"{path_of(start)} was dropped while the log was read; read it again") from gone


def _begins_anothers(view: View, span: Span) -> bool:
    """Whether this is a whole record of someone who does not seal them, or seals others than we write."""
    if span.sort is not Sort.RECORD or problem_of(view, span, sealed=False):
        return False
    return surely_anothers(view.data[span.start - view.base : span.end - view.base])


def _stretches(file: ReadableFile, segment: tuple[int, int], prover: Prover | None, at: int) -> Iterator[WholeRun | tuple[Span, View]]:
    """Every stretch of a segment from `at` on, with bytes in which it lies whole, unless it is damaged; what the prover takes, in runs."""
    start, stop = segment
    lost = None
    view = View(b"", start, stop)
    while at < stop:
        base = at
        if prover is not None and lost is None:
            at = yield from prover.pieces(file, at, min(base + _WINDOW_BYTES, stop), segment)
        view = View(file.pread(base + _WINDOW_BYTES - at, at - start), at, stop)
        further = stop if view.end >= stop else max(base + 1, view.end - HEADER_BYTES)
        if lost is not None:
            found = next_start(view, at)
            if found is not None:
                yield Span(Sort.DAMAGED, lost, found), view
                lost = None
            at = further if found is None else found
            continue
        for span in spans(view, at):
            if span.sort is Sort.DAMAGED and base < span.start and _is_cut_off(view, span.start):
                break  # read again, from its start on: it may be whole
            if span.sort is Sort.DAMAGED and span.end >= view.end:
                lost, at = span.start, further
                break
            if view.end < span.end and view.end < stop and base < span.start:
                break  # read again, from its start on
            yield span, view
            at = span.end
        if at == base or (at < stop <= view.end and lost is None):
            lost, at = at, further  # what is left is too short for a record
    if lost is not None:
        yield Span(Sort.DAMAGED, lost, stop), view


def _is_cut_off(view: View, at: int) -> bool:
    """Whether a record starts there of which the segment holds more than is in view."""
    span = span_at(view, at)
    return span is not None and view.end < min(span.end, view.segment_end) and span.end - at <= MAX_RECORD_BYTES


def _why_no_start(span: Span, view: View) -> tuple[str, bool]:
    """What to say of bytes that a record of another version would fill, and whether its magic is unknown; empty when none does."""
    head = view.data[max(0, span.start - view.base) :][:HEADER_BYTES]
    if span.start < view.base or len(head) < HEADER_BYTES:
        return "", False
    size, magic = START.unpack_from(head)
    names_itself = int.from_bytes(head[28:36], "big") == span.start and size == span.end - span.start
    if not names_itself:
        return "", False
    return start_problem(size, magic, span.start, view.segment_end), magic not in {MAGIC_1, MAGIC_2}


def view_of(store: StoreOnDisk, position: int, size: int) -> tuple[View, str]:
    """Bytes of a segment that is there, zeros for those that the disk does not give; and why it does not, or ""."""
    start = position - position % store.segment_bytes
    with contextlib.closing(store.storage.open(path_of(start), readonly=True)) as file:
        legible = ReadableFile(file)
        view = View(legible.pread(size, position - start), position, start + store.segment_bytes)
        return view, legible.problem(position - start, position - start + size)


def _last_set_byte(store: StoreOnDisk, start: int) -> tuple[int, str]:
    """One past the last byte from `start` on that is not zero or that the disk does not give; and why it does not give all of them."""
    found, problem = start, ""
    for segment in store.starts:
        if segment + store.segment_bytes <= start:
            continue
        with contextlib.closing(store.storage.open(path_of(segment), readonly=True)) as file:
            legible, low = ReadableFile(file), max(0, start - segment)
            last = _last_set_in(legible, low)
            found = segment + last if last > low else found
            problem = problem or legible.problem(low, store.segment_bytes)
    return found, problem


def _last_set_in(legible: ReadableFile, at: int) -> int:
    found = at
    while data := legible.pread(1 << 20, at):
        if any_set(memoryview(data)):
            found = at + len(data.rstrip(b"\0"))
        at += len(data)
    return max(found, min(legible.end_of_damage, at))
