"""What queue files tell of messages that the log no longer holds.

RocketMQ keeps the newest file of a queue when it drops all its messages.
"""

import contextlib

from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.queues.checkpoint import QueueKey
from dittomq.commitlog.queues.queue_index import BLANK_UNIT_BYTES, files_in, folder_of, keys_on_disk
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES, safe_topic


def emptied(storage: Storage, begin: int) -> dict[QueueKey, int]:
    """Of each queue whose newest message lay below `begin`, the offset that its next one gets. Looks only."""
    found = {}
    for key in filter(_is_named_safely, keys_on_disk(storage)):
        newest = _newest(storage, folder_of(*key))
        if newest is not None and newest[1] < begin:
            found[key] = newest[0] + 1
    return found


def _is_named_safely(key: QueueKey) -> bool:
    return bool(safe_topic(key[0].encode(errors="surrogateescape")))


def _newest(storage: Storage, folder: str) -> tuple[int, int] | None:
    """Offset of the newest message in the queue's files, and its position; None when there is none."""
    for name in reversed(files_in(storage, folder)):
        with contextlib.closing(storage.open(f"{folder}/{name}", readonly=True)) as file:
            filled = _filled(file)
            if filled:
                position, size, _ = UNIT.unpack(file.pread(UNIT_BYTES, (filled - 1) * UNIT_BYTES))
                return None if size == BLANK_UNIT_BYTES else (int(name) // UNIT_BYTES + filled - 1, position)
    return None


def _filled(file: File) -> int:
    """Units up to the first that is not written; they are written in their order."""
    low, high = 0, file.size() // UNIT_BYTES
    while low < high:
        middle = (low + high) // 2
        _, size, _ = UNIT.unpack(file.pread(UNIT_BYTES, middle * UNIT_BYTES))
        low, high = (middle + 1, high) if size > 0 else (low, middle)
    return low
