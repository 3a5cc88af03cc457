"""Cutting the log so that what was cut cannot come back, whenever the process dies.

    save the tail in `dittomq/tail-<to>-<generation>` ▶ write the intent ▶ lower recovery point ▶ cut epoch history, producers, queues
        ▶ unlink later segments, zero the rest ▶ sync ▶ new generation ▶ clear the intent

From the intent on, everything is repeated until it is done; before it, nothing has happened. Works on files alone, with no store open.
"""

import contextlib
from dataclasses import asdict, dataclass, replace

from dittomq.commitlog import log_start_state
from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.scanning import ReadablePages
from dittomq.commitlog.disk.segment import FOLDER
from dittomq.commitlog.disk.segment import path_of as segment_path
from dittomq.commitlog.disk.storage import PAGE_BYTES, Storage, gives, speaks_of_bytes, zero_behind
from dittomq.commitlog.queues import index_checkpoint, key_index, producer_state, queue_truncation
from dittomq.commitlog.queues.consume_queue import folder_of, misses_files, next_file, path_of
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.state import damage_map, epoch_history_file, identity, recovery_point
from dittomq.epoch_history import truncate_history
from dittomq.offsets import PhysicalOffset

_NAME = "cut-intent"
_KIND = b"CUTI"
_COPY_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """The log ends at `to` now; what lay behind, up to its last byte that was not zero, is in `side_file` (empty: nothing did)."""

    to: PhysicalOffset
    saved_bytes: int
    side_file: str


@dataclass(frozen=True, slots=True)
class TruncationIntent:
    """A cut that is to be finished. `generation` is the one after it.

    `keeps_epoch`: nothing whole goes, and so the epoch that begins at `to` stays; intents of earlier versions do not say it.
    """

    to: state_file.Number
    generation: state_file.Number
    segment_bytes: state_file.Number
    keeps_epoch: bool = False


def load_intent(storage: Storage) -> TruncationIntent | None:
    """None when no cut is under way. Raises CorruptStateFile."""
    return state_file.load_json(storage, _NAME, _KIND, TruncationIntent)


def begin(
    storage: Storage, log: Log, ends: tuple[int, int], generation: int, *, keeps_epoch: bool
) -> tuple[TruncationIntent, TruncationReport]:
    """Durably save the tail, then durably intend the cut: `ends` are the log's end to be and the tail's. Nothing is cut yet."""
    to, tail_end = ends
    log.sync_names()  # the segment in which the log is to end must be there when the cut is finished after a power loss
    name = _save_tail(storage, log, ends, generation) if tail_end > to else ""
    intent = TruncationIntent(to, generation, log.segment_bytes, keeps_epoch)
    state_file.save_json(storage, _NAME, _KIND, asdict(intent))
    return intent, TruncationReport(PhysicalOffset(to), tail_end - to, name)


def finish(storage: Storage, intent: TruncationIntent) -> None:
    """Do all of the cut, durably; may be repeated from any point."""
    with contextlib.suppress(state_file.CorruptStateFile):  # recovery falls back to the checkpoint, which is cut as well
        mark = recovery_point.load(storage)
        if mark is not None:
            lowered = recovery_point.RecoveryPoint(mark.number + 1, min(mark.flushed, intent.to), min(mark.confirmed, intent.to))
            recovery_point.reset(storage, lowered)
    epoch_history = epoch_history_file.load(storage)
    kept = truncate_history(epoch_history, PhysicalOffset(intent.to + intent.keeps_epoch))
    if epoch_history != kept:
        epoch_history_file.save(storage, kept)
    with contextlib.suppress(state_file.CorruptStateFile):  # recovery forgets all of it then
        damage_map.truncate(storage, intent.to)
    producer_state.truncate_snapshot(storage, intent.to)
    index_checkpoint.remove_for_rocketmq(storage)
    _truncate_queues(storage, intent.to)
    _truncate_segments(storage, intent)
    held = identity.load(storage)
    assert held is not None, "a cut is begun in a store of ours only"
    identity.save(storage, replace(held, generation=intent.generation))
    state_file.remove(storage, _NAME)


def remove_unfinished(storage: Storage, generation: int) -> None:
    """Remove the tails of cuts that were saved and never intended: all of it that was durable is still in the log."""
    for name in storage.list_folder(state_file.FOLDER):
        kind, _, rest = name.partition("-")
        number = rest.rpartition("-")[2]
        if kind == "tail" and number.isdecimal() and int(number) > generation:
            storage.unlink(f"{state_file.FOLDER}/{name}")


