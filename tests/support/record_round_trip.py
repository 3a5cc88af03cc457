"""Records of a store, read into their fields and written again from them."""

from collections.abc import Iterable
from pathlib import Path

from dittomq.commitlog.offline.open_store import Item
from dittomq.commitlog.records.encoding import encode


def not_written_again(store: Path, found: Iterable[Item]) -> list[int]:
    """Where records lie that come out otherwise than they stand in the log."""
    return [item.start for item in found if item.record is not None and encode(item.record) != _bytes(store, item.start, item.end)]


def _bytes(store: Path, start: int, end: int) -> bytes:
    *_, segment = (path for path in sorted((store / "commitlog").iterdir()) if int(path.name) <= start)
    with segment.open("rb") as file:
        file.seek(start - int(segment.name))
        return file.read(end - start)
