"""Digest files and their comparison, on stores that RocketMQ wrote and on logs of our own."""

import random
from pathlib import Path

import pytest

from dittomq.commitlog.offline.compare import Side, StoreComparison, compare
from dittomq.commitlog.offline.digest_codec import from_bytes, to_bytes
from dittomq.commitlog.offline.store_digest import InvalidDigestFile, Range
from dittomq.errors import InvalidField, StoreOpenFailed
from tests.support import vectors
from tests.support.foreign_records import foreign_log
from tests.support.stores import draft
from tests.support.synthetic_log import SyntheticLog
from tests.unit.commitlog.offline.digest_files import SEGMENT, compared, damage, digest, written


def store_of(log: SyntheticLog, folder: Path, segments: range | None = None) -> Path:
    return written(log.data, folder, segments)


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(3), 4_000)


def test_the_one_leaf_that_differs_between_rocketmqs_own_copies_is_found(tmp_path: Path) -> None:
    stores = vectors.unpack("diverged-5.3.3", tmp_path)

    result = compared(stores / "master", stores / "slave")

    assert result.outcome is StoreComparison.DIFFERS
    assert result.differing_leaves == 1
    (found,) = result.differing
    assert found.start <= 1_319_112 < found.end
    assert found.start == 1_048_576
    assert result.next_command == f"dittomq log digest STORE --bytes {found.start:,}..{found.end:,} -o FILE"


def test_a_closer_look_names_the_record_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    stores = vectors.unpack("diverged-5.3.3", tmp_path)
    asked = Range(1_048_576, 1_572_864)

    result = compared(stores / "master", stores / "slave", asked)

    (record,) = result.records
    assert record.name.start == 1_318_151
    assert record.name.topic
    assert "B: its properties end in zeros: it is torn" in record.blame
    assert result.differing_leaves == 1
    assert result.differing[0].start <= 1_319_112 < result.differing[0].end
    assert result.next_command == ""


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", ["plain-5.3.3", "plain-4.9.7", "crc-5.3.3", "ipv6-5.3.3", "queues-5.3.3", "controller-5.3.3"])
def test_equal_copies_of_rocketmq_pass(name: str, tmp_path: Path) -> None:
    stores = vectors.unpack(name, tmp_path)

    result = compared(stores / "master", stores / "slave")

    assert result.outcome is StoreComparison.PASS, result.headline
    assert result.compared_bytes > 0


@pytest.mark.tier("test")
@pytest.mark.parametrize("name", ["killed-5.3.3", "killed-4.9.7"])
def test_a_slave_that_was_killed_inside_a_record_lags_and_does_not_differ(name: str, tmp_path: Path) -> None:
    stores = vectors.unpack(name, tmp_path)

    result = compared(stores / "master", stores / "slave")

    assert result.outcome is StoreComparison.PASS, result.headline
    assert any("newer bytes" in sentence for sentence in result.normal)


def test_equal_stores_pass_and_what_is_left_out_on_purpose_does_not_matter(log: SyntheticLog, tmp_path: Path) -> None:
    first, second = store_of(log, tmp_path / "a"), store_of(log, tmp_path / "b")
    damage(second, SEGMENT - 1, b"x")  # behind the end-of-file mark
    damage(second, len(log.data) + 5, b"rubbish")  # behind the last record

    result = compared(first, second)

    assert result.outcome is StoreComparison.PASS, result.headline
    assert result.compared_bytes > len(log.data) * 0.99


def test_a_flipped_byte_in_any_record_differs_in_its_leaf_only(log: SyntheticLog, tmp_path: Path) -> None:
    first, second = store_of(log, tmp_path / "a"), store_of(log, tmp_path / "b")
    record = log.records[2_000]
    for position in (record.start, record.start + 5, record.start + 30, record.body_start, record.end - 1):
        damage(second, position, bytes([log.data[position] ^ 0x11]))

        result = compared(first, second)

        assert [piece.start <= position < piece.end for piece in result.differing] == [True]
        damage(second, position, bytes([log.data[position]]))


def test_a_store_that_joined_late_is_compared_from_its_first_byte(log: SyntheticLog, tmp_path: Path) -> None:
    first, second = store_of(log, tmp_path / "a"), store_of(log, tmp_path / "b", range(2, -(-len(log.data) // SEGMENT)))

    result = compared(first, second)

    assert result.outcome is StoreComparison.PASS
    assert f"A holds {2 * SEGMENT:,} older bytes" in result.normal[0]


@pytest.mark.parametrize("goes_on", [True, False], ids=["the log goes on", "its mark is the newest it holds"])
@pytest.mark.parametrize("asked", [None, Range(SEGMENT, 2 * SEGMENT)], ids=["all", "a range"])
def test_a_copy_that_holds_records_where_the_other_one_has_ended_the_segment_differs(
    tmp_path: Path, goes_on: bool, asked: Range | None
) -> None:
    small, large = draft(body=b"b" * 10_000), draft(body=b"b" * 400_000)
    same = foreign_log([small] * 75, 0, SEGMENT)
    ended, filled = (foreign_log([small] * 75 + more, 0, SEGMENT) for more in ([large], [small] * 3))
    first = written(ended if goes_on else ended[: 2 * SEGMENT], tmp_path / "a")
    second = written(filled, tmp_path / "b")
    behind = written(same, tmp_path / "c")

    for result in compared(first, second, asked), compared(second, first, asked):
        assert result.outcome is StoreComparison.DIFFERS, result.headline
        assert any(piece.start <= len(same) < piece.end for piece in result.differing)
    for lagging in compared(first, behind, asked), compared(behind, second, asked):
        assert lagging.outcome is StoreComparison.PASS, lagging.headline


def test_a_segment_missing_in_the_middle_differs(log: SyntheticLog, tmp_path: Path) -> None:
    first, second = store_of(log, tmp_path / "a"), store_of(log, tmp_path / "b")
    (second / "commitlog" / f"{SEGMENT:020d}").unlink()

    result = compared(first, second)

    assert result.outcome is StoreComparison.DIFFERS
    assert result.differing[0].start == SEGMENT


def test_a_damaged_digest_file_is_not_a_damaged_store(log: SyntheticLog, tmp_path: Path) -> None:
    data = bytearray(to_bytes(digest(store_of(log, tmp_path / "a"))))
    at = data.index(b'"segments"') + 60
    data[at] = ord("A") if data[at] != ord("A") else ord("B")

    with pytest.raises(InvalidDigestFile):
        from_bytes(bytes(data), "a.dmd")
    with pytest.raises(InvalidDigestFile):
        from_bytes(b"\xff\x00 not json", "a.dmd")


def test_files_made_with_different_ranges_are_refused(log: SyntheticLog, tmp_path: Path) -> None:
    store = store_of(log, tmp_path / "a")

    with pytest.raises(InvalidField, match="make both with the same"):
        compare(Side("A", digest(store)), Side("B", digest(store, Range(0, 100))))


def test_a_folder_without_a_log_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(StoreOpenFailed, match="commitlog"):
        digest(tmp_path)
