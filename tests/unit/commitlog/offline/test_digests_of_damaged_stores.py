"""Digest files of stores that are rotten through and through, or on a disk that does not give them twice."""

import errno
import json
import random
from itertools import permutations
from pathlib import Path
from typing import cast

import pytest
import xxhash

from dittomq.cli.digests import digest_line
from dittomq.commitlog.disk.storage import File, OsStorage
from dittomq.commitlog.offline import store_digest
from dittomq.commitlog.offline.compare import Comparison, Side, StoreComparison, compare
from dittomq.commitlog.offline.digest_codec import from_bytes, to_bytes
from dittomq.commitlog.offline.store_digest import Range, StoreDigest, digest_store
from dittomq.commitlog.records.format import mark
from tests.support.foreign_records import foreign_record
from tests.support.stores import draft
from tests.support.synthetic_log import SyntheticLog
from tests.unit.commitlog.offline.digest_files import SEGMENT, compared, damage, digest, written

MOST = 10
GARBAGE = b"\xee" * 16


@pytest.fixture(autouse=True)
def few_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_digest, "MAX_DAMAGED", MOST)


def rotten(segments: int, ranges: int) -> tuple[bytes, list[Range]]:
    """A log with so many stretches in each segment that hold no record, one behind each record but the last; and those stretches."""
    log, found = bytearray(), []
    for number in range(segments):
        for at in range(ranges + 1):
            log += foreign_record(draft(), at, len(log))
            if at < ranges:
                found.append(Range(len(log), len(log) + len(GARBAGE)))
                log += GARBAGE
        if number < segments - 1:
            remaining = SEGMENT - len(log) % SEGMENT
            log += mark(remaining).ljust(remaining, b"\0")
    return bytes(log), found


@pytest.mark.parametrize("ranges", [3, 4, 7, 40])
def test_only_the_first_stretches_without_a_record_are_named_and_the_rest_is_counted(tmp_path: Path, ranges: int) -> None:
    log, found = rotten(3, ranges)
    behind = log + GARBAGE + foreign_record(draft(), 0, len(log) + len(GARBAGE)).replace(b"body", b"torn")  # so the log ends before it

    made = digest(written(behind, tmp_path / "a"))

    assert made.end == len(log)
    assert made.damaged == tuple(found[:MOST])
    assert made.damaged_left_out == max(0, len(found) - MOST)
    assert from_bytes(to_bytes(made), "a.dmd") == made


def test_what_is_not_named_is_said_and_compared_all_the_same(tmp_path: Path) -> None:
    log, found = rotten(2, 40)
    first, second = written(log, tmp_path / "a"), written(log, tmp_path / "b")

    equal = compared(first, second)
    damage(second, found[-1].start, b"other")
    different = compared(first, second)

    assert equal.outcome is StoreComparison.PASS
    assert sum("A has no readable record" in line for line in equal.normal) == MOST + 1
    assert f"A has no readable record in {80 - MOST} more places behind byte {found[MOST - 1].end:,}" in " ".join(equal.normal)
    assert different.outcome is StoreComparison.DIFFERS
    assert different.differing[0].start <= found[-1].start < different.differing[0].end


def test_a_file_of_before_this_was_counted_is_read() -> None:
    made = StoreDigest("dittomq", SEGMENT, 0, 9, 1 << 20, None, (), (Range(3, 5),), ())

    body = json.loads(to_bytes(made))
    del body["damaged_left_out"], body["check"]
    check = xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())

    assert from_bytes(json.dumps({**body, "check": check}).encode(), "old.dmd") == made


class ReadOnce:
    """A door to a disk that gives the bytes of one file once, or not at all, or `reads_left` times."""

    def __init__(self, folder: Path, path: str, *, never: bool = False) -> None:
        self._storage = OsStorage(folder)
        self._path = path
        self.was_read = never
        self.reads_left = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        file = self._storage.open(path, create=create, readonly=readonly)
        return cast("File", FileReadOnce(file, self)) if path == self._path else file


class FileReadOnce:
    def __init__(self, file: File, door: ReadOnce) -> None:
        self._file = file
        self._door = door
        self._may = not door.was_read

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        self._door.reads_left -= 1
        if not self._may and self._door.reads_left < 0:
            raise OSError(errno.EIO, "Input/output error")
        self._door.was_read = True
        return self._file.pread(length, offset)


