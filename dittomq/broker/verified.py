"""Up to where this copy was verified against a master's, or to its successor's, kept over restarts in `dittomq/verified-equal`."""

from dataclasses import dataclass

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.offsets import PhysicalOffset

_NAME = "verified-equal"
_KIND = b"VEQU"
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class VerifiedUpTo:
    """Equal up to `end` with the store of that replica uuid."""

    end: PhysicalOffset = PhysicalOffset(0)
    master: str = ""


def load_verified(storage: Storage) -> VerifiedUpTo:
    """What was written down; nothing when that is not legible: then everything is compared anew. A cut may have taken some of it since."""
    try:
        payload = state_file.load(storage, _NAME, _KIND)
    except state_file.CorruptStateFile:  # or of a version that did not seal it
        return VerifiedUpTo()
    if payload is None:
        return VerifiedUpTo()
    number, _, master = payload.decode("utf-8", "replace").partition(" ")
    is_whole = master and number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS
    return VerifiedUpTo(PhysicalOffset(int(number)), master) if is_whole else VerifiedUpTo()


def save_verified(storage: Storage, verified: VerifiedUpTo) -> bool:
    """Write it down, durably. Whether there was room: on a full disk it is forgotten, what stood there may not be true any more."""
    has_room = state_file.save_if_room(storage, _NAME, _KIND, f"{verified.end} {verified.master}".encode())
    if not has_room:
        clear_verified(storage)
    return has_room


def clear_verified(storage: Storage) -> None:
    """Durably forget it, before a master may take over the tail of another log than the one that was compared."""
    state_file.remove(storage, _NAME)
