"""`log verify` of records of 1 KiB against a bare loop of `struct` and `zlib`, on one core, over the same store in the page cache.

The loop is what anybody would write: a segment is read, a header unpacked, its position compared, the body's checksum computed, the
topic decoded, the next record found by the size. It knows no queue and, where records carry two checksums, only the body's. Beside it
the same loop over a mapped segment, because to read large pieces into fresh memory has a price of its own, and one that checks both.
"""

import mmap
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from bench.ratios import Figure
from bench.store.stores import BATCH, BORN_MS, frames, lead, open_store
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.options import StoreOptions
from dittomq.commitlog.records.encoding import encode_draft
from dittomq.commitlog.records.format import CRC_BYTES, CRC_MASK, LENGTH_16, MARK_BYTES, Host, mark
from dittomq.commitlog.store import AppendBatch

_HEADER = struct.Struct(">iIIiiqqiq4siq4siiqi")
_SEAL = struct.Struct(">9s10ss")
_MAGIC = 0xDAA320A7
_HOST = Host(bytes((127, 0, 0, 1)), 10911)
_MIB = 1024 * 1024
# Two segments, nearly full: what lies behind the end of a log is another matter.
_SEGMENT_BYTES, _BATCHES = 256 * _MIB, 1_700
_QUICK = (2 * _MIB, 12)
_AT_LEAST = 2.5

Way = Callable[[Path], int]
"""Reads the store in a folder and counts its records."""


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Our records, with two checksums, and RocketMQ's, with one."""
    segment_bytes, batches = _QUICK if quick else (_SEGMENT_BYTES, _BATCHES)
    pairs = 1 if quick else 7
    made = frames(batches)
    ours, theirs = folder / "ours", folder / "theirs"
    _fill(ours, segment_bytes, made)
    read, mapped, sealed = partial(_read, seals=False), _mapped, partial(_read, seals=True)
    times = _alternate(ours, [_verify, read, sealed, mapped], pairs, batches * BATCH)
    figures = [
        _figure("verify, processor time", ours, (times[0], times[1]), 0, goal=_AT_LEAST),
        _figure("verify, by the clock", ours, (times[0], times[1]), 1, goal=_AT_LEAST),
        _figure("verify, floor checks both CRCs", ours, (times[0], times[2]), 0, goal=_AT_LEAST),
        _figure("verify, floor maps the file", ours, (times[0], times[3]), 0, goal=None),
    ]
    _lay_down(theirs, segment_bytes, made)
    times = _alternate(theirs, [_verify, read], pairs, batches * BATCH)
    return [*figures, _figure("verify, RocketMQ's records", theirs, (times[0], times[1]), 0, goal=_AT_LEAST)]


def _alternate(folder: Path, ways: Sequence[Way], pairs: int, records: int) -> list[list[tuple[float, float]]]:
    """For each way the seconds of its runs: of the processor, and by the clock."""
    times: list[list[tuple[float, float]]] = [[] for _ in ways]
    for pair in range(pairs + 1):
        for way, mine in zip(ways, times, strict=True):
            began, worked = time.perf_counter(), time.process_time()
            if way(folder) != records:
                raise RuntimeError(f"{way} did not see all {records:,} records")
            if pair > 0 or pairs == 1:  # the first one warms up
                mine.append((time.process_time() - worked, time.perf_counter() - began))
    return times


def _figure(
    name: str, folder: Path, times: tuple[list[tuple[float, float]], list[tuple[float, float]]], which: int, *, goal: float | None
) -> Figure:
    size = open_on_disk(OsStorage(folder), name).stop / _MIB
    ours, floor = ([size / each[which] for each in mine] for mine in times)
    return Figure(name, "MiB/s", ours, floor, at_least=goal)


def _fill(folder: Path, segment_bytes: int, made: Sequence[AppendBatch]) -> None:
    """A store as a master leaves it."""
    store = open_store(folder, StoreOptions(segment_bytes=segment_bytes))
    lead(store)
    for frame in made:
        store.append([frame], BORN_MS)
    store.dispatch(store.end)
    store.close(clean=True)


def _lay_down(folder: Path, segment_bytes: int, made: Sequence[AppendBatch]) -> None:
    """A store as RocketMQ leaves it, queues built by us."""
    (folder / "commitlog").mkdir(parents=True)
    for start, data in _unsealed(segment_bytes, made):
        with (folder / "commitlog" / f"{start:020d}").open("wb") as file:
            file.write(data)
            file.truncate(segment_bytes)
    store = open_store(folder, StoreOptions(segment_bytes=segment_bytes))
    store.dispatch(store.end)
    store.close(clean=True)


def _unsealed(segment_bytes: int, made: Sequence[AppendBatch]) -> Iterator[tuple[int, bytes]]:
    """Segments by their first byte, of the same messages in records without a record CRC."""
    start, data, offsets = 0, bytearray(), dict[int, int]()
    for draft in (draft for frame in made for draft in frame.drafts):
        offset = offsets.get(draft.queue, 0)
        record = bytearray(encode_draft(draft, offset, start + len(data), BORN_MS, host=_HOST)[:-CRC_BYTES])
        remaining = segment_bytes - len(data)
        if len(record) + MARK_BYTES > remaining:
            yield start, bytes(data + mark(remaining))
            start, data = start + segment_bytes, bytearray()
            record[28:36] = struct.pack(">q", start)
        struct.pack_into(">i", record, 0, len(record))
        LENGTH_16.pack_into(record, len(record) - len(draft.properties) - LENGTH_16.size, len(draft.properties))
        data += record
        offsets[draft.queue] = offset + 1
    yield start, bytes(data)


def _verify(folder: Path) -> int:
    report = verify(open_on_disk(OsStorage(folder), str(folder)))
    if not report.whole or report.undispatched or report.without_queue:
        raise RuntimeError(f"the store that was just made is not whole: {report.findings}")
    return report.records


def _read(folder: Path, *, seals: bool) -> int:
    return sum(_naive(path.read_bytes(), int(path.name), seals=seals) for path in _segments(folder))


def _mapped(folder: Path) -> int:
    records = 0
    for path in _segments(folder):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            records += _naive(data, int(path.name), seals=False)
    return records


def _segments(folder: Path) -> list[Path]:
    return sorted((folder / "commitlog").iterdir())


def _naive(data: bytes | mmap.mmap, base: int, *, seals: bool) -> int:
    """Count the records of a segment that are whole, as far as this looks; stops at the first that is not."""
    records = at = 0
    with memoryview(data) as view:
        while at + _HEADER.size <= len(view):
            size, magic, crc, _, _, _, position, _, _, _, _, _, _, _, _, _, body_bytes = _HEADER.unpack_from(view, at)
            body = at + _HEADER.size
            if magic != _MAGIC or position != base + at or zlib.crc32(view[body : body + body_bytes]) & CRC_MASK != crc:
                break
            if seals and not _sealed(view[at : at + size]):
                break
            topic = body + body_bytes
            str(view[topic + 1 : topic + 1 + view[topic]], "ascii")
            records += 1
            at += size
    return records


def _sealed(record: memoryview) -> bool:
    _, digits, _ = _SEAL.unpack_from(record, len(record) - CRC_BYTES)
    return int(digits[::-1]) == zlib.crc32(record[:-CRC_BYTES]) & CRC_MASK