@pytest.mark.parametrize("number", [0, 2], ids=["the first", "the newest"])
def test_a_segment_that_the_disk_gave_once_only_is_unreadable_and_no_end_of_the_log(tmp_path: Path, number: int) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 4_000).data[: int(2.5 * SEGMENT)]
    first, second = (written(log, tmp_path / name) for name in "ab")
    door = ReadOnce(second, f"commitlog/{number * SEGMENT:020d}")

    result = compare(Side("A", digest(first)), Side("B", digest_store(door, "b")))  # type: ignore[arg-type]

    assert result.outcome is StoreComparison.INCOMPLETE, result.headline
    assert "Input/output error" in result.problems[0]


@pytest.mark.parametrize("never", [False, True], ids=["at the second look", "at all"])
@pytest.mark.parametrize(
    ("ends", "longer"), [(1.5, "B"), (2.2, ""), (2.5, ""), (3.5, "A")], ids=["before it", "in it", "where the other does", "behind it"]
)
def test_where_a_log_ends_whose_newest_segment_the_disk_does_not_give_is_not_known(
    tmp_path: Path, ends: float, longer: str, never: bool
) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 4_000).data
    first, second = written(log[: int(ends * SEGMENT)], tmp_path / "a"), written(log[: int(2.5 * SEGMENT)], tmp_path / "b")
    unread = digest_store(ReadOnce(second, f"commitlog/{2 * SEGMENT:020d}", never=never), "b")  # type: ignore[arg-type]

    for sides in permutations((Side("A", digest(first)), Side("B", unread))):
        result = compare(*sides)

        told = [line.split(" at least ")[0] for line in result.normal if "holds" in line]
        assert result.outcome is StoreComparison.INCOMPLETE, result.headline
        assert [line for line in result.problems if "where its log ends is not known" in line] == list(result.problems[:1])
        assert told == ([f"{longer} holds"] if longer else [])


def test_common_range_is_compared_despite_unreadable_bytes_beside_it(tmp_path: Path) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 4_000).data[: int(3.5 * SEGMENT)]
    first, second = (written(log, tmp_path / name) for name in "ab")
    asked = Range(0, 10_000)
    unread = digest_store(ReadOnce(second, f"commitlog/{2 * SEGMENT:020d}", never=True), "b", asked)  # type: ignore[arg-type]

    result = compare(Side("A", digest(first, asked)), Side("B", unread))

    assert result.outcome is StoreComparison.PASS, result.headline


def test_a_segment_made_ahead_that_the_disk_does_not_give_makes_nothing_newer(tmp_path: Path) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 4_000).data[: int(1.5 * SEGMENT)]
    first, second = (written(log, tmp_path / name) for name in "ab")
    unread = digest_store(ReadOnce(second, f"commitlog/{2 * SEGMENT:020d}", never=True), "b")  # type: ignore[arg-type]

    result = compare(Side("A", digest(first)), Side("B", unread))

    assert (result.outcome, result.differing, result.normal) == (StoreComparison.INCOMPLETE, (), ())
    assert f"3 segments of which 1 could not be read, whole records up to {digest(first).end:,} " in digest_line(unread, "b")


def test_a_segment_that_the_disk_ceases_to_give_is_named_once(tmp_path: Path) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 1_500)
    store = written(log.data, tmp_path / "a")
    asked = Range(log.records[300].start, log.records[310].end)
    unread = []

    for reads in range(30):
        door = ReadOnce(store, f"commitlog/{0:020d}", never=True)
        door.reads_left = reads
        made = digest_store(door, "a", asked)  # type: ignore[arg-type]
        assert from_bytes(to_bytes(made), "a.dmd") == made
        unread.append([each.start for each in made.segments if each.unreadable])

    assert ([0] in unread, unread[-1]) == (True, [])


def test_replica_that_ends_before_a_range_of_its_segment_does_not_differ(tmp_path: Path) -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(3), 400)
    end = log.records[100].start
    first, second = written(log.data, tmp_path / "a"), written(log.data[:end], tmp_path / "b")
    asked = Range(log.records[200].start, log.records[220].end)

    results: list[Comparison] = [compared(first, second, asked), compared(second, first, asked)]

    for each in results:
        assert (each.outcome, each.differing) == (StoreComparison.INCOMPLETE, ())
        assert any("newer bytes" in line for line in each.normal)
