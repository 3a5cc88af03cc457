"""`log verify` of records of 1 KiB against a bare loop that reads headers by `struct` and checks bodies by `zlib`, on one core.

The loop is what anybody would write: from record to record by the size in each, its position and its body's checksum compared. It
knows no record CRC, no topic and no queue. It reads a segment as a whole; a second one maps it, because to read large pieces into
fresh memory has a price that has nothing to do with records.
"""

import mmap
import struct
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from bench.ratios import Figure
from bench.store.stores import frames, lead, open_store
from dittomq.commitlog.inspect import open_on_disk
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.verifying import verify

_HEADER = struct.Struct(">iIIiiqqiq4siq4siiqi")
_MAGIC = 0xDAA320A7
_CRC_MASK = 0x7FFFFFFF
_MIB = 1024 * 1024
# Two segments, nearly full: what is behind the end is another matter.
_SEGMENT_BYTES, _BATCHES = 256 * _MIB, 1_700
_QUICK = (2 * _MIB, 12)
_AT_LEAST = 2.5


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Alternating runs over the same store in the page cache, by processor time and by the clock."""
    segment_bytes, batches = _QUICK if quick else (_SEGMENT_BYTES, _BATCHES)
    pairs = 1 if quick else 7
    records, size = _fill(folder, segment_bytes, batches)
    ways = (_ours, _read, _mapped)
    took: list[list[tuple[float, float]]] = [[], [], []]
    for pair in range(pairs + 1):
        for way, times in zip(ways, took, strict=True):
            began, worked = time.perf_counter(), time.process_time()
            if way(folder) != records:
                raise RuntimeError(f"{way.__name__} did not see all {records:,} records")
            if pair > 0 or quick:  # the first one warms up
                times.append((time.process_time() - worked, time.perf_counter() - began))
    (work, clock), (read_work, read_clock), (mapped_work, _) = (tuple(zip(*times, strict=True)) for times in took)
    return [
        _figure("log verify, processor time", size, (work, read_work), _AT_LEAST),
        _figure("log verify, by the clock", size, (clock, read_clock), _AT_LEAST),
        _figure("log verify, processor time, mapped floor", size, (work, mapped_work), None),
    ]


def _fill(folder: Path, segment_bytes: int, batches: int) -> tuple[int, int]:
    """Make the store, whole and dispatched; its records and bytes."""
    store = open_store(folder, StoreOptions(segment_bytes=segment_bytes))
    lead(store)
    made = frames(batches)
    for frame in made:
        store.append([frame], 1)
    store.dispatch(store.end)
    store.close(clean=True)
    return sum(len(frame.drafts) for frame in made), store.end


def _ours(folder: Path) -> int:
    report = verify(open_on_disk(OsStorage(folder), str(folder)))
    if not report.whole or report.undispatched or report.without_queue:
        raise RuntimeError(f"the store that was just made is not whole: {report.findings}")
    return report.records


def _read(folder: Path) -> int:
    return sum(_naive(path.read_bytes(), int(path.name)) for path in _segments(folder))


def _mapped(folder: Path) -> int:
    records = 0
    for path in _segments(folder):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            records += _naive(data, int(path.name))
    return records


def _segments(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def _naive(data: bytes | mmap.mmap, base: int) -> int:
    """Count the records of a segment that are whole, as far as this looks; stops at the first that is none."""
    records = at = 0
    with memoryview(data) as view:
        while at + _HEADER.size <= len(view):
            size, magic, crc, _, _, _, position, _, _, _, _, _, _, _, _, _, body_bytes = _HEADER.unpack_from(view, at)
            body = at + _HEADER.size
            if magic != _MAGIC or position != base + at or zlib.crc32(view[body : body + body_bytes]) & _CRC_MASK != crc:
                break
            records += 1
            at += size
    return records


def _figure(name: str, size: int, seconds: tuple[Sequence[float], Sequence[float]], goal: float | None) -> Figure:
    ours, floor = ([size / _MIB / each for each in times] for times in seconds)
    return Figure(name, "MiB/s", ours, floor, at_least=goal)
