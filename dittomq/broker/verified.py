"""Up to where this copy was proven equal to a master's, or to its successor's, kept over restarts in `dittomq/verified-equal`."""

from dataclasses import dataclass

from dittomq.commitlog.disk import side_file
from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.offsets import PhysicalOffset

_NAME = "verified-equal"
_PATH = f"{side_file.FOLDER}/{_NAME}"


@dataclass(frozen=True, slots=True)
class Verified:
    """Equal up to `end` with the store of that replica uuid."""

    end: PhysicalOffset = PhysicalOffset(0)
    master: str = ""


def load_verified(storage: Storage, end: PhysicalOffset) -> Verified:
    """What was written down, at most the log's `end`; nothing when that is not legible: then everything is compared anew."""
    if not storage.exists(_PATH):
        return Verified()
    number, _, master = read_file(storage, _PATH).decode(errors="replace").partition(" ")
    return Verified(PhysicalOffset(min(int(number), end)), master) if number.isdecimal() and master else Verified()


def save_verified(storage: Storage, verified: Verified) -> bool:
    """Write it down, durably. Whether there was room: on a full disk it is forgotten, what stood there may not be true any more."""
    if storage.free_bytes() < side_file.ROOM_BYTES:
        forget_verified(storage)
        return False
    replace_file(storage, _PATH, f"{verified.end} {verified.master}".encode())
    return True


def forget_verified(storage: Storage) -> None:
    """Durably forget it, before a master may take over the tail of another log than the one that was compared."""
    side_file.remove(storage, _NAME)
