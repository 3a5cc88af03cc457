"""Finds out what a store holds after any stop, and brings all that is derived from the log in step with it.

Below the durable recovery point nothing is ever dropped: damage there is stepped over and named. The first thing above it that is not
a whole record ends the log; what follows it goes to a side file. May be killed at any point and repeated.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dittomq.commitlog import log_start_state, queue_reset
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import WINDOW_BYTES, ReadablePages, scan_at, scan_singly, skip_damage
from dittomq.commitlog.disk.segment import check_sizes, sizes_of, without_unmade
from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.state_file import CorruptStateFile
from dittomq.commitlog.disk.storage import Storage, speaks_of_bytes
from dittomq.commitlog.foreign_writes import ForeignWrites
from dittomq.commitlog.missing_segments import MissingSegments
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.queues import index_checkpoint, key_index, orphaned_queue_files, producer_state, queue_truncation
from dittomq.commitlog.queues.consume_queue import ConsumeQueue, QueueIndex, absent_files, folder_of, path_of
from dittomq.commitlog.queues.dispatch import Dispatch
from dittomq.commitlog.queues.index_checkpoint import Checkpoint, OffsetReservation, QueueKey
from dittomq.commitlog.queues.indexes import DerivedIndexes
from dittomq.commitlog.queues.key_format import KeyMark, KeySizes
from dittomq.commitlog.queues.key_index import KeyIndex
from dittomq.commitlog.records.checksum_policy import ChecksumPolicy
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.records.rocketmq_records import NotRead
from dittomq.commitlog.state import damage_map, recovery_point
from dittomq.commitlog.state.damage_map import DamagedRange, DamagedRanges, DamageMap
from dittomq.commitlog.state.replica import OwnReplica
from dittomq.errors import StoreOpenFailed

_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Where a store lies and how it is configured."""

    storage: Storage
    files: OpenFiles
    maker: SegmentMaker
    options: StoreOptions
    replica: OwnReplica

    @property
    def name(self) -> str:
        """Where it lies, for sentences."""
        return self.options.path

    @property
    def queue_file_units(self) -> int:
        """Units in each file of a queue."""
        return self.options.queue_file_units

    @property
    def key_sizes(self) -> KeySizes:
        """How large the files of the key index are."""
        return self.options.key_sizes


@dataclass(slots=True)
class Recovered:
    """A store as found. `register` is what was written down of damage and what was met on the way."""

    log: Log
    derived: DerivedIndexes
    mark: recovery_point.RecoveryPoint
    seals: ChecksumPolicy
    register: DamageMap
    notes: list[str] = field(default_factory=list)

    def pass_over(self, start: int, end: int, reservation: OffsetReservation) -> None:
        """Note that [start, end) is damaged, and unread unless all its numbers were left out."""
        unread = DamagedRanges() if reservation.covers(start, end) else DamagedRanges((DamagedRange(start, end),))
        self.register = self.register.with_range(start, end, self.log.segment_bytes, unread=unread)


class _IndexedEnds(NamedTuple):
    """Up to where the side files speak: queues, producers; up to where queues may be built in any case; and what was leapt over."""

    dispatched: int
    covered: int
    readable: int
    reservation: OffsetReservation


