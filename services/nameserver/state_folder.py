"""The nameserver's folder: locked while it runs, and files in it that are replaced whole, or not at all."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import FOLDER, ROOM_BYTES
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import DiskFull, NotReady, Refused, StorageFailure, StoreOpenFailed

_SYNCS: Final = frozenset({"fdatasync", "fsync"})
_NOTHING_WAS_CHANGED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # none of them can follow the rename
_WHO: Final = "the nameserver"


@contextmanager
def locked(storage: Storage, path: str) -> Iterator[None]:
    """The folder is made, and locked while the block runs; what a process that died began to write is removed.

    Raises StoreLocked, StoreOpenFailed, StorageFailure.
    """
    with refusing(path):
        storage.make_folder("")
        lock = storage.lock("lock")
    try:
        with refusing(path):
            if storage.exists(f"{FOLDER}/identity") or storage.exists("commitlog"):
                raise StoreOpenFailed(path, "it is a broker's; set node.data_dir to a folder of the nameserver's own")
            storage.make_folder(FOLDER)
            storage.sync_folder("")
            state_file.remove_unfinished(storage)
            storage.sync_folder(FOLDER)
        yield
    finally:
        lock.release()


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """What the system refuses in the folder is a StoreOpenFailed."""
    try:
        yield
    except OSError as error:
        raise StoreOpenFailed(path, f"{error}; let this user read and write there, or set another node.data_dir") from error


def replace_whole(storage: Storage, name: str, kind: bytes, payload: bytes) -> Refused | None:
    """Durably replace `dittomq/<name>`; why that could not be done, and the old one is and stays there: None where it was done.

    Raises StorageFailure when it is not known which of the two the disk holds: the process must end.
    """
    needed = ROOM_BYTES + len(payload)
    try:
        free = storage.free_bytes()
        if free < needed:
            return DiskFull(_WHO, free, needed)
        state_file.save(storage, name, kind, payload)
    except StorageFailure as failed:
        if failed.operation in _SYNCS:
            raise
        return NotReady(_WHO, f"{failed.operation} of {failed.path} failed: {failed.problem}; check its disk")
    except OSError as error:
        if error.errno not in _NOTHING_WAS_CHANGED:
            raise StorageFailure("replacing", f"{FOLDER}/{name}", str(error)) from error
        return NotReady(_WHO, f"{error}; check its disk")
    return None
