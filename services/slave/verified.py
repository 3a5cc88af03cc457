"""Up to where this copy was proven equal to its master's, kept over restarts in `dittomq/verified-equal`."""

from dittomq.commitlog.disk.storage import Storage, read_file, replace_file
from dittomq.offsets import PhysicalOffset

PATH = "dittomq/verified-equal"


def load_verified(storage: Storage, end: PhysicalOffset) -> PhysicalOffset:
    """What was written down, at most the log's `end`; 0 when nothing legible was: then everything is compared anew."""
    if not storage.exists(PATH):
        return PhysicalOffset(0)
    text = read_file(storage, PATH)
    return PhysicalOffset(min(int(text), end)) if text.isdigit() else PhysicalOffset(0)


def save_verified(storage: Storage, end: PhysicalOffset) -> None:
    """Write it down, durably."""
    replace_file(storage, PATH, str(int(end)).encode())
