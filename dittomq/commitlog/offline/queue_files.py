"""The consume queues of a store on disk, read unit by unit; nothing of it is opened for longer than a read."""

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dittomq.commitlog.disk.damaged_pages import ReadableFile
from dittomq.commitlog.disk.segment import name_of
from dittomq.commitlog.disk.state_file import CorruptStateFile
from dittomq.commitlog.disk.storage import File
from dittomq.commitlog.offline.open_store import StoreOnDisk
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, files_in, folder_of, keys_on_disk
from dittomq.commitlog.queues.index_checkpoint import Checkpoint, QueueKey
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES, safe_topic

_CACHED_QUEUES = 1_024
_CACHED_UNITS = 256
_SCANNED_UNITS = 4_096


class _Unopened(NamedTuple):
    """Stands for a file that is there and cannot be opened."""

    reason: str

    def problem(self, _start: int, _end: int) -> str:
        """As `ReadableFile.problem` does."""
        return self.reason


class QueueFiles:
    """Units of queues, a few hundred at a time, of a bounded number of queues. Those that the disk does not give read as not written.

    A file that goes while it is looked for, as a running broker drops it, is one that is not there.
    """

    def __init__(self, store: StoreOnDisk) -> None:
        self._storage = store.storage
        self._held = _held_by(store)
        self._blocks: OrderedDict[QueueKey, tuple[int, bytes, ReadableFile | _Unopened | None]] = OrderedDict()
        self._file_bytes: dict[QueueKey, int | _Unopened] = {}

    def has(self, key: QueueKey) -> bool:
        """Whether the queue has any file."""
        return self._size(key) != 0

    def had(self, key: QueueKey, offset: int) -> bool:
        """Whether a checkpoint of ours says that the queue held this message; files that are gone take back nothing that it says."""
        low, high = self._held.get(key, (0, 0))
        return low <= offset < high

    def at(self, key: QueueKey, offset: int) -> tuple[int, int, int] | None:
        """Position, size and tags code of a message; None where its file is not there."""
        first, block, _ = self._blocks.get(key, (-1, b"", None))
        if not first <= offset < first + len(block) // UNIT_BYTES:
            first, (block, file) = offset, self._read(key, offset, _CACHED_UNITS * UNIT_BYTES)
            self._blocks[key] = (first, block, file)
        self._blocks.move_to_end(key)
        if len(self._blocks) > _CACHED_QUEUES:
            self._blocks.popitem(last=False)
        at = (offset - first) * UNIT_BYTES
        return None if at + UNIT_BYTES > len(block) else UNIT.unpack_from(block, at)

    def problem(self, key: QueueKey, offset: int) -> str:
        """Why the disk did not give the unit that `at` was asked for last; empty when it did."""
        file, size = self._blocks[key][2], self._size(key)
        at = offset * UNIT_BYTES % size if isinstance(size, int) and size else 0
        return "" if file is None else file.problem(at, at + UNIT_BYTES)

    def keys(self) -> list[QueueKey]:
        """Every queue that has a folder of a name that a topic may have."""
        return [key for key in keys_on_disk(self._storage) if safe_topic(key[0].encode(errors="surrogateescape"))]

    def behind(self, key: QueueKey, offset: int) -> Iterator[tuple[int, tuple[int, int, int] | str]]:
        """Every unit from a message on that is not empty, however far behind, with its offset; holes are passed over.

        A reason stands for each that the disk does not give.
        """
        size = self._size(key)
        folder = folder_of(*key)
        if isinstance(size, _Unopened):
            yield offset, size.reason
            return
        for name in files_in(self._storage, folder) if size else []:
            low = max(0, offset * UNIT_BYTES - int(name))
            if low < size:
                units = self._units_in(f"{folder}/{name}", low, size)
                yield from ((int(name) // UNIT_BYTES + number, unit) for number, unit in units)

    def forget(self, key: QueueKey) -> None:
        """Read the queue's units again when they are asked for."""
        self._blocks.pop(key, None)

    def read(self, key: QueueKey, offset: int, most: int) -> bytes:
        """Units from a message on, at most so many bytes and of one file."""
        return self._read(key, offset, most)[0]

    def _read(self, key: QueueKey, offset: int, most: int) -> tuple[bytes, ReadableFile | _Unopened | None]:
        size = self._size(key)
        if not isinstance(size, int):
            return b"", size
        at = offset * UNIT_BYTES
        file = self._opened(f"{folder_of(*key)}/{name_of(at // size * size)}") if size else None
        if file is None or isinstance(file, _Unopened):
            return b"", file
        with contextlib.closing(file):
            legible = ReadableFile(file)
            return legible.pread(min(most, size - at % size), at % size), legible

    def _size(self, key: QueueKey) -> int | _Unopened:
        """Bytes of units in each file of the queue, 0 when it has none."""
        if key not in self._file_bytes:
            folder = folder_of(*key)
            names = files_in(self._storage, folder) if safe_topic(key[0].encode(errors="surrogateescape")) else []
            self._file_bytes[key] = self._size_of([f"{folder}/{name}" for name in names])
        return self._file_bytes[key]

    def _size_of(self, paths: list[str]) -> int | _Unopened:
        """The size of the first of these that can be opened."""
        unopened: int | _Unopened = 0
        for path in paths:
            file = self._opened(path)
            if isinstance(file, _Unopened):
                unopened = file
            elif file is not None:
                with contextlib.closing(file):
                    return file.size() // UNIT_BYTES * UNIT_BYTES
        return unopened

    def _units_in(self, path: str, low: int, size: int) -> Iterator[tuple[int, tuple[int, int, int] | str]]:
        file = self._opened(path)
        if isinstance(file, _Unopened):
            yield from ((number, file.reason) for number in range(low // UNIT_BYTES, size // UNIT_BYTES))
        elif file is not None:
            with contextlib.closing(file):
                yield from _set_units(file, ReadableFile(file), low)

    def _opened(self, path: str) -> File | _Unopened | None:
        try:
            return self._storage.open(path, readonly=True)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _Unopened(f"{path} cannot be opened: {error.strerror or error}")


def _held_by(store: StoreOnDisk) -> Mapping[QueueKey, tuple[int, int]]:
    """What each queue held at the last checkpoint, [min, max); without a whole one all queues are built again, and nothing is said."""
    held: Checkpoint | None = None
    if store.ours:
        with contextlib.suppress(CorruptStateFile):
            held = index_checkpoint.load(store.storage)
    return held.ranges if held is not None else {}


def _set_units(file: File, legible: ReadableFile, at: int) -> Iterator[tuple[int, tuple[int, int, int] | str]]:
    """Units of a file from byte `at` on, where a unit begins, that name a message or cannot be read, with their numbers in it."""
    size = file.size() // UNIT_BYTES * UNIT_BYTES
    while (at := file.data_from(at) // UNIT_BYTES * UNIT_BYTES) < size:
        block = legible.pread(min(_SCANNED_UNITS * UNIT_BYTES, size - at), at)
        if len(block) < UNIT_BYTES:
            return  # the file was made shorter meanwhile
        block = block[: len(block) // UNIT_BYTES * UNIT_BYTES]
        unread = bool(legible.problem(at, at + len(block)))
        for number, unit in enumerate(UNIT.iter_unpack(block), at // UNIT_BYTES) if unread or any(block) else ():
            problem = legible.problem(number * UNIT_BYTES, (number + 1) * UNIT_BYTES) if unread else ""
            if problem or (unit[1] > 0 and unit[1] != BLANK_UNIT_BYTES):
                yield number, problem or unit
        at += len(block)
