"""Segment files of the log: names, sizes, and what may not stand beside them. Pure."""

import functools
from collections.abc import Mapping, Sequence

from dittomq.errors import UnreadableStore

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
    """Where the segments begin, lowest first. Raises UnreadableStore for a file that is none."""
    for name in names:
        if len(name) != NAME_DIGITS or not name.isascii() or not name.isdigit():
            raise UnreadableStore(store, f'"{name}" in {FOLDER}/ is no segment; move it away')
    return sorted(int(name) for name in names)


def without_unmade(sizes: Mapping[int, int]) -> dict[int, int]:
    """Leave out a last segment of no bytes: RocketMQ was killed while it made it. `sizes` by start, in order."""
    last = max(sizes, default=None)
    return {start: size for start, size in sizes.items() if size or start != last}


def check_sizes(store: str, sizes: Mapping[int, int], segment_bytes: int) -> None:
    """Refuse segments of another size than configured, and a hole between them. `sizes` by start, in order."""
    expected = min(sizes, default=0)
    if expected % segment_bytes:
        raise UnreadableStore(
            store,
            f"{path_of(expected)} does not begin at a multiple of segment_bytes ({segment_bytes:,}); configure the size it was made with",
        )
    for start, size in sizes.items():
        if size != segment_bytes and segment_bytes in sizes.values():
            whole = f"others have {segment_bytes:,}; bring it back whole, or empty the data_dir to copy all from the group"
            raise UnreadableStore(store, f"{path_of(start)} has {size:,} bytes, {whole}")
        if size != segment_bytes:
            raise UnreadableStore(
                store, f"{path_of(start)} has {size:,} bytes and segment_bytes is {segment_bytes:,}; configure the size it was made with"
            )
        if start != expected:
            raise UnreadableStore(
                store, f"{path_of(expected)} is missing between others; bring it back, or empty the data_dir to copy all from the group"
            )
        expected += segment_bytes
