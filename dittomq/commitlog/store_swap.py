"""A second copy of the log beside the one in use, and its taking that one's place so that no crash leaves a mixture.

    make an empty store in `dittomq/resync/` ▶ fill it ▶ close it cleanly ▶ write the intent
        ▶ at the next open, before anything else: log, queues and index aside, the copy's in their place ▶ the copy's side files over ours
        ▶ what is left of the copy aside ▶ clear the intent ▶ remove what is aside

From the intent on everything is repeated until it is done; before it, nothing has happened. Works on files alone, with no store open.
Tables, pins and holds belong to the node and stay as they are; what was cut from either copy is kept. The copy is another replica, with an
id of its own; the node is in the same group still, and bound by what it promised.
"""

import random
from dataclasses import dataclass, replace

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.segment import FOLDER as LOG_FOLDER
from dittomq.commitlog.disk.storage import Storage, read_file, remove_tree, replace_file
from dittomq.commitlog.disk.subfolder import Subfolder
from dittomq.commitlog.locks import reported
from dittomq.commitlog.state import identity, replica
from dittomq.offsets import PhysicalOffset

COPY_FOLDER = f"{state_file.FOLDER}/resync"
_ASIDE = f"{state_file.FOLDER}/aside"
_NAME = "swap"
_KIND = b"SWAP"
_FOLDERS = (LOG_FOLDER, "consumequeue", "index")
# What speaks of the log, its queues, and how they were left; a file that the copy does not have is removed. That a sync has failed is
# said of the disk, and stays.
_FILES = (
    "checkpoint",
    "abort",
    *(
        f"{state_file.FOLDER}/{name}"
        for name in (
            "identity",
            "lineage",
            "watermark",
            "checkpoint",
            "producers",
            "damaged",
            "queue-minimums",
            "dropped",
            "verified-equal",
            "cut-intent",
            "boot",
        )
    ),
)


@dataclass(frozen=True, slots=True)
class StoreSwap:
    """Bytes [start, end) of the store that goes, which the master did not have any more."""

    start: PhysicalOffset
    end: PhysicalOffset

    def __str__(self) -> str:
        return (
            f"this store was copied anew: bytes {self.start:,} to {self.end:,} of the old one, which its master no longer had, went with it"
        )


def copy_of(storage: Storage) -> Storage:
    """The data directory of the copy."""
    return Subfolder(storage, COPY_FOLDER)


def is_begun(storage: Storage) -> bool:
    """Whether there is a copy, however much it holds."""
    return storage.exists(f"{COPY_FOLDER}/{state_file.FOLDER}/identity")


def make(storage: Storage, chance: random.Random) -> None:
    """Durably make an empty copy, which is a replica with a new uuid; one that is there is thrown away."""
    discard(storage)
    copy = copy_of(storage)
    with reported("make a copy"):
        held = identity.load(storage)
        assert held is not None, "an open store has an identity"
        copy.make_folder("")
        for folder in (state_file.FOLDER, *_FOLDERS):
            copy.make_folder(folder)
        copy.sync_folder("")
        replica.create(copy, replica.new_state(chance))
        identity.save(copy, replace(held, generation=held.generation + 1))


def discard(storage: Storage) -> None:
    """Durably throw the copy away, all of it at once, if there is one."""
    with reported("throw the copy away"):
        _clear_aside(storage)
        if storage.exists(COPY_FOLDER):
            storage.rename(COPY_FOLDER, _ASIDE)
            storage.sync_folder(state_file.FOLDER)
            _clear_aside(storage)


def has_room(storage: Storage) -> bool:
    """Whether the disk takes what a swap writes: a start that cannot finish one is none, and the old store has not gone yet."""
    copy = copy_of(storage)
    with reported("look for room for a swap"):
        size = sum(len(read_file(copy, path)) for path in _FILES if copy.exists(path))
        return storage.free_bytes() >= state_file.ROOM_BYTES + size


def intend(storage: Storage, swap: StoreSwap) -> None:
    """Durably decide that the copy, which was closed cleanly, takes the place of the store at the next open."""
    copy = copy_of(storage)
    with reported("intend a swap"):
        _clear_aside(storage)
        ours, theirs = identity.load(storage), identity.load(copy)
        assert ours is not None
        assert theirs is not None
        identity.raise_format(storage, theirs.format)  # a version that does not know what comes would open what is of two stores
        identity.save(copy, replace(theirs, generation=max(ours.generation, theirs.generation) + 1))
        state_file.save_json(storage, _NAME, _KIND, {"start": swap.start, "end": swap.end})


def is_intended(storage: Storage) -> bool:
    """Whether the copy takes the store's place at the next open."""
    return storage.exists(f"{state_file.FOLDER}/{_NAME}")


def is_halfway(storage: Storage) -> bool:
    """Whether a swap was begun and not finished: what lies there is of two stores."""
    return is_intended(storage) and storage.exists(_ASIDE)


def finish(storage: Storage) -> StoreSwap | None:
    """Do all of the swap that was intended, durably; may be repeated from any point. None when there was none."""
    found = state_file.load_json(storage, _NAME, _KIND, StoreSwap)
    if found is not None and storage.exists(COPY_FOLDER):
        storage.make_folder(_ASIDE)
        storage.sync_folder(state_file.FOLDER)
        _swap_folders(storage)
        _take_files(storage)
        storage.rename(COPY_FOLDER, f"{_ASIDE}/copy")  # from here on there is none, and nothing is repeated
        storage.sync_folder(state_file.FOLDER)
        storage.sync_folder(_ASIDE)
    state_file.remove(storage, _NAME)
    _clear_aside(storage)
    return found


def _swap_folders(storage: Storage) -> None:
    """Folders are renamed whole, so each is the old one or the new one."""
    for folder in _FOLDERS:
        if storage.exists(f"{COPY_FOLDER}/{folder}"):
            if storage.exists(folder):
                storage.rename(folder, f"{_ASIDE}/{folder}")
            storage.rename(f"{COPY_FOLDER}/{folder}", folder)
    for folder in ("", _ASIDE, COPY_FOLDER):
        storage.sync_folder(folder)


def _take_files(storage: Storage) -> None:
    """The copy keeps its own until all are taken."""
    copy = copy_of(storage)
    for path in _FILES:
        if copy.exists(path):
            replace_file(storage, path, read_file(copy, path))
        elif storage.exists(path):
            storage.unlink(path)
    _take_replica(storage, copy)
    for name in copy.list_folder(state_file.FOLDER):
        if name.startswith("tail-"):
            storage.rename(f"{COPY_FOLDER}/{state_file.FOLDER}/{name}", f"{state_file.FOLDER}/{name}")
    for folder in ("", state_file.FOLDER, f"{COPY_FOLDER}/{state_file.FOLDER}"):
        storage.sync_folder(folder)


def _take_replica(storage: Storage, copy: Storage) -> None:
    """Durably be the copy's replica, in the group and with the promises of ours."""
    ours, theirs = replica.load(storage), replica.load(copy)
    if theirs is not None and ours is not None:
        promised = max(ours.promised, theirs.promised)
        replica.create(storage, replace(theirs, birth=ours.birth, promised=promised, revision=ours.revision))


def _clear_aside(storage: Storage) -> None:
    if storage.exists(_ASIDE):
        remove_tree(storage, _ASIDE)
        storage.sync_folder(state_file.FOLDER)
