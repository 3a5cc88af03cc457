"""Consume queues on disk: `consumequeue/<topic>/<queue>/`, files of a fixed number of 20-byte units; unit n is message n.

`max` is the end of what was dispatched, published after its units are there; `next` is the offset that the next message gets;
max <= next. `min` is where a deleted topic begins anew, and may be ahead of `max`. One thread dispatches, any number read.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace

from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.segment import NAME_DIGITS, name_of
from dittomq.commitlog.disk.storage import Storage, speaks_of_bytes
from dittomq.commitlog.queues.index_checkpoint import Checkpoint, OffsetReservation, QueueKey
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.offsets import PhysicalOffset

FOLDER = "consumequeue"
SYNCED_ONE_BY_ONE = 128
"""So many files and folders are synced one by one; of more the whole disk is, once."""
# The size in the units that fill a queue's first file up to where the queue begins.
BLANK_UNIT_BYTES = 0x7FFFFFFF


class ConsumeQueue:
    """One queue. `ready` is the file last found to have its full size, number `ready_number` of its files; -1 for none.

    `raised` is a `next` that no message gave it. `outlived`: RocketMQ counted from 0 again behind so many messages; `reset_at`: the
    record where it did, until that is noted, else -1. `unmade`: so many files between its messages were never made, or fewer since some
    were dropped; a start counts them again.
    """

    __slots__ = ("folder", "max", "min", "next", "outlived", "queue", "raised", "ready", "ready_number", "reset_at", "topic", "unmade")

    def __init__(self, topic: str, queue: int, low: int, high: int) -> None:
        self.topic = topic
        self.queue = queue
        self.folder = folder_of(topic, queue)
        self.min = low
        self.max = high
        self.next = high
        self.raised = self.outlived = 0
        self.reset_at = -1
        self.ready = ""
        self.ready_number = -1
        self.unmade = 0

    @property
    def range(self) -> tuple[int, int]:
        """What can be read: [min, max)."""
        return self.min, max(self.min, self.max)

    def extend(self, first: int, stop: int, strange: int | None = None) -> None:
        """Neighbouring messages [first, stop) are in the log, behind all that came before; the first at `strange`, if it is RocketMQ's."""
        is_raised = self.next == self.raised
        if first == 0 < self.next and (is_raised or strange is not None):
            if strange is not None and not is_raised:  # behind others: the topic is another one for RocketMQ
                self.outlived, self.reset_at = max(self.outlived, self.next), strange
            self.next = 1 if self.min <= self.outlived else self.min
        self.next = max(self.next, stop)


