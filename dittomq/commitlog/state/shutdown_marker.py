"""How the process before this one ended.

`dittomq/boot` names the machine's boot under which the store is being used; a clean stop marks it so. While the mark of a running
process is there and the boot is the same, the page cache has all that was written. While a start recovers the store, the stamp says from
what. `dittomq/failed-sync` stands from a failed write or sync until a start has drawn a new incarnation. Where a disk refused even that
mark, the stamp may be missing; and `writeback_check` looks for traces.
"""

from dataclasses import asdict, dataclass
from enum import StrEnum

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage

_NAME = "boot"
_KIND = b"BOOT"
_FAILED_NAME = "failed-sync"
_FAILED_KIND = b"FAIL"


class StopKind(StrEnum):
    """How the previous process of a store ended."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_LOSS = "power loss"
    FAILED_SYNC = "failed fsync"
    """A write or sync had failed: what the page cache showed then may not be on the disk."""
    EMPTY = "empty"
    """The store holds nothing yet."""


@dataclass(frozen=True, slots=True)
class _SavedMarker:
    """The file. `clean`: all is synced, and the store is closed. `recovers`: a start brings it in order that found it like this."""

    boot: str
    clean: bool = False
    acks_unsynced: bool = False
    recovers: StopKind | None = None


@dataclass(frozen=True, slots=True)
class LastUse:
    """How a store was left, by its stamp alone.

    `has_lost`: it may lack bytes that it acknowledged. `acks_unsynced`: bytes that were not synced may have been acknowledged.
    `is_derived_in_doubt`: what is derived from the log may be as a power loss leaves it, though the log is not.
    """

    stopped: StopKind
    has_lost: bool
    acks_unsynced: bool = False
    is_derived_in_doubt: bool = True


def read(storage: Storage) -> LastUse:
    """How the store was left; where no whole stamp tells, anything may be lost."""
    if storage.exists(f"{state_file.FOLDER}/{_FAILED_NAME}"):
        return LastUse(StopKind.FAILED_SYNC, has_lost=True)
    try:
        stamp = state_file.load_json(storage, _NAME, _KIND, _SavedMarker)
    except state_file.CorruptStateFile:
        stamp = None
    if stamp is None:
        return LastUse(StopKind.POWER_LOSS, has_lost=True)
    if stamp.clean:
        return LastUse(StopKind.CLEAN, has_lost=False, is_derived_in_doubt=False)  # all was synced before, whatever boot this is
    if stamp.boot != storage.boot_id():
        return LastUse(StopKind.POWER_LOSS, has_lost=stamp.acks_unsynced)
    if stamp.recovers not in {None, StopKind.KILLED}:
        return LastUse(StopKind.POWER_LOSS, has_lost=False)
    return LastUse(StopKind.KILLED, has_lost=False, acks_unsynced=stamp.acks_unsynced, is_derived_in_doubt=stamp.recovers is not None)


def begin_recovery(storage: Storage, last: LastUse) -> None:
    """Durably stamp a store that a start brings in order now: until it is stamped again, a next start does that too."""
    _save(storage, _SavedMarker(storage.boot_id(), acks_unsynced=last.acks_unsynced, recovers=last.stopped))


def stamp(storage: Storage, *, clean: bool, acks_unsynced: bool) -> None:
    """Durably stamp the store with this boot: all of it is synced. `clean`: nobody uses it any longer; otherwise this process does.

    `acks_unsynced`: from now on bytes may be acknowledged before they are synced. The mark of a failed sync goes.
    """
    _save(storage, _SavedMarker(storage.boot_id(), clean=clean, acks_unsynced=acks_unsynced and not clean))
    state_file.remove(storage, _FAILED_NAME)


def mark_failed(storage: Storage) -> None:
    """Durably remove the stamp, then say why. A disk that cannot even do that leaves no stamp, or the stamp of a dead process."""
    state_file.remove(storage, _NAME)
    state_file.save_json(storage, _FAILED_NAME, _FAILED_KIND, {})


def _save(storage: Storage, stamp: _SavedMarker) -> None:
    state_file.save_json(storage, _NAME, _KIND, asdict(stamp))
