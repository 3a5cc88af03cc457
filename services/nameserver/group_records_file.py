"""All group records on the nameserver's disk: `dittomq/groups`, a sealed side file that is replaced whole."""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import FOLDER, ROOM_BYTES
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import DiskFull, NotReady, Refused, StorageFailure, StoreOpenFailed

MAX_GROUPS: Final = 10_000

_NAME: Final = "groups"
_KIND: Final = b"GRPS"
_SYNCS: Final = frozenset({"fdatasync", "fsync"})
_NOTHING_WAS_CHANGED: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})  # none of them can follow the rename
_WHO: Final = "the nameserver"


@dataclass(frozen=True, slots=True)
class KeptRecord:
    """One group's record as text, and the version that its last writer was given."""

    document: str
    version: str


Rows = dict[str, KeptRecord]
"""By the name of the broker group."""

_Row = tuple[str, Annotated[str, msgspec.Meta(min_length=1)], Annotated[str, msgspec.Meta(min_length=1)]]


@contextmanager
def opened(storage: Storage, path: str) -> Iterator[Rows]:
    """What the file holds, nothing when there is none. The folder is locked while the block runs.

    What is yielded is durable: the process before may have died between a rename and the sync of its folder. A damaged file is refused.
    Raises StoreLocked, StoreOpenFailed, StorageFailure.
    """
    with _refused(path):
        storage.make_folder("")
        lock = storage.lock("lock")
    try:
        with _refused(path):
            if storage.exists(f"{FOLDER}/identity") or storage.exists("commitlog"):
                raise StoreOpenFailed(path, "it is a broker's; set node.data_dir to a folder of the nameserver's own")
            storage.make_folder(FOLDER)
            storage.sync_folder("")
            state_file.remove_unfinished(storage)
            storage.sync_folder(FOLDER)
            rows = _load(storage, path)
            if rows:  # written again: a sync that failed under the process before is not repeated by the next sync
                keep(storage, rows)
        yield rows
    finally:
        lock.release()


def keep(storage: Storage, rows: Mapping[str, KeptRecord]) -> Refused | None:
    """Durably replace the file; why that could not be done, and the old one is and stays there: None where it was done.

    Raises StorageFailure when it is not known which of the two the disk holds: the process must end.
    """
    payload = json.dumps([[group, kept.version, kept.document] for group, kept in rows.items()]).encode()
    needed = ROOM_BYTES + len(payload)
    try:
        free = storage.free_bytes()
        if free < needed:
            return DiskFull(_WHO, free, needed)
        state_file.save(storage, _NAME, _KIND, payload)
    except StorageFailure as failed:
        if failed.operation in _SYNCS:
            raise
        return NotReady(_WHO, f"{failed.operation} of {failed.path} failed: {failed.problem}; check its disk")
    except OSError as error:
        if error.errno not in _NOTHING_WAS_CHANGED:
            raise StorageFailure("replacing", f"{FOLDER}/{_NAME}", str(error)) from error
        return NotReady(_WHO, f"{error}; check its disk")
    return None


def _load(storage: Storage, path: str) -> Rows:
    try:
        found = state_file.load_json(storage, _NAME, _KIND, list[_Row]) or []
    except state_file.CorruptStateFile as damaged:
        remedy = "restore nothing older; delete it, and each group makes a new record when all its nodes are there"
        raise StoreOpenFailed(path, f"{damaged}; {remedy}") from damaged
    return {group: KeptRecord(document, version) for group, version, document in found}


@contextmanager
def _refused(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreOpenFailed(path, f"{error}; let this user read and write there, or set another node.data_dir") from error
