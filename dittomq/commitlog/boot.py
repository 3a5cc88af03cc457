"""How the process before this one ended.

`dittomq/boot` names the machine's boot under which the store is being used; a clean stop marks it so. While the mark of a running
process is there and the boot is the same, the page cache has all that was written. The stamp is gone while recovery runs,
and after a failed sync: the next start then counts as a power loss.
"""

from enum import StrEnum

from dittomq.commitlog import side_file
from dittomq.commitlog.storage import Storage

_NAME = "boot"
_KIND = b"BOOT"


class StopKind(StrEnum):
    """How the previous process of a store ended."""

    CLEAN = "clean"
    KILLED = "killed"
    POWER_LOSS = "power loss"
    EMPTY = "empty"
    """The store holds nothing yet."""


def read_stop(storage: Storage) -> StopKind:
    """How the store was left, by its stamp alone; a missing or damaged one means power loss."""
    try:
        stamp = side_file.load_json(storage, _NAME, _KIND)
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


def remove_stamp(storage: Storage) -> None:
    """Durably remove the stamp."""
    side_file.remove(storage, _NAME)
