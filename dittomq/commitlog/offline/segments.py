"""The segments of a store that nobody opens: those that can be read as one log."""

from typing import NamedTuple

from dittomq.commitlog.disk.segment import FOLDER, without_unmade
from dittomq.commitlog.disk.segment_files import sizes_of
from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import UnreadableStore


class Segments(NamedTuple):
    """Where they begin, lowest first, at least one; and how many bytes each has."""

    starts: tuple[int, ...]
    bytes_each: int


def segments_of(storage: Storage, store: str) -> Segments:
    """What `store` holds. Raises UnreadableStore when that is nothing, or of different sizes."""
    found = sizes_of(storage, store, readonly=True)
    sizes = without_unmade(found)
    if not sizes:
        raise UnreadableStore(store, f"{FOLDER}/ holds no segment{' with bytes' if found else ''}; name the folder that holds {FOLDER}/")
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        listed = ", ".join(f"{size:,}" for size in sorted(set(sizes.values())))
        raise UnreadableStore(store, f"its segments have different or no sizes ({listed} bytes); it was cut short or is being copied")
    return Segments(tuple(sizes), next(iter(sizes.values())))
