"""The newest epoch in which a master took this node, kept in `dittomq/heard`: no older master is obeyed or acknowledged any more.

The lineage alone does not tell it: an epoch gets there with its first byte, and leaves when that is cut.
"""

from dittomq.commitlog.disk.side_file import load, save
from dittomq.commitlog.disk.storage import Storage
from dittomq.offsets import Epoch

_NAME = "heard"
_KIND = b"HEAR"


def load_heard(storage: Storage) -> Epoch:
    """What was written down, 0 when nothing was. Raises DamagedSideFile."""
    found = load(storage, _NAME, _KIND)
    return Epoch(0) if found is None else Epoch(int(found))


def save_heard(storage: Storage, epoch: Epoch) -> None:
    """Write it down, durably."""
    save(storage, _NAME, _KIND, str(int(epoch)).encode())
