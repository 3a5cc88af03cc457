"""Segment files of the log: names, sizes, and what may not stand beside them."""

import contextlib
import functools
from collections.abc import Mapping, Sequence

from dittomq.commitlog.disk.storage import Storage
from dittomq.errors import StoreOpenFailed

FOLDER = "commitlog"
NAME_DIGITS = 20


def name_of(start: int) -> str:
    """The file that begins at byte `start`; consume queues name theirs alike."""
    return f"{start:0{NAME_DIGITS}d}"


@functools.lru_cache(maxsize=1024)
def path_of(start: int) -> str:
    """The segment that begins at byte `start`, in the data directory."""
    return f"{FOLDER}/{name_of(start)}"


def starts_of(store: str, names: Sequence[str]) -> list[int]:
    """Where the segments begin, lowest first. Raises StoreOpenFailed for a file that is none."""
    for name in names:
        if len(name) != NAME_DIGITS or not name.isascii() or not name.isdigit():
            raise StoreOpenFailed(store, f'"{name}" in {FOLDER}/ is no segment; move it away')
    return sorted(int(name) for name in names)


def sizes_of(storage: Storage, store: str, *, readonly: bool = False) -> dict[int, int]:
    """Bytes of each segment that is there, by its start, lowest first. Raises StoreOpenFailed for a file that is none.

    OSError for one that cannot be opened: that says nothing of its bytes, which later count as damaged where they cannot be read.
    """
    sizes = {}
    for start in starts_of(store, storage.list_folder(FOLDER)):
        with contextlib.closing(storage.open(path_of(start), readonly=readonly)) as file:
            sizes[start] = file.size()
    return sizes


def without_unmade(sizes: Mapping[int, int]) -> dict[int, int]:
    """Leave out a last segment of no bytes: RocketMQ was killed while it made it. `sizes` by start, in order."""
    last = max(sizes, default=None)
    return {start: size for start, size in sizes.items() if size or start != last}


def segments_of(storage: Storage, store: str) -> tuple[tuple[int, ...], int]:
    """Where the segments of a store that nobody opens begin, lowest first, and how many bytes each has: those that can be read as one log.

    Raises StoreOpenFailed when there are none, or of different sizes.
    """
    found = sizes_of(storage, store, readonly=True)
    sizes = without_unmade(found)
    if not sizes:
        raise StoreOpenFailed(store, f"{FOLDER}/ holds no segment{' with bytes' if found else ''}; name the folder that holds {FOLDER}/")
    if len(set(sizes.values())) > 1 or 0 in sizes.values():
        listed = ", ".join(f"{size:,}" for size in sorted(set(sizes.values())))
        raise StoreOpenFailed(store, f"its segments have different or no sizes ({listed} bytes); it was cut short or is being copied")
    return tuple(sizes), next(iter(sizes.values()))


def check_sizes(store: str, sizes: Mapping[int, int], segment_bytes: int) -> None:
    """Refuse segments of another size than configured, and a hole between them. `sizes` by start, in order."""
    expected = min(sizes, default=0)
    if expected % segment_bytes:
        raise StoreOpenFailed(
            store,
            f"{path_of(expected)} does not begin at a multiple of segment_bytes ({segment_bytes:,}); configure the size it was made with",
        )
    for start, size in sizes.items():
        if size != segment_bytes and segment_bytes in sizes.values():
            whole = f"others have {segment_bytes:,}; bring it back whole, or empty the data_dir to copy all from the group"
            raise StoreOpenFailed(store, f"{path_of(start)} has {size:,} bytes, {whole}")
        if size != segment_bytes:
            raise StoreOpenFailed(
                store, f"{path_of(start)} has {size:,} bytes and segment_bytes is {segment_bytes:,}; configure the size it was made with"
            )
        if start != expected:
            raise StoreOpenFailed(
                store, f"{path_of(expected)} is missing between others; bring it back, or empty the data_dir to copy all from the group"
            )
        expected += segment_bytes