class _Unsure:
    """A queue that begins at `low` if the log, which is read from here on, holds no message of it."""

    def __init__(self, queue: ConsumeQueue, low: int) -> None:
        self.queue = queue
        self.low = low
        self._next = queue.next
        self._is_held = queue.min < queue.max  # by the checkpoint: then its newest message lies in the log

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it was found."""
        return not self._is_held and self.queue.next == self._next and self.queue.reset_at < 0


def recover(layout: StoreLayout, *, power_lost: bool) -> Recovered:
    """Read what is there; changes only what is derived, and the epoch history when someone else wrote behind our last stop.

    The log ends where its last whole record does, whatever follows. Raises StoreOpenFailed.
    """
    notes: list[str] = []
    layout.files.forget("")  # what was recovered before has files open that may go now
    register = _load_register(layout.storage, notes)
    if layout.options.refills:
        register = MissingSegments(layout.storage, layout.files, layout.maker, layout.name, replica=layout.replica).run(register, notes)
    log = open_log(layout)
    if index_checkpoint.take_order(layout.storage):
        notes.append("messages are shown again whose deletion no master knows of; all queues are built again from the log")
    held, keys = _load_derived(layout, log, notes, power_lost=power_lost)
    table, covered = _load_producers(layout.storage, notes)
    if covered < log.min_offset or register.unread.touches(0, log.min_offset):
        table.mark_unsure(log.min_offset)
    table.drop_before(log.min_offset)
    mark = _load_recovery_point(layout, held, notes)
    flushed = max(mark.flushed, held.end if held else 0, covered, log.min_offset)  # the others are saved behind a sync too
    if flushed > log.stop:
        raise StoreOpenFailed(layout.name, _lost(flushed, log.stop))
    mark = replace(mark, flushed=flushed)
    visits = ForeignWrites(layout.storage, log, mark)
    index = _index_of(layout, log, visits.seals, held)
    told_in_part = _begin_queues(layout, index, log.min_offset, notes)
    if held is None or keys is None:
        index_checkpoint.remove(layout.storage)
        queue_truncation.clear(layout.storage, {}, layout.queue_file_units)
        layout.files.forget("")  # whoever read meanwhile has files open that are gone
        keys = key_index.begin(layout.storage, layout.files, layout.key_sizes)
        reservation = OffsetReservation(log_start_state.load(layout.storage).reserved_below)
        held = Checkpoint(log.min_offset, 0, layout.queue_file_units, {}, KeyMark(layout.key_sizes), reservation)
    elif power_lost:
        queue_truncation.clear(layout.storage, {key: queue.range[1] for key, queue in index.queues.items()}, held.file_units)
    index.apply_reservation(held.reservation)
    unsure = [_Unsure(index.queue(*key), low) for key, low in told_in_part.items()]
    derived = DerivedIndexes(index, table, Dispatch(log, visits.seals, index, keys, applied=max(held.end, log.min_offset)), held.store_ms)
    found = Recovered(log, derived, mark, visits.seals, register, notes)
    readable = min(flushed, mark.confirmed) if _minimums_hold(layout.storage, index) else 0
    try:
        end = _absorb(
            found, visits, _IndexedEnds(held.end, covered, readable, held.reservation if covered >= held.end else OffsetReservation())
        )
    except NotRead as problem:
        raise StoreOpenFailed(layout.name, f"{problem}; go back to RocketMQ with it") from problem
    log.set_end(end, unsynced_from=flushed)
    _begin_unsure(layout, index, unsure, notes)
    queue_reset.apply_minimums(layout.storage, index, end)
    return found


def refuse_misfits(layout: StoreLayout) -> None:
    """Raise StoreOpenFailed, before a start changes anything, for segments that `open_log` would refuse. No cut is under way.

    Where lost ones are made again, only those that were made with another size are looked for.
    """
    begin, segment_bytes = log_start_state.load(layout.storage).min_offset, layout.maker.segment_bytes
    sizes = {start: size for start, size in sizes_of(layout.storage, layout.name).items() if start >= begin}
    if not layout.options.refills or segment_bytes not in sizes.values():
        check_sizes(layout.name, without_unmade(sizes), segment_bytes)


def open_log(layout: StoreLayout) -> Log:
    """The segments that are there, as an empty log; what is left of dropped ones goes. Raises StoreOpenFailed."""
    begin = log_start_state.load(layout.storage).min_offset
    log_start_state.unlink(layout.storage, layout.files, log_start_state.segments_below(layout.storage, begin))
    sizes = without_unmade(sizes_of(layout.storage, layout.name))
    check_sizes(layout.name, sizes, layout.maker.segment_bytes)
    return Log(layout.maker, layout.files, list(sizes), begin)


def _absorb(found: Recovered, visits: ForeignWrites, known: _IndexedEnds) -> int:
    """Take in all records from where the side files stop; returns where the log ends. What the disk does not give counts as zeros."""
    log, source, flushed = found.log, ReadablePages(found.log), found.mark.flushed
    at = max(log.min_offset, min(known.dispatched, known.covered, flushed))
    while True:
        below = at < flushed
        if not below and found.seals.at(at).sealed:
            batches, scan = visits.ours(scan_at(source, found.seals, at, log.stop, scanner=scan_singly))
        else:
            batches, scan = scan_at(source, found.seals, at, flushed if below else log.stop)
        found.derived.absorb(batches, scan, queues_from=known.dispatched, producers_from=known.covered)
        log.end = max(log.end, scan.end)
        found.derived.dispatch.run(min(scan.end, known.readable))  # while its units are at hand
        over = found.register.damage.end_over(scan.end)
        if over is not None and over <= log.stop:
            at = over
            found.pass_over(scan.end, at, known.reservation)
        elif scan.end == at and not below:
            if visits.begin_at(at):
                continue
            behind = visits.begin_behind_torn_at(at)
            if behind is None:
                return at
            found.pass_over(at, behind, known.reservation)
            at = behind
        elif scan.end == at or (scan.problem and below):
            at = skip_damage(source, found.seals, scan.end, flushed)
            found.pass_over(scan.end, at, known.reservation)
        else:
            at = scan.end
        log.end = max(log.end, at)


def _load_derived(layout: StoreLayout, log: Log, notes: list[str], *, power_lost: bool) -> tuple[Checkpoint, KeyIndex] | tuple[None, None]:
    """The checkpoint, and the key index that it tells of; None when all that it vouches for is to be built anew."""
    held = _load_checkpoint(layout, log, notes)
    if held is None:
        return None, None
    keys = key_index.resume(layout.storage, layout.files, held.keys, log, power_lost=power_lost)
    if keys is None:
        notes.append("the key index does not end as the checkpoint says, or cannot be read; it and all queues are built again from the log")
        return None, None
    return held, keys


def _load_checkpoint(layout: StoreLayout, log: Log, notes: list[str]) -> Checkpoint | None:
    """None when the queues are to be built anew."""
    try:
        held = index_checkpoint.load(layout.storage)
    except CorruptStateFile as damage:
        notes.append(f"{damage}; all queues are built again from the log")
        return None
    if held is None:
        return None
    if held.file_units != layout.queue_file_units:
        notes.append(f"queue files had {held.file_units:,} units; all queues are built again from the log")
        return None
    if held.keys.sizes != layout.key_sizes or not key_index.is_complete(layout.storage, held.keys):
        notes.append("the key index is not what the checkpoint says; it and all queues are built again from the log")
        return None
    minimums, dropped = index_checkpoint.load_minimums(layout.storage), log_start_state.load(layout.storage)
    is_visited = log.min_offset > max(dropped.min_offset, dropped.noted)  # RocketMQ has dropped files of queues, too
    unmade = {}
    for key, (low, high) in held.ranges.items():
        begin = max(
            low, minimums[key].hidden if key in minimums else 0, dropped.first_offsets.get(key, 0)
        )  # files below may have gone since
        known = held.unmade.get(key, 0)
        absent = known if is_visited else absent_files(layout.storage, held, key, begin)
        if absent > known or (begin < high and not _ends_as_checkpointed(layout, held, key)):
            notes.append(f"queue {key[1]} of {key[0]} does not hold what the checkpoint says; all queues are built again from the log")
            return None
        if absent:
            unmade[key] = absent
    return replace(held, unmade=unmade)


def _ends_as_checkpointed(layout: StoreLayout, held: Checkpoint, key: QueueKey) -> bool:
    """Whether the last unit that the checkpoint vouches for is there."""
    last = held.ranges[key][1] - 1
    path = path_of(folder_of(*key), last, held.file_units)
    try:
        with contextlib.closing(layout.storage.open(path, readonly=True)) as file:
            data = file.pread(UNIT_BYTES, last % held.file_units * UNIT_BYTES)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False
    if len(data) < UNIT_BYTES:
        return False
    position, size, _ = UNIT.unpack(data)
    return bool(size > 0 and position + size <= held.end)


def _load_recovery_point(layout: StoreLayout, held: Checkpoint | None, notes: list[str]) -> recovery_point.RecoveryPoint:
    """Damaged, it leaves open whether the log ends below the recovery point."""
    storage, fallback = layout.storage, recovery_point.RecoveryPoint(0, held.end if held else 0, 0)
    try:
        return recovery_point.load(storage) or fallback
    except CorruptStateFile as damage:
        if held is None:
            raise
        notes.append(f"{damage}; the checkpoint's end, {held.end:,}, is taken for it")
    layout.replica.draw_incarnation()
    recovery_point.reset(storage, fallback)
    return fallback


def _load_register(storage: Storage, notes: list[str]) -> DamageMap:
    """Damaged, it leaves nobody who knows what queues and producers lack: they are built anew, and what it named is met again."""
    try:
        return damage_map.load(storage)
    except CorruptStateFile as problem:
        notes.append(f"{problem}; what it named is found again where the log is read, and all queues are built again from it")
        index_checkpoint.remove(storage)
        producer_state.remove(storage)
        damage_map.remove(storage)
        return DamageMap()


def _load_producers(storage: Storage, notes: list[str]) -> tuple[producer_state.Producers, int]:
    try:
        return producer_state.load(storage)
    except CorruptStateFile as damage:
        notes.append(f"{damage}; it is built again from the log")
        producer_state.remove(storage)
        return producer_state.Producers(), 0


def _minimums_hold(storage: Storage, index: QueueIndex) -> bool:
    """Whether every deletion of a topic is in the queues as the checkpoint knows them: then they can grow before the log is read whole."""
    minimums = index_checkpoint.load_minimums(storage)
    return all(not minimum.is_reset and key in index.queues and index.queues[key].min >= minimum.low for key, minimum in minimums.items())


def _index_of(layout: StoreLayout, log: Log, seals: ChecksumPolicy, held: Checkpoint | None) -> QueueIndex:
    """The queues that a checkpoint holds; none without one."""
    index = QueueIndex(
        *(layout.storage, layout.files, layout.queue_file_units, log.segment_bytes),
        begins_late=log.min_offset > 0,
        is_reported=log_start_state.load(layout.storage).knows_queues(log.min_offset),
        is_ours=lambda position: seals.at(position).sealed,
    )
    if held is not None:
        index.queues |= {(topic, queue): ConsumeQueue(topic, queue, low, high) for (topic, queue), (low, high) in held.ranges.items()}
        for key, count in held.unmade.items():
            index.queues[key].unmade = count
    return index


def _begin_queues(layout: StoreLayout, index: QueueIndex, begin: int, notes: list[str]) -> Mapping[QueueKey, int]:
    """Let the queues begin where the log does, which may be behind what we dropped: RocketMQ drops segments too.

    Then what only queue files tell, where a queue without messages goes on, is durable before any of them goes. Returns what they do
    not tell for certain, because the disk does not give all of them: see `log_start_state.LogStartState.unsure`.
    """
    dropped = log_start_state.load(layout.storage)
    doomed = log_start_state.hide(index, dropped.first_offsets)
    before = max(dropped.min_offset, dropped.noted)
    if before < begin:
        layout.replica.draw_incarnation()
        notes.append(f"the log began at byte {before:,} and begins at {begin:,} now: RocketMQ dropped what was between, or it is lost")
        first_offsets = log_start_state.first_offsets_at(index, begin)
        left = orphaned_queue_files.emptied(layout.storage, layout.name, begin)
        for key, low in left.first_offsets.items():
            first_offsets[key] = max(low, first_offsets.get(key, 0))
        dropped = replace(
            dropped, first_offsets={**dropped.first_offsets, **first_offsets}, noted=begin, unsure={**dropped.unsure, **left.unsure}
        )
        log_start_state.save(layout.storage, dropped)
        doomed += log_start_state.hide(index, first_offsets)
    log_start_state.unlink(layout.storage, layout.files, doomed)
    return dropped.unsure


def _begin_unsure(layout: StoreLayout, index: QueueIndex, queues: Sequence[_Unsure], notes: list[str]) -> None:
    """Durably let those of which the log, read whole by now, holds no message go on behind all offsets that they can have given."""
    if not queues:
        return
    empty = [each for each in queues if each.is_empty]
    for each in empty:
        folder, low = each.queue.folder, each.low
        notes.append(f"{folder}/ cannot be read to its end, and the log holds no message of that queue: it goes on at offset {low:,}")
    dropped = log_start_state.load(layout.storage)
    keys = {(each.queue.topic, each.queue.queue): each.low for each in empty}
    first_offsets = {key: max(low, dropped.first_offsets.get(key, 0)) for key, low in keys.items()}
    log_start_state.save(layout.storage, replace(dropped, first_offsets={**dropped.first_offsets, **first_offsets}, unsure={}))
    log_start_state.unlink(layout.storage, layout.files, log_start_state.hide(index, first_offsets))


def _lost(flushed: int, stop: int) -> str:
    return (
        f"bytes {stop:,} to {flushed:,} were durable and their segments are gone; "
        "bring them back, or empty the data_dir to copy all from the group"
    )


def tail_end(log: Log, *, power_lost: bool) -> int:
    """One past the last byte behind the log's end that is not zero, or that the disk does not give; the log's end when there is none.

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
        try:
            data = log.read(at, _READ_BYTES, stop)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            found = at = min(at + _READ_BYTES, log.segment_of(at)[1], stop)
            continue
        if data != zeros[: len(data)]:
            found = at + len(data.rstrip(b"\0"))
        at += len(data)
    return found
