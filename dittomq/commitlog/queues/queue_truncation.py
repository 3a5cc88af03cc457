"""Clears consume queues of what lies behind their ends.

Queues may be built ahead of the flush, so a power loss can take records whose units the disk has already. Nothing of ours believes such
units, but others do: RocketMQ takes what follows in a queue's file for messages, once other queues have made the log long enough again.
"""

import contextlib
from collections.abc import Mapping

from dittomq.commitlog.disk.storage import PAGE_BYTES, File, Storage
from dittomq.commitlog.queues.consume_queue import FOLDER, SYNCED_ONE_BY_ONE, files_in, folder_of, keys_on_disk
from dittomq.commitlog.queues.index_checkpoint import QueueKey
from dittomq.commitlog.records.format import UNIT_BYTES


def clear(storage: Storage, ends: Mapping[QueueKey, int], file_units: int) -> None:
    """Durably leave nothing in the queues behind their ends, and nothing at all of a queue that has none; may be repeated from any point.

    Writes zeros over what was ever written there, and reads none of it: what looks like zeros may be what an earlier try wrote, and failed
    to sync. 100,000 queues cost a few system calls each. Raises StorageFailure.
    """
    keys = keys_on_disk(storage)
    for key in keys:
        _clear(storage, folder_of(*key), ends.get(key, 0), file_units)
    if storage.exists(FOLDER):
        _sync(storage, keys)


def _clear(storage: Storage, folder: str, end: int, file_units: int) -> None:
    for name in reversed(files_in(storage, folder)):
        first = int(name) // UNIT_BYTES
        if first >= end:
            storage.unlink(f"{folder}/{name}")
            continue
        if first + file_units > end:
            with contextlib.closing(storage.open(f"{folder}/{name}")) as file:
                _clear_file(file, (end - first) * UNIT_BYTES, file_units * UNIT_BYTES)
    if not storage.list_folder(folder):
        storage.remove_folder(folder)


def _clear_file(file: File, at: int, full_size: int) -> None:
    size = file.size()
    if size < full_size:  # nothing is built into it again when all its records were dropped
        file.truncate(full_size)
    while (at := file.data_from(at)) < size:
        length = min(PAGE_BYTES - at % PAGE_BYTES, size - at)
        file.pwrite(bytes(length), at)
        at += length


def _sync(storage: Storage, keys: list[QueueKey]) -> None:
    """Sync also what seems to be in order: a process that died here may have cleared it, and synced nothing."""
    if len(keys) > SYNCED_ONE_BY_ONE and storage.sync_below(FOLDER):
        return
    for key in keys:
        folder = folder_of(*key)
        names = files_in(storage, folder)
        if names:
            with contextlib.closing(storage.open(f"{folder}/{names[-1]}")) as file:
                file.fdatasync()
            storage.sync_folder(folder)
    for topic in storage.list_folder(FOLDER):
        with contextlib.suppress(NotADirectoryError):  # a stranger's file
            storage.sync_folder(f"{FOLDER}/{topic}")
    storage.sync_folder(FOLDER)
