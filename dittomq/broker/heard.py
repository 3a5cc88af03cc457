"""The newest epoch that a master, a nameserver or its opener told this node of (`dittomq/heard`): no older master is obeyed any more.

The lineage alone does not tell it: an epoch gets there with its first byte, and leaves when that is cut.
"""

from dittomq.commitlog.disk.side_file import load, save_if_room
from dittomq.commitlog.disk.storage import Storage
from dittomq.offsets import Epoch
from dittomq.routes import NO_OPENING, Opening

_NAME = "heard"
_KIND = b"HEAR"


def load_heard(storage: Storage) -> Opening:
    """What was written down, no opening when nothing was. Raises DamagedSideFile."""
    found = load(storage, _NAME, _KIND)
    if found is None:
        return NO_OPENING
    epoch, _, opener_id = found.decode().partition(" ")  # the first versions of this program wrote the epoch only
    return Opening(Epoch(int(epoch)), int(opener_id) if opener_id else None)


def save_heard(storage: Storage, heard: Opening) -> bool:
    """Write it down, durably; whether there was room for that."""
    opener_id = "" if heard.opener_id is None else f" {heard.opener_id}"
    return save_if_room(storage, _NAME, _KIND, f"{heard.epoch}{opener_id}".encode())