def _save_tail(storage: Storage, log: Log, ends: tuple[int, int], generation: int) -> str:
    to, tail_end = ends
    path, source = f"{state_file.FOLDER}/tail-{to}-{generation}", ReadablePages(log)
    with contextlib.closing(storage.open(path, create=True)) as file:
        file.truncate(0)
        at = to
        while at < tail_end:
            data = source.read(at, min(_COPY_BYTES, tail_end - at), log.stop)
            file.pwrite(data, at - to)
            at += len(data)
        file.fdatasync()
    storage.sync_folder(state_file.FOLDER)
    return path


def _truncate_queues(storage: Storage, to: int) -> None:
    """Durably leave in each queue what the checkpoint vouches for and what lies below `to`; the rest is dispatched again from the log."""
    try:
        held = index_checkpoint.load(storage)
    except state_file.CorruptStateFile:
        held = None
    if held is None:
        return  # all queues are built anew
    keys = held.keys
    try:
        ends = {key: high for key, (_, high) in held.ranges.items()} if held.end <= to else _ends_below(storage, held, to)
        if held.end > to:
            keys = key_index.mark_at(storage, held.keys, to)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        ends = None
    if ends is None:
        index_checkpoint.remove(storage)
        return
    ranges = {key: (min(held.ranges[key][0], end), end) for key, end in ends.items()}
    index_checkpoint.save(
        storage, replace(held, end=min(held.end, to), ranges=ranges, keys=keys, reservation=held.reservation.truncate(to))
    )
    # only now: from units that were cleared, or half of one, nobody finds the ends again
    queue_truncation.clear(storage, ends, held.file_units)


def _ends_below(storage: Storage, held: index_checkpoint.Checkpoint, to: int) -> dict[index_checkpoint.QueueKey, int] | None:
    """Where each queue ends when only records below `to` count; None when only the log knows that."""
    minimums, dropped = index_checkpoint.load_minimums(storage), log_start_state.load(storage).first_offsets
    ends = {}
    for key, (low, high) in held.ranges.items():
        minimum = minimums.get(key, index_checkpoint.QueueBound(0, 0))
        if minimum.is_reset and minimum.end >= to:
            return None
        first = max(low, minimum.hidden)
        if misses_files(storage, held, key, max(first, dropped.get(key, 0))):
            return None  # their messages would seem to lie behind those of the next one
        ends[key] = _units_below(storage, held, key, (first, high), to=to)
        # The units below the minimum are gone; they belong to records below the log's end at the time of the deletion.
        if first > 0 and ends[key] == first and minimum.end > to:
            return None
    return ends


def _units_below(
    storage: Storage, held: index_checkpoint.Checkpoint, key: index_checkpoint.QueueKey, units: tuple[int, int], *, to: int
) -> int:
    """The first of these units whose record does not begin below `to`; where they end, when all do."""
    low, high = units
    while low < high:
        middle = (low + high) // 2
        position = _position_at(storage, held, key, middle)
        if position is None or position < to:
            low = middle + 1
        else:
            high = middle
    return low


def _position_at(storage: Storage, held: index_checkpoint.Checkpoint, key: index_checkpoint.QueueKey, unit: int) -> int | None:
    """Where the message lies, or the next one that has a unit: damaged records leave holes. None when no later one has."""
    folder, units = folder_of(*key), held.file_units
    high = held.ranges[key][1]
    while unit < high:
        path = path_of(folder, unit, units)
        count = min(high - unit, units - unit % units)
        data = b""
        if storage.exists(path):
            with contextlib.closing(storage.open(path, readonly=True)) as file:
                data = file.pread(count * UNIT_BYTES, unit % units * UNIT_BYTES)
        whole = UNIT.iter_unpack(data[: len(data) // UNIT_BYTES * UNIT_BYTES])
        found: int | None = next((position for position, size, _ in whole if size > 0), None)
        if found is not None:
            return found
        unit = next_file(storage, folder, unit + count, high)
    return None


def _truncate_segments(storage: Storage, intent: TruncationIntent) -> None:
    starts = sorted(int(name) for name in storage.list_folder(FOLDER))
    kept = [start for start in starts if start < intent.to] or starts[:1]
    for start in reversed(starts[len(kept) :]):  # the last first, so that no hole arises
        storage.unlink(segment_path(start))
    if starts:
        storage.sync_folder(FOLDER)
    if kept:
        keep = min(max(0, intent.to - kept[-1]), intent.segment_bytes)  # all of it where somebody removed the next one
        _zero_rest(storage, segment_path(kept[-1]), keep, intent.segment_bytes)


def _zero_rest(storage: Storage, path: str, keep: int, segment_bytes: int) -> None:
    """Where the disk does not give what is kept of the last page, it takes no part of it: zeros stand for what is noted as damaged."""
    with contextlib.closing(storage.open(path)) as file:
        page = keep - keep % PAGE_BYTES
        if not gives(file, page, keep):
            file.pwrite(bytes(min(PAGE_BYTES, segment_bytes - page)), page)
        zero_behind(file, keep, segment_bytes)
        file.fdatasync()
