"""Finds out what a store holds after any stop, and brings all that is derived from the log in step with it.

Below the durable watermark nothing is ever dropped: damage there is stepped over and named. The first thing above it that is not
a whole record ends the log; what follows it goes to a side file. May be killed at any point and repeated.
"""

import contextlib
from dataclasses import dataclass, field, replace

from dittomq.commitlog import checkpoint, producers, watermark
from dittomq.commitlog.checkpoint import Checkpoint
from dittomq.commitlog.derived import Derived
from dittomq.commitlog.dispatch import Dispatch
from dittomq.commitlog.format import UNIT, UNIT_BYTES
from dittomq.commitlog.log import Log
from dittomq.commitlog.open_files import OpenFiles
from dittomq.commitlog.queue_index import Queue, QueueIndex, folder_of, keys_on_disk, path_of, remove_all
from dittomq.commitlog.scanning import WINDOW_BYTES, scan_at, skip_damage
from dittomq.commitlog.segment import FOLDER, check_sizes, starts_of
from dittomq.commitlog.segment import path_of as segment_path
from dittomq.commitlog.side_file import DamagedSideFile
from dittomq.commitlog.storage import Storage
from dittomq.errors import UnreadableStore

_READ_BYTES = 1024 * 1024
# Folders of RocketMQ that hold what we do not read.
_UNREAD = {
    "batchconsumequeue": "batch queues",
    "consumequeue_ext": "queue extensions",
    "consumequeue_rocksdb": "RocksDB queues",
    "rocksdbstore": "RocksDB queues",
    "tieredStore": "a tiered store",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a store lies and the sizes it is configured with."""

    storage: Storage
    files: OpenFiles
    name: str
    segment_bytes: int
    queue_file_units: int


@dataclass(slots=True)
class Recovered:
    """A store as found. `end` is what its records reach, `flushed` what was known to be durable before."""

    log: Log
    derived: Derived
    mark: watermark.Watermark
    damaged: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recover(layout: Layout) -> Recovered:
    """Read what is there; changes only what is derived. The log ends where its last whole record does, whatever follows."""
    notes: list[str] = []
    log = _open_log(layout)
    held = _load_checkpoint(layout, notes)
    table, covered = _load_producers(layout.storage, notes)
    mark = _load_watermark(layout.storage, held, notes)
    flushed = max(mark.flushed, held.end if held else 0, covered, log.min_offset)  # the others are saved behind a sync too
    if flushed > log.stop:
        raise UnreadableStore(layout.name, _lost(flushed, log.stop))
    mark = replace(mark, flushed=flushed)
    index = QueueIndex(layout.storage, layout.files, layout.queue_file_units)
    if held is None:
        checkpoint.remove(layout.storage)
        remove_all(layout.storage, keys_on_disk(layout.storage))
        held = Checkpoint(log.min_offset, 0, layout.queue_file_units, {})
    for (topic, queue), (low, high) in held.ranges.items():
        index.queues[topic, queue] = Queue(topic, queue, low, high)
    derived = Derived(index, table, Dispatch(log, index, held.end), held.store_ms)
    found = Recovered(log, derived, mark, notes=notes)
    end = _absorb(found, dispatched=held.end, covered=covered)
    log.set_end(end, unsynced_from=flushed)
    _apply_minimums(layout.storage, index, end)
    return found


def _open_log(layout: Layout) -> Log:
    starts = starts_of(layout.name, layout.storage.list_folder(FOLDER))
    sizes = {}
    for start in starts:
        with contextlib.closing(layout.storage.open(segment_path(start), readonly=True)) as file:
            sizes[start] = file.size()
    check_sizes(layout.name, sizes, layout.segment_bytes)
    return Log(layout.storage, layout.files, layout.segment_bytes, starts)


def _absorb(found: Recovered, *, dispatched: int, covered: int) -> int:
    """Take in all records from where the side files stop; returns where the log ends."""
    log, flushed = found.log, found.mark.flushed
    at = max(log.min_offset, min(dispatched, covered, flushed))
    while True:
        below = at < flushed
        scan = scan_at(log, at, flushed if below else log.stop)
        fresh = [entry for entry in scan.entries if entry.start >= dispatched]
        older = [entry for entry in scan.entries if entry.start < dispatched and entry.producer_id and entry.start >= covered]
        for entry in older:
            found.derived.producers.note(entry.producer_id, entry.sequence, (entry.start,))
        if fresh:
            found.derived.absorb(fresh, scan.end, producers_from=covered)
        if scan.end == at and not below:
            return at
        if scan.end == at or (scan.problem and below):
            again = skip_damage(log, scan.end, flushed)
            found.damaged.append((scan.end, again))
            at = again
        else:
            at = scan.end


def _load_checkpoint(layout: Layout, notes: list[str]) -> Checkpoint | None:
    """None when the queues are to be built anew."""
    try:
        held = checkpoint.load(layout.storage)
    except DamagedSideFile as damage:
        notes.append(f"{damage}; all queues are built again from the log")
        return None
    if held is None:
        return None
    if held.file_units != layout.queue_file_units:
        notes.append(f"queue files had {held.file_units:,} units; all queues are built again from the log")
        return None
    minimums = checkpoint.load_minimums(layout.storage)
    for key, (low, high) in held.ranges.items():
        deleted = minimums.get(key)
        if low < high and (deleted is None or deleted.low < high) and not _ends_as_told(layout, held, key):
            notes.append(f"queue {key[1]} of {key[0]} does not hold what the checkpoint says; all queues are built again from the log")
            return None
    return held


def _ends_as_told(layout: Layout, held: Checkpoint, key: checkpoint.QueueKey) -> bool:
    """Whether the last unit that the checkpoint vouches for is there."""
    last = held.ranges[key][1] - 1
    path = path_of(folder_of(*key), last, held.file_units)
    if not layout.storage.exists(path):
        return False
    with contextlib.closing(layout.storage.open(path, readonly=True)) as file:
        data = file.pread(UNIT_BYTES, last % held.file_units * UNIT_BYTES)
    if len(data) < UNIT_BYTES:
        return False
    position, size, _ = UNIT.unpack(data)
    return bool(size > 0 and position + size <= held.end)


def _load_watermark(storage: Storage, held: Checkpoint | None, notes: list[str]) -> watermark.Watermark:
    fallback = watermark.Watermark(0, held.end if held else 0, 0, ())
    try:
        return watermark.load(storage) or fallback
    except DamagedSideFile as damage:
        if held is None:
            raise
        notes.append(f"{damage}; the checkpoint's end, {held.end:,}, is taken for it")
    watermark.reset(storage, fallback)
    return fallback


def _load_producers(storage: Storage, notes: list[str]) -> tuple[producers.Producers, int]:
    try:
        return producers.load(storage)
    except DamagedSideFile as damage:
        notes.append(f"{damage}; it is built again from the log")
        producers.remove(storage)
        return producers.Producers(), 0


def _apply_minimums(storage: Storage, index: QueueIndex, end: int) -> None:
    """Hide what deleted topics held; a deletion that was said of records now cut must not hide their successors."""
    minimums = checkpoint.load_minimums(storage)
    kept = {}
    for key, minimum in minimums.items():
        queue = index.queue(*key)
        kept[key] = minimum if minimum.end <= end else checkpoint.Minimum(min(minimum.low, queue.next), end)
        index.raise_minimum(queue, kept[key].low)
    if kept != minimums:
        checkpoint.save_minimums(storage, kept)


def _lost(flushed: int, stop: int) -> str:
    return (
        f"bytes {stop:,} to {flushed:,} were durable and their segments are gone; "
        "bring them back, or empty the data_dir to copy all from the group"
    )


def refuse_unread(storage: Storage, name: str, *, ours: bool) -> None:
    """Raise UnreadableStore for what this version cannot write to."""
    for folder, what in _UNREAD.items():
        if storage.list_folder(folder):
            raise UnreadableStore(name, f"{folder}/ holds {what}, which this version does not read; use another data_dir")
    if not ours and storage.list_folder(FOLDER):
        raise UnreadableStore(name, "it was not written by dittomq and can only be read here, with `dittomq log`; use an empty data_dir")


def tail_end(log: Log, *, power_lost: bool) -> int:
    """One past the last byte behind the log's end that is not zero; the log's end when there is none.

    Without a power loss bytes were left in the order in which they were written: when the next record's place is empty, all is.
    """
    start = log.end
    last_segment = log.segment_of(start)[1] >= log.stop
    if last_segment and not power_lost and _last_set_byte(log, start, min(log.stop, start + WINDOW_BYTES)) == start:
        return start
    return _last_set_byte(log, start, log.stop)


def _last_set_byte(log: Log, start: int, stop: int) -> int:
    found, at = start, start
    zeros = bytes(_READ_BYTES)
    while at < stop:
        data = log.read(at, _READ_BYTES, stop)
        if data != zeros[: len(data)]:
            found = at + len(data.rstrip(b"\0"))
        at += len(data)
    return found
