"""Digest files of small logs, and their comparison."""

from pathlib import Path

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.compare import Comparison, Side, compare
from dittomq.commitlog.offline.digest_codec import from_bytes, to_bytes
from dittomq.commitlog.offline.store_digest import Range, StoreDigest, digest_store

SEGMENT = 512 * 1024


def digest(store: Path, asked: Range | None = None) -> StoreDigest:
    return digest_store(OsStorage(store), str(store), asked)  # real files are what is tested


def compared(first: Path, second: Path, asked: Range | None = None) -> Comparison:
    sides = [Side(name, from_bytes(to_bytes(digest(store, asked)), name)) for name, store in (("A", first), ("B", second))]
    return compare(*sides)


def written(data: bytes | bytearray, folder: Path, segments: range | None = None) -> Path:
    (folder / "commitlog").mkdir(parents=True)
    for number in segments or range(-(-len(data) // SEGMENT) + 1):
        piece = bytes(data[number * SEGMENT : (number + 1) * SEGMENT]).ljust(SEGMENT, b"\0")
        (folder / "commitlog" / f"{number * SEGMENT:020d}").write_bytes(piece)
    return folder


def damage(store: Path, position: int, data: bytes) -> None:
    with (store / "commitlog" / f"{position - position % SEGMENT:020d}").open("r+b") as file:
        file.seek(position % SEGMENT)
        file.write(data)
