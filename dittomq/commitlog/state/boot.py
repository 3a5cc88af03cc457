"""How the process before this one ended.

`dittomq/boot` names the machine's boot under which the store is being used; a clean stop marks it so. While the mark of a running
process is there and the boot is the same, the page cache has all that was written. The stamp is gone while recovery runs,
and after a failed sync: the next start then counts as a power loss. Where a disk refused even that, `settling` looks for traces.

`dittomq/incomplete` is there while a master copies what it lacks from a slave: until that has ended its disk does not hold all that was
confirmed, however its processes end. So it is where a follower has lost its newest segment, until the node has noted that.
"""

from enum import StrEnum
from typing import TypedDict

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage

_NAME = "boot"
_KIND = b"BOOT"
_FAILED_NAME = "failed-sync"
_FAILED_KIND = b"FAIL"
_INCOMPLETE_NAME = "incomplete"
_INCOMPLETE_KIND = b"PART"


class StopKind(StrEnum):
    """How the previous process of a store ended."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_LOSS = "power loss"
    FAILED_SYNC = "failed fsync"
    """A write or sync had failed: what the page cache showed then may not be on the disk."""
    EMPTY = "empty"
    """The store holds nothing yet."""
    INCOMPLETE = "incomplete"
    """It was to get the log of another copy, and holds a part of it."""


class _Stamp(TypedDict):
    """The file."""

    boot: str
    clean: bool


def read_stop(storage: Storage) -> StopKind:
    """How the store was left, by its stamp alone; a missing or damaged one means power loss."""
    for name, kind in ((_INCOMPLETE_NAME, StopKind.INCOMPLETE), (_FAILED_NAME, StopKind.FAILED_SYNC)):
        if storage.exists(f"{side_file.FOLDER}/{name}"):
            return kind
    try:
        stamp = side_file.load_json(storage, _NAME, _KIND, _Stamp)
    except side_file.DamagedSideFile:
        stamp = None
    if stamp is None:
        return StopKind.POWER_LOSS
    if stamp["clean"]:
        return StopKind.CLEAN  # everything was synced before the mark was made, whatever boot this is
    return StopKind.KILLED if stamp["boot"] == storage.boot_id() else StopKind.POWER_LOSS


def write_stamp(storage: Storage, *, clean: bool) -> None:
    """Durably stamp the store with this boot. `clean`: all of it is synced and nobody uses it any more."""
    side_file.save_json(storage, _NAME, _KIND, {"boot": storage.boot_id(), "clean": clean})
    side_file.remove(storage, _FAILED_NAME)
    side_file.remove(storage, _INCOMPLETE_NAME)


def end_cleanly(storage: Storage, *, recovered: bool) -> None:
    """Durably say that all is synced and nobody uses the store any more; without a word where the node's recovery has not ended."""
    if recovered:
        write_stamp(storage, clean=True)


def remove_stamp(storage: Storage) -> None:
    """Durably remove the stamp."""
    side_file.remove(storage, _NAME)


def mark_incomplete(storage: Storage) -> None:
    """Durably say that the log is about to become a part of another copy's; to be taken back by a stamp."""
    side_file.save_json(storage, _INCOMPLETE_NAME, _INCOMPLETE_KIND, {})


def is_incomplete(storage: Storage) -> bool:
    """Whether that was said, and not taken back."""
    return storage.exists(f"{side_file.FOLDER}/{_INCOMPLETE_NAME}")


def mark_failed(storage: Storage) -> None:
    """Durably remove the stamp, then say why. A disk that cannot even do that leaves no stamp, or the stamp of a dead process."""
    remove_stamp(storage)
    side_file.save_json(storage, _FAILED_NAME, _FAILED_KIND, {})