class QueueIndex:
    """All queues of a store."""

    def __init__(
        self,
        storage: Storage,
        files: OpenFiles,
        file_units: int,
        segment_bytes: int,
        *,
        begins_late: bool = False,
        is_reported: bool = False,
        is_ours: Callable[[int], bool] = lambda _: False,
    ) -> None:
        """`begins_late`: the log's first segments are gone. Unless it `is_reported` which queues lost messages with them, each begins with
        the first message of it that is found. One that is damaged is not found. `is_ours`: whether a broker of ours wrote what lies there;
        such a one never counts from 0 again, so its message 0 only comes for the second time, behind a cut.
        """
        self.is_ours = is_ours
        self.queues: dict[QueueKey, ConsumeQueue] = {}
        self._reservation = OffsetReservation()
        self._begin = 0  # the first offset of a queue that is not known
        self.file_units = file_units
        self._storage = storage
        self._files = files
        self._segment_bytes = segment_bytes
        self._begins_late = begins_late
        self._guesses_minimums = begins_late and not is_reported
        self._unsynced: dict[str, None] = {}
        self._new_folders: dict[str, None] = {}

    def queue(self, topic: str, queue: int) -> ConsumeQueue:
        """The queue, made in memory when it is not known."""
        key = (topic, queue)
        found = self.queues.get(key)
        if found is None:
            found = self.queues[key] = ConsumeQueue(topic, queue, 0, 0)
            found.next = found.raised = self._begin
        return found

    def apply_reservation(self, reservation: OffsetReservation) -> None:
        """Let queues give no lower offsets any more, though no messages here may have them."""
        self._reservation = self._reservation.joined(reservation)
        self._begin = self._reservation.begin
        empty = {key: self._begin for key, queue in self.queues.items() if not queue.max and key not in self._reservation.nexts}
        for key, to in {**empty, **reservation.nexts}.items():
            queue = self.queue(*key)
            if queue.next < to:
                queue.next = queue.raised = to

    def still_damaged(self, touches: Callable[[int, int], bool]) -> None:
        """Of what was leapt over only ranges that damage touches hide queues that are not known."""
        self._reservation = replace(self._reservation, strange=[each for each in self._reservation.strange if touches(*each)])
        self._begin = self._reservation.begin

    def clear_reservation(self, is_known: Callable[[int], bool]) -> None:
        """Where all numbers from the first byte on that was leapt over `is_known`, the next start is told of none that were left out."""
        if is_known(self._reservation.low):
            self._reservation = OffsetReservation(strange=self._reservation.strange)

    def reservation(self, applied: int) -> OffsetReservation:
        """What of it the next start cannot know, whose checkpoint is at `applied`.

        A queue's next offset is kept also where its messages show it: a cut may take those back, and leave the damage.
        """
        nexts = {key: to for key, to in self._reservation.nexts.items() if self.queues[key].outlived < to}
        return replace(self._reservation, nexts=nexts, ranges=[each for each in self._reservation.ranges if each[1] > applied])

    def reserved_below(self, offset: int) -> Mapping[QueueKey, int]:
        """The same once the log begins there: none while all that was leapt over lies behind it, for then it is met again."""
        return self.reservation(offset).nexts if self._reservation.low < offset else {}

    def guessed_minimums(self) -> dict[QueueKey, int]:
        """Where queues begin, as far as that is known from their messages only."""
        return {key: queue.min for key, queue in list(self.queues.items()) if queue.min} if self._guesses_minimums else {}

    def held(self) -> tuple[dict[QueueKey, tuple[int, int]], dict[QueueKey, int]]:
        """What a checkpoint says of the queues: the offsets of each, [min, max), and the files that some never made."""
        ranges = {key: (min(queue.min, queue.max), queue.max) for key, queue in self.queues.items()}
        return ranges, {key: queue.unmade for key, queue in self.queues.items() if queue.unmade}

    def write(self, queue: ConsumeQueue, first: int, units: bytes) -> None:
        """Put neighbouring units in place and publish them; those below the queue's minimum are left out."""
        stop = first + len(units) // UNIT_BYTES
        if first == 0 < queue.max and not self.is_ours(position := UNIT.unpack_from(units)[0]):  # RocketMQ made the topic again
            queue.outlived, queue.reset_at = max(queue.outlived, queue.max), position
            queue.min = queue.min if queue.min > queue.outlived else 0
            queue.max = 0
            self._remove(queue)
        elif queue.max == queue.min == 0 and self._guesses_minimums:
            queue.min = first
        at = max(first, queue.min)
        queue.unmade += self._passed_over(queue, at)
        while at < stop:
            end = min(stop, at + self.file_units - at % self.file_units)
            self._write_file(queue, at, units[(at - first) * UNIT_BYTES : (end - first) * UNIT_BYTES])
            at = end
        queue.max = max(queue.max, stop)

    def fill(self, queue: ConsumeQueue, offset: int, unit: bytes) -> None:
        """Put in place the unit of a message that was missing when those around it were built; another message's stays as it is.

        Where the disk does not give what is there, it stays as it is, and readers are told so, until all queues are built again.
        """
        try:
            held = self.units(queue, offset, 1)
        except OSError as error:
            if not speaks_of_bytes(error):
                raise
            queue.min = min(queue.min, offset)
            return
        if held and held[0][1] not in {0, BLANK_UNIT_BYTES} and held[0][0] != UNIT.unpack(unit)[0]:
            return
        if queue.max == queue.min == 0 and self._guesses_minimums:
            queue.min = offset
        queue.unmade += self._passed_over(queue, offset)
        if queue.unmade and queue.min <= offset < queue.max and not self._storage.exists(self._path(queue, offset)):
            queue.unmade -= 1
        self._write_file(queue, offset, unit)
        queue.min = min(queue.min, offset)
        queue.max = max(queue.max, offset + 1)

    def units(self, queue: ConsumeQueue, first: int, count: int) -> list[tuple[PhysicalOffset, int, int]]:
        """Position, size and tags code of up to `count` messages from `first` on; fewer where a file or the queue ends.

        Raises OSError when the disk does not give all of them.
        """
        count = min(count, queue.max - first, self.file_units - first % self.file_units)
        if count <= 0:
            return []
        try:
            with self._files.borrow(self._path(queue, first)) as file:
                data = file.pread(count * UNIT_BYTES, first % self.file_units * UNIT_BYTES)
        except FileNotFoundError:  # the topic was deleted meanwhile
            return []
        return list(UNIT.iter_unpack(data[: len(data) - len(data) % UNIT_BYTES]))

    def next_file(self, queue: ConsumeQueue, unit: int, stop: int) -> int:
        """As `next_file` does."""
        return next_file(self._storage, queue.folder, unit, stop)

    def sync(self) -> None:
        """Make all units written so far survive power loss, with their files' names, or raise StorageFailure."""
        paths, folders = list(self._unsynced), list(self._new_folders)
        for path in paths:
            del self._unsynced[path]
        for folder in folders:
            del self._new_folders[folder]
        if len(paths) + len(folders) > SYNCED_ONE_BY_ONE and self._storage.sync_below(FOLDER):
            paths, folders = [], [""]
        for path in paths:
            try:
                with self._files.borrow(path) as file:
                    file.fdatasync()
            except FileNotFoundError:  # the topic was deleted meanwhile
                continue
        for folder in folders:
            if self._storage.exists(folder):
                self._storage.sync_folder(folder)

    def raise_minimum(self, queue: ConsumeQueue, low: int) -> None:
        """The queue holds nothing below `low` any more; when that is all of it, its files go."""
        queue.min = max(queue.min, low)
        if queue.next < low:
            queue.next = queue.raised = low
        if queue.max <= low:
            self._remove(queue)

    def begin_at(self, queue: ConsumeQueue, low: int) -> list[str]:
        """The queue's messages below `low` are gone from the log; returns the paths of its files that hold nothing else.

        Its newest file is not among them: it tells RocketMQ at which offset the queue goes on.
        """
        before, newest = queue.min, max(0, queue.max - 1)
        queue.min, queue.max, queue.next = max(before, low), max(queue.max, low), max(queue.next, low)
        queue.ready_number = -1
        first = name_of(min(low, newest) // self.file_units * self.file_units * UNIT_BYTES)
        if before // self.file_units == low // self.file_units:
            return []
        return [f"{queue.folder}/{name}" for name in files_in(self._storage, queue.folder) if name < first]

    def _remove(self, queue: ConsumeQueue) -> None:
        queue.ready_number = -1
        queue.unmade = 0
        if self._storage.exists(queue.folder):
            remove_files(self._storage, queue.folder)
            self._new_folders[f"{FOLDER}/{queue.topic}"] = None  # what a checkpoint names no more must not come back behind it
        self._files.forget(f"{queue.folder}/")  # at last: somebody may have read one just then, and a new file gets its name

    def _write_file(self, queue: ConsumeQueue, first: int, data: bytes) -> None:
        ready = first // self.file_units == queue.ready_number
        path = queue.ready if ready else self._path(queue, first)
        if not ready:
            self._make_folder(queue)  # one that a killed process made may not be durable yet
        with self._files.borrow(path, create=not ready) as file:
            if not ready:
                self._make_ready(queue, path, first, UNIT.unpack_from(data)[0])
            file.pwrite(data, first % self.file_units * UNIT_BYTES)
        self._unsynced[path] = None

    def _passed_over(self, queue: ConsumeQueue, at: int) -> int:
        """How many files are not made between what the queue has and its message `at`, which comes next, or before all others."""
        low, high = queue.range
        if at < low < high:
            return max(0, low // self.file_units - at // self.file_units - 1)
        before = -(-high // self.file_units) if low < high else high // self.file_units
        return max(0, at // self.file_units - before)

    def _make_ready(self, queue: ConsumeQueue, path: str, first: int, position: int) -> None:
        with self._files.borrow(path) as file:
            if file.size() < self.file_units * UNIT_BYTES:
                file.truncate(self.file_units * UNIT_BYTES)
            if queue.max <= queue.min and first % self.file_units:
                file.pwrite(self._blank_unit(position) * (first % self.file_units), 0)
        queue.ready, queue.ready_number = path, first // self.file_units

    def _blank_unit(self, position: int) -> bytes:
        """A unit for what lies before the queue's first message, which lies at `position`.

        RocketMQ's own names byte 0, and a reader of RocketMQ that meets it goes on behind that segment. Where the log still holds byte 0
        we name the segment before the message's, so that no message is passed over; the first segment has none before it.
        """
        before = 0 if self._begins_late else max(0, position // self._segment_bytes - 1) * self._segment_bytes
        return UNIT.pack(before, BLANK_UNIT_BYTES, 0)

    def _make_folder(self, queue: ConsumeQueue) -> None:
        self._storage.make_folder(queue.folder)
        topic_folder = f"{FOLDER}/{queue.topic}"
        self._new_folders.update(dict.fromkeys((queue.folder, topic_folder, FOLDER, "")))

    def _path(self, queue: ConsumeQueue, offset: int) -> str:
        return path_of(queue.folder, offset, self.file_units)


def folder_of(topic: str, queue: int) -> str:
    """Where a queue lies; the topic's name was checked when it was read."""
    return f"{FOLDER}/{topic}/{queue}"


def path_of(folder: str, offset: int, file_units: int) -> str:
    """The file that holds unit `offset`."""
    return f"{folder}/{name_of(offset // file_units * file_units * UNIT_BYTES)}"


def keys_on_disk(storage: Storage) -> list[QueueKey]:
    """Every queue that has a folder."""
    found = []
    for topic in storage.list_folder(FOLDER):
        found += [(topic, int(name)) for name in storage.list_folder(f"{FOLDER}/{topic}") if name.isascii() and name.isdigit()]
    return found


def files_in(storage: Storage, folder: str) -> list[str]:
    """Names of a queue's files, in order; a stranger's file, as a copy that was broken off leaves one, is none of them."""
    return [name for name in storage.list_folder(folder) if len(name) == NAME_DIGITS and name.isascii() and name.isdigit()]


def next_file(storage: Storage, folder: str, unit: int, stop: int) -> int:
    """The first unit of the next of a queue's files that begins at or behind `unit`; `stop` when none begins before that.

    A search goes from file to file: a number that rotted may be larger than anybody can count to.
    """
    return next((first for name in files_in(storage, folder) if unit <= (first := int(name) // UNIT_BYTES) < stop), stop)


def misses_files(storage: Storage, held: Checkpoint, key: QueueKey, low: int) -> bool:
    """Whether more files are missing of those that hold what the checkpoint names of a queue from unit `low` on than were never made."""
    return absent_files(storage, held, key, low) > held.unmade.get(key, 0)


def absent_files(storage: Storage, held: Checkpoint, key: QueueKey, low: int) -> int:
    """How many of them are not there, of their full size. Of a queue with one file none: whoever reads its last unit knows."""
    size = held.file_units * UNIT_BYTES
    first, last = low * UNIT_BYTES // size, (held.ranges[key][1] - 1) * UNIT_BYTES // size
    if first >= last:
        return 0
    folder = folder_of(*key)
    names = [name for name in files_in(storage, folder) if int(name) % size == 0 and first <= int(name) // size <= last]
    return last + 1 - first - sum(_has_size(storage, f"{folder}/{name}", size) for name in names)


def _has_size(storage: Storage, path: str, size: int) -> bool:
    try:
        with contextlib.closing(storage.open(path, readonly=True)) as file:
            return file.size() == size
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return False


def remove_files(storage: Storage, folder: str) -> None:
    """Remove a queue's files, and its folder unless a stranger's file is in it."""
    for name in files_in(storage, folder):
        storage.unlink(f"{folder}/{name}")
    if not storage.list_folder(folder):
        storage.remove_folder(folder)
