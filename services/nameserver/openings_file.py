"""The newest epoch of each group on the nameserver's disk: `dittomq/openings`, a sealed side file that is replaced whole."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

import msgspec

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.side_file import FOLDER, ROOM_BYTES, Number
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import StoreFailed, UnreadableStore
from dittomq.offsets import Epoch
from dittomq.routes import Opening
from services.nameserver.openings import Rows

_NAME: Final = "openings"
_KIND: Final = b"OPEN"
_SYNCS: Final = frozenset({"fdatasync", "fsync"})

_Row = tuple[str, Number, Annotated[int, msgspec.Meta(ge=0)] | None]


@contextmanager
def opened(storage: Storage, path: str) -> Iterator[Rows]:
    """What the file holds, nothing when there is none. The folder is locked while the block runs.

    A damaged file is refused: with nothing in its place, this nameserver would deny what it was told. Raises StoreLocked, UnreadableStore,
    StoreFailed.
    """
    with _refused(path):
        storage.make_folder("")
        lock = storage.lock("lock")
    try:
        with _refused(path):
            if storage.exists(f"{FOLDER}/identity") or storage.exists("commitlog"):
                raise UnreadableStore(path, "it is a broker's; set node.data_dir to a folder of the nameserver's own")
            storage.make_folder(FOLDER)
            storage.sync_folder("")
            side_file.forget_unfinished(storage)
            rows = _load(storage, path)
        yield rows
    finally:
        lock.release()


def keep(storage: Storage, rows: Rows) -> str:
    """Durably replace the file; why that could not be done, and the old one is still there: empty for nothing.

    Raises StoreFailed when a sync has failed: what the disk holds then is not known, and nothing is tried again on it.
    """
    payload = json.dumps([[group, opening.epoch, opening.opener_id] for group, opening in rows]).encode()
    needed = ROOM_BYTES + len(payload)
    try:
        free = storage.free_bytes()
        if free < needed:
            return f"the disk has {free:,} bytes left, and {needed:,} must be free; make room"
        side_file.save(storage, _NAME, _KIND, payload)
    except StoreFailed as failed:
        if failed.operation in _SYNCS:
            raise
        return f"{failed.operation} of {failed.path} failed: {failed.problem}"
    except OSError as error:
        return str(error)
    return ""


def _load(storage: Storage, path: str) -> Rows:
    try:
        found = side_file.load_json(storage, _NAME, _KIND, list[_Row]) or []
    except side_file.DamagedSideFile as damaged:
        remedy = "restore it, or delete it to begin with nothing: masters that start may then not hear of a promotion that only it knew of"
        raise UnreadableStore(path, f"{damaged}; {remedy}") from damaged
    return tuple((group, Opening(Epoch(epoch), opener_id)) for group, epoch, opener_id in found)


@contextmanager
def _refused(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableStore(path, f"{error}; let this user read and write there, or set another node.data_dir") from error
