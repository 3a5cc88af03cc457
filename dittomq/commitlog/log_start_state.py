"""Dropping the beginning of the log so that it does not come back in parts, whenever the process dies.

    find where each queue begins then ▶ write `dittomq/dropped` ▶ hide what goes ▶ checkpoint ▶ unlink its files, the lowest segment first

From `dittomq/dropped` on the log begins there, whichever of the segments below are left; a start unlinks them before it looks at any.
That file also says where every queue begins, so that one whose last message has gone continues its offsets.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NotRequired, Self, TypedDict

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.log import Log
from dittomq.commitlog.disk.segment import FOLDER, path_of
from dittomq.commitlog.disk.state_file import Number
from dittomq.commitlog.disk.storage import PAGE_BYTES, Storage, speaks_of_bytes
from dittomq.commitlog.foreign_writes import first_record
from dittomq.commitlog.queues import index_checkpoint, producer_state
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, ConsumeQueue, QueueIndex
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.queues.key_index import FOLDER as INDEX_FOLDER
from dittomq.commitlog.records.format import UNIT_BYTES, store_ms_of
from dittomq.commitlog.retention import Segment
from dittomq.commitlog.state import recovery_point
from dittomq.offsets import PhysicalOffset

_NAME = "dropped"
_KIND = b"DROP"
_UNITS_AT_ONCE = 64
_NOT_GIVEN = (PhysicalOffset(1 << 63), 1, 0)
"""Stands for a unit that the disk does not give: behind every position."""


@dataclass(frozen=True, slots=True)
class LogStartState:
    """Nothing below `min_offset` is held; queues begin at `first_offsets`, those that are not named at 0.

    `noted`: `first_offsets` know what somebody else dropped below it. Should such segments come back, they are no rest of a drop of ours.
    `unsure` are lows of queues of which the log may hold messages: then they begin with the first. A start that ends leaves none.
    `reserved_below`: queues give no offset below these, which damage hid that is gone by now: only a checkpoint knows it otherwise.
    """

    min_offset: int = 0
    first_offsets: Mapping[QueueKey, int] = field(default_factory=dict)
    noted: int = 0
    unsure: Mapping[QueueKey, int] = field(default_factory=dict)
    reserved_below: Mapping[QueueKey, int] = field(default_factory=dict)

    def knows_queues(self, begin: int) -> bool:
        """Whether all queues are named of which messages lay before `begin`, where the log begins.

        Of what somebody else dropped the queues' files may not have told all; an older version let a log begin late and knew none.
        """
        return begin <= self.min_offset and not self.noted and bool(self.first_offsets)

    def unsure_of(self, hidden: Mapping[QueueKey, int]) -> Self:
        """The same where queues no longer begin at what was `hidden`: of which of those messages were dropped, nobody knows any more."""
        return replace(self, noted=max(self.noted, self.min_offset), unsure={**self.unsure, **hidden})


class _SavedLogStart(TypedDict):
    """The file. Older versions left out what need not be there."""

    min_offset: Number
    queues: list[tuple[str, Number, Number]]
    noted: NotRequired[Number]
    unsure: NotRequired[list[tuple[str, Number, Number]]]
    leapt: NotRequired[list[tuple[str, Number, Number]]]


def load(storage: Storage) -> LogStartState:
    """What was dropped so far. Raises CorruptStateFile."""
    value = state_file.load_json(storage, _NAME, _KIND, _SavedLogStart)
    if value is None:
        return LogStartState()
    tables = (value["queues"], value.get("unsure", ()), value.get("leapt", ()))
    first_offsets, unsure, reserved_below = ({(topic, queue): low for topic, queue, low in rows} for rows in tables)
    return LogStartState(value["min_offset"], first_offsets, value.get("noted", 0), unsure, reserved_below)


def save(storage: Storage, dropped: LogStartState) -> None:
    """Durably say that the log begins there. One caller at a time."""
    rarely = {name: rows for name, rows in (("unsure", _rows(dropped.unsure)), ("leapt", _rows(dropped.reserved_below))) if rows}
    value = {"min_offset": dropped.min_offset, "queues": _rows(dropped.first_offsets), "noted": dropped.noted}
    state_file.save_json(storage, _NAME, _KIND, value | rarely)


def first_offsets_at(index: QueueIndex, offset: int) -> dict[QueueKey, int]:
    """Of each queue with a record below `offset`, the first message whose record does not begin below it. Looks only."""
    first_offsets = {}
    for key, queue in list(index.queues.items()):
        low = first_at(index, queue, offset)
        if low > queue.min:
            first_offsets[key] = low
    return first_offsets


def first_offsets_given(index: QueueIndex, first_offsets: Mapping[QueueKey, int], given: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Of each queue that is left without a message, where it begins in a log that has dropped more of it, if that is behind
    `first_offsets`.
    """
    found = {}
    for key, low in given.items():
        queue = index.queues.get(key)
        begin, end = (0, 0) if queue is None else queue.range
        if end <= first_offsets.get(key, begin) < low:
            found[key] = low
    return found


