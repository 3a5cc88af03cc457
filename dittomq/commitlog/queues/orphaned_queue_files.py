"""What queue files tell of messages that the log no longer holds.

RocketMQ keeps the newest file of a queue when it drops all its messages.
"""

import contextlib
from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from dittomq.commitlog.disk.damaged_pages import ReadableFile
from dittomq.commitlog.disk.storage import File, Storage, speaks_of_bytes
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, files_in, folder_of, keys_on_disk
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES, safe_topic
from dittomq.errors import StoreOpenFailed

_NEIGHBOURS = 64


class Emptied(NamedTuple):
    """Queues of which messages lay below the log's beginning, with the offset of the first one that did not, or of their next one.

    `unsure` are queues of which that cannot be read: if the log holds no message of one, all that it had were below that offset.
    """

    first_offsets: dict[QueueKey, int]
    unsure: dict[QueueKey, int]


class _Filled(NamedTuple):
    """Units [0, `surely`) are written, the last of them is `last`; those from `at_most` on are not. Of a file, or of a queue."""

    surely: int = 0
    last: bytes = bytes(UNIT_BYTES)
    at_most: int = 0


def emptied(storage: Storage, store: str, begin: int) -> Emptied:
    """What the queue files of `store` tell where its log begins at byte `begin`. Looks only. Raises StoreOpenFailed."""
    found = Emptied({}, {})
    for key in filter(_is_named_safely, keys_on_disk(storage)):
        filled = _filled(storage, store, folder_of(*key))
        position, size, _ = UNIT.unpack(filled.last)
        is_message = size not in {0, BLANK_UNIT_BYTES}
        if is_message and position >= begin:
            if low := _first_held(storage, folder_of(*key), begin):
                found.first_offsets[key] = low
        elif filled.surely < filled.at_most:
            found.unsure[key] = filled.at_most
        elif is_message:
            found.first_offsets[key] = filled.surely
    return found


def _first_held(storage: Storage, folder: str, begin: int) -> int:
    """Of a queue, the first message that does not lie below byte `begin`; 0 where its files do not tell it for certain."""
    try:
        return _searched_in_all(storage, folder, begin)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return 0


def _searched_in_all(storage: Storage, folder: str, begin: int) -> int:
    leads_to = None
    for name in files_in(storage, folder):
        first = int(name) // UNIT_BYTES
        with contextlib.closing(storage.open(f"{folder}/{name}", readonly=True)) as file:
            filled = _searched(file)
            low = bisect_left(range(filled.surely), begin, key=partial(_position_at, file))
            if low > 0:
                leads_to = first + low if _end_below(file, range(max(0, low - _NEIGHBOURS), low), begin) else None
            if low < filled.surely:
                return first + low if leads_to == first + low else 0
    return 0


def _position_at(file: File, number: int) -> int:
    position: int = UNIT.unpack(file.pread(UNIT_BYTES, number * UNIT_BYTES))[0]
    return position


def _end_below(file: File, numbers: range, begin: int) -> bool:
    """Whether these units end with a message, and all that they name lies below byte `begin`, in its order.

    One that rotted may have led a search astray. Behind a unit that names none, or behind no unit, the log may hold messages that the
    queue does not name: RocketMQ builds a queue again in part.
    """
    units = list(UNIT.iter_unpack(file.pread(len(numbers) * UNIT_BYTES, numbers.start * UNIT_BYTES)))
    positions = [position for position, _, _ in units]
    is_in_order = positions == sorted(positions) and positions[-1] < begin
    return is_in_order and units[-1][1] != BLANK_UNIT_BYTES and all(size > 0 for _, size, _ in units)


def _is_named_safely(key: QueueKey) -> bool:
    return bool(safe_topic(key[0].encode(errors="surrogateescape")))


def _filled(storage: Storage, store: str, folder: str) -> _Filled:
    """Of a queue, by its newest files."""
    at_most = 0
    for name in reversed(files_in(storage, folder)):
        first = int(name) // UNIT_BYTES
        with contextlib.closing(_opened(storage, store, f"{folder}/{name}")) as file:
            filled = _filled_in(file)
        if filled.at_most and not at_most:
            at_most = first + filled.at_most
        if filled.surely:
            return _Filled(first + filled.surely, filled.last, at_most)
    return _Filled(at_most=at_most)


def _opened(storage: Storage, store: str, path: str) -> File:
    try:
        return storage.open(path, readonly=True)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        why = f"{path} cannot be opened ({error.strerror or error}), and where its queue goes on may stand nowhere else"
        raise StoreOpenFailed(store, f"{why}; bring it back, or empty the data_dir to copy all from the group") from error


def _filled_in(file: File) -> _Filled:
    """Units up to the first that is not written; they are written in their order."""
    try:
        return _searched(file)
    except OSError as error:
        if not speaks_of_bytes(error):
            raise
        return _legibly_filled_in(file)


def _searched(file: File) -> _Filled:
    low, high, last = 0, file.size() // UNIT_BYTES, bytes(UNIT_BYTES)
    while low < high:
        middle = (low + high) // 2
        unit = file.pread(UNIT_BYTES, middle * UNIT_BYTES)
        _, size, _ = UNIT.unpack(unit)
        low, high, last = (middle + 1, high, unit) if size > 0 else (low, middle, last)
    return _Filled(low, last, low)


def _legibly_filled_in(file: File) -> _Filled:
    """The same as far as the disk gives the file: those that it does not give may be written, up to the first that is not."""
    legible, stop = ReadableFile(file), file.size() // UNIT_BYTES
    data = legible.pread(stop * UNIT_BYTES, 0)
    surely = 0
    for at in range(stop):
        _, size, _ = UNIT.unpack_from(data, at * UNIT_BYTES)
        if legible.problem(at * UNIT_BYTES, (at + 1) * UNIT_BYTES):
            continue
        if size <= 0:
            stop = at
            break
        surely = at + 1
    return _Filled(surely, data[(surely - 1) * UNIT_BYTES : surely * UNIT_BYTES] if surely else bytes(UNIT_BYTES), stop)
