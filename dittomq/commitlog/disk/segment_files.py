"""The segment files that a store's folder holds."""

import contextlib

from dittomq.commitlog.disk.segment import FOLDER, path_of, starts_of
from dittomq.commitlog.disk.storage import Storage


def sizes_of(storage: Storage, store: str) -> dict[int, int]:
    """Bytes of each segment that is there, by its start, lowest first. Raises UnreadableStore for a file that is none."""
    sizes = {}
    for start in starts_of(store, storage.list_folder(FOLDER)):
        with contextlib.closing(storage.open(path_of(start), readonly=True)) as file:
            sizes[start] = file.size()
    return sizes