def first_offsets_present(index: QueueIndex, first_offsets: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
    """Of each queue whose first messages behind `first_offsets` have no unit, though others behind them have, the first of those. Looks
    only.
    """
    found: dict[QueueKey, int] = {}
    for key, queue in list(index.queues.items()):
        first = at = max(first_offsets.get(key, 0), queue.min)
        while at < queue.max:
            units = _units(index, queue, at, min(_UNITS_AT_ONCE, queue.max - at))
            held = next((number for number, unit in enumerate(units, at) if unit[1] not in {0, BLANK_UNIT_BYTES}), None)
            if held is not None:
                found |= {key: held} if held > first else {}
                break
            at = at + len(units) if units else index.next_file(queue, at + index.file_units - at % index.file_units, queue.max)
    return found


def hide(index: QueueIndex, first_offsets: Mapping[QueueKey, int]) -> list[str]:
    """Let the queues begin there; returns the paths of their files that hold nothing else. Nobody dispatches meanwhile."""
    paths: list[str] = []
    for key, low in first_offsets.items():
        paths += index.begin_at(index.queue(*key), low)
    return paths


def begin_with(storage: Storage, index: QueueIndex, keys: Iterable[QueueKey]) -> None:
    """Durably let these queues begin where they do now at the latest: messages that their beginnings passed over are there after all."""
    dropped = load(storage)
    found = {key: index.queues[key].min for key in keys if index.queues[key].min < dropped.first_offsets.get(key, 0)}
    if found:
        save(storage, replace(dropped, first_offsets={**dropped.first_offsets, **found}))


def segments_below(storage: Storage, offset: int) -> list[str]:
    """Paths of the segments that begin below `offset`, the lowest first."""
    return [path_of(int(name)) for name in storage.list_folder(FOLDER) if name.isascii() and name.isdigit() and int(name) < offset]


def unlink(storage: Storage, files: OpenFiles, paths: Sequence[str]) -> None:
    """Remove files, durably except those of queues; those that are gone already are no matter."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            storage.unlink(path)
        files.forget(path)  # behind it: somebody may have read it just then, and an open file keeps its blocks
    for folder in (FOLDER, INDEX_FOLDER):
        if any(path.startswith(f"{folder}/") for path in paths):
            storage.sync_folder(folder)


def empty_from(storage: Storage, files: OpenFiles, dropped: LogStartState) -> None:
    """Durably make a log that holds nothing begin there, and its queues too; may be repeated from any point."""
    index_checkpoint.remove(storage)
    producer_state.remove(storage)
    recovery_point.reset(storage, recovery_point.RecoveryPoint(1, 0, 0))
    unlink(storage, files, [path_of(int(name)) for name in storage.list_folder(FOLDER)])
    save(storage, dropped)


def survey(storage: Storage, log: Log, start: int) -> Segment:
    """What retention must know of the segment that begins at `start`, not the last one: its age is that of the record behind it."""
    _, end = log.segment_of(start)
    record = first_record(log, end)
    disk_bytes = 0
    with contextlib.suppress(FileNotFoundError), contextlib.closing(storage.open(path_of(start), readonly=True)) as file:
        disk_bytes = file.disk_bytes()
    return Segment(PhysicalOffset(start), PhysicalOffset(end), None if record is None else store_ms_of(record), disk_bytes)


def _rows(first_offsets: Mapping[QueueKey, int]) -> list[list[str | int]]:
    return [[*key, low] for key, low in first_offsets.items()]


def first_at(index: QueueIndex, queue: ConsumeQueue, offset: int) -> int:
    """The first message that lies at or behind byte `offset`, or follows what has no unit before such a one; the queue's end if none does.

    A unit that rotted may name a place before `offset`: then those before it are in order with those behind, and are searched again.
    """
    low, high = queue.range
    stop = high
    while low < stop:
        found = _search(index, queue, (low, stop), offset)
        units = _units(index, queue, max(low, found - _UNITS_AT_ONCE), min(_UNITS_AT_ONCE, found - low))
        before = [position for position, size, _ in units if size > 0][-2:-1]
        behind = _position_from(index, queue, found, high) if found < high else _NOT_GIVEN[0]
        if not before or not offset <= before[0] < behind:
            return found
        stop = found - 1
    return low


def _search(index: QueueIndex, queue: ConsumeQueue, units: tuple[int, int], offset: int) -> int:
    low, high = units
    while high - low > _UNITS_AT_ONCE:
        middle = (low + high) // 2
        if _position_from(index, queue, middle, high) < offset:
            low = middle + 1
        else:
            high = middle
    return _first_of(index, queue, (low, high), offset)


def _first_of(index: QueueIndex, queue: ConsumeQueue, units: tuple[int, int], offset: int) -> int:
    """Of a few units, the first whose message, or the next one that has a unit, lies at or behind `offset`; their end if none does.

    Those that the disk does not give may lie there, unless one behind them does not.
    """
    first, stop = units
    at, may_lie_there = first, False
    while at < stop:
        found = _units(index, queue, at, stop - at)
        for number, unit in enumerate(found, at):
            position, size, _ = unit
            if unit == _NOT_GIVEN:
                may_lie_there = True
            elif size > 0 and position >= offset:
                return first
            elif size > 0:
                first, may_lie_there = number + 1, False
        at += len(found) or index.file_units - at % index.file_units
    return first if may_lie_there else stop


def _position_from(index: QueueIndex, queue: ConsumeQueue, unit: int, stop: int) -> int:
    """Where the message lies, or the next one below `stop` that has a unit: damaged records leave holes. -1 when none has.

    Behind everything when there may be some, and the disk does not give them.
    """
    none: int = -1
    while unit < stop:
        units = _units(index, queue, unit, min(_UNITS_AT_ONCE, stop - unit))
        found = next((each[0] for each in units if each[1] > 0 and each != _NOT_GIVEN), None)
        if found is not None:
            return found
        none = _NOT_GIVEN[0] if _NOT_GIVEN in units else none
        unit = unit + len(units) if units else index.next_file(queue, unit + index.file_units - unit % index.file_units, stop)
    return none


def _units(index: QueueIndex, queue: ConsumeQueue, first: int, count: int) -> list[tuple[PhysicalOffset, int, int]]:
    """As `QueueIndex.units` does, with _NOT_GIVEN for those in pages that the disk does not give. Each page is asked for once."""
    try:
        return index.units(queue, first, count)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
    found: list[tuple[PhysicalOffset, int, int]] = []
    bad_page = -1
    for at in range(first, min(first + count, queue.max)):
        place = at % index.file_units * UNIT_BYTES
        page, last_page = place // PAGE_BYTES, (place + UNIT_BYTES - 1) // PAGE_BYTES
        try:
            found += [_NOT_GIVEN] if bad_page in {page, last_page} else index.units(queue, at, 1)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            found.append(_NOT_GIVEN)
            bad_page = page if page == last_page else bad_page
    return found
