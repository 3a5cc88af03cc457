"""The segment files that a store's folder holds."""

import contextlib

from dittomq.commitlog.disk.segment import FOLDER, path_of, starts_of
from dittomq.commitlog.disk.storage import Storage


def sizes_of(storage: Storage, store: str, *, readonly: bool = False) -> dict[int, int]:
    """Bytes of each segment that is there, by its start, lowest first. Raises UnreadableStore for a file that is none.

    OSError for one that cannot be opened: that says nothing of its bytes, which later count as damaged where they cannot be read.
    """
    sizes = {}
    for start in starts_of(store, storage.list_folder(FOLDER)):
        with contextlib.closing(storage.open(path_of(start), readonly=readonly)) as file:
            sizes[start] = file.size()
    return sizes
