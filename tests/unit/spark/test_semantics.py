"""Reading one copy record by record, in slices of any size."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dittomq.commitlog.records.record_scanner import HEADER_BYTES, View
from spark.audit.model import Bounds, Records, Slice
from spark.audit.semantics import Joined, check, join, missing_tail
from tests.support.foreign_records import foreign_record
from tests.support.stores import draft
from tests.support.synthetic_log import SyntheticLog

SEGMENT = 256 * 1024


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(5), 2_000)


def read_in_slices(data: bytes, slice_bytes: int, sealed_from: int = 0) -> Joined:
    bounds = Bounds(0, len(data), sealed_from)
    parts = []
    for start in range(0, len(data), slice_bytes):
        segment = start - start % SEGMENT
        end = min(start + slice_bytes, len(data))
        part = Slice("a", start, end, segment, segment + SEGMENT)
        view = View(data[start:end], start, segment + SEGMENT)
        while (more := missing_tail(view, part, bounds)) is not None:
            view = view._replace(data=view.data + data[slice(*more)])
        checked = check("a/0", view, part, bounds)
        parts.append((part, Records("a/0", *checked, rehashed=0, rehash_equal=True)))
    return join(bounds, parts)


@pytest.mark.parametrize("slice_bytes", [1_024, 4_096, 16_384, 65_536, SEGMENT])
def test_every_record_is_counted_once_whatever_the_slices(log: SyntheticLog, slice_bytes: int) -> None:
    assert read_in_slices(bytes(log.data), slice_bytes) == Joined(len(log.records), 6, 2, ())


@pytest.mark.tier("test")
@settings(max_examples=60)
@given(data=st.data(), slice_bytes=st.sampled_from([4_096, 65_536, SEGMENT]))
def test_a_flipped_byte_in_any_record_is_damage_in_that_record(log: SyntheticLog, data: st.DataObject, slice_bytes: int) -> None:
    record = data.draw(st.sampled_from(log.records))
    position = data.draw(st.integers(record.start, record.end - 1))
    damaged = bytearray(log.data)
    damaged[position] ^= data.draw(st.integers(1, 255))

    found = read_in_slices(bytes(damaged), slice_bytes).damaged

    assert found
    assert all(record.start <= each.start and each.end <= max(record.end, record.start + 1) for each in found)


def test_a_size_that_reaches_beyond_the_slice_damages_no_record_behind_it(log: SyntheticLog) -> None:
    record = next(each for each in log.records if each.start == 89_435)
    damaged = bytearray(log.data)
    damaged[record.start + 1] ^= 1  # 65,536 bytes more, and all that it reaches over is fetched

    (found,) = read_in_slices(bytes(damaged), 4_096).damaged

    assert (found.start, found.end) == (record.start, record.end)


def test_damage_that_ends_right_before_a_slice_does_costs_the_next_record_nothing(log: SyntheticLog) -> None:
    record = next(each for each in log.records if each.end % 4_096 > 4_096 - HEADER_BYTES)
    damaged = bytearray(log.data)
    damaged[record.start] ^= 1  # the size; the next record's header reaches beyond the slice

    (found,) = read_in_slices(bytes(damaged), 4_096).damaged

    assert (found.start, found.end) == (record.start, record.end)


def test_damage_that_ends_right_behind_a_slice_ends_where_the_next_record_begins(log: SyntheticLog) -> None:
    record = next(each for each in log.records if 0 < each.end % 4_096 < HEADER_BYTES)
    damaged = bytearray(log.data)
    damaged[record.start] ^= 1  # the size; the slice reads a header's length further, and the next record's ends behind that

    (found,) = read_in_slices(bytes(damaged), 4_096).damaged

    assert (found.start, found.end) == (record.start, record.end)


def test_a_size_that_reaches_some_bytes_too_far_costs_the_next_record_nothing(log: SyntheticLog) -> None:
    record = next(each for each in log.records if 0 < each.end % 4_096 < HEADER_BYTES)
    damaged = bytearray(log.data)
    damaged[record.start + 3] += 1  # the slice reads that far, and not yet all of the next record's header

    (found,) = read_in_slices(bytes(damaged), 4_096).damaged

    assert (found.start, found.end) == (record.start, record.end)


@pytest.mark.parametrize("zeros", [0, 4_096], ids=["the record", "and what comes behind it"])
def test_a_size_that_reaches_beyond_the_cut_hides_no_damage_behind_it(log: SyntheticLog, zeros: int) -> None:
    record = next(each for each in log.records if each.start // 4_096 < each.end // 4_096 and each.end % 4_096 > HEADER_BYTES)
    damaged = bytearray(log.data[: next(each.end for each in log.records if each.end > 60_000)])
    damaged[record.start + 1] ^= 1  # 65,536 bytes more
    end = next(each.start for each in log.records if each.start >= record.end + zeros)
    damaged[record.end : end] = bytes(end - record.end)

    found = [each for each in read_in_slices(bytes(damaged), 4_096).damaged if each.start < each.end]

    assert (found[0].start, found[-1].end) == (record.start, end)
    assert [each.end for each in found[:-1]] == [each.start for each in found[1:]]


def test_no_more_is_asked_for_than_a_node_gives_whatever_a_size_says(log: SyntheticLog) -> None:
    record = next(each for each in log.records if each.start < 4_096 < each.end)
    damaged = bytearray(log.data[:4_096])
    damaged[record.start] = 0x08  # 128 MiB
    part = Slice("a", 0, 4_096, 0, 1 << 30)

    more = missing_tail(View(bytes(damaged), 0, 1 << 30), part, Bounds(0, 1 << 30, 0))

    assert more == (4_096, 4_096 + HEADER_BYTES)


def test_record_that_begins_in_the_last_bytes_of_a_slice_is_read(log: SyntheticLog) -> None:
    """No other one is in the slice."""
    for slice_bytes in range(64, 1_024, 64):
        assert read_in_slices(bytes(log.data[:65_536]), slice_bytes).records == sum(each.end <= 65_536 for each in log.records)


def test_damage_of_many_slices_is_one_damage_and_told_whole(log: SyntheticLog) -> None:
    first, last = log.records[50], next(each for each in log.records if each.start > log.records[50].start + 5 * 4_096)
    damaged = bytearray(log.data)
    damaged[first.start : last.end] = bytes(last.end - first.start)

    (found,) = (each for each in read_in_slices(bytes(damaged), 4_096).damaged if each.start < each.end)

    assert (found.start, found.end) == (first.start, last.end)


def test_a_record_that_is_left_out_is_a_gap_in_its_queue() -> None:
    whole = SyntheticLog(SEGMENT).fill(random.Random(5), 20)
    whole.offsets["orders", 0] = whole.offsets.get(("orders", 0), 0) + 1
    whole.append("orders", 0, b"after the gap")

    (found,) = read_in_slices(bytes(whole.data), SEGMENT).damaged

    assert found.start == whole.records[-1].start
    assert "queue 0 of orders goes on at offset" in found.problem


def test_a_last_record_that_is_cut_off_is_damage() -> None:
    log = SyntheticLog(SEGMENT).fill(random.Random(5), 20)

    found = read_in_slices(bytes(log.data[:-5]), SEGMENT).damaged

    assert [each.start for each in found] == [log.records[-1].start]


@pytest.mark.parametrize(("topic", "queue", "offset"), [("a/b", 0, 1), ("orders", -1, 1), ("orders", 0, -1)])
def test_a_record_that_no_queue_can_hold_is_damage_as_for_a_node(topic: str, queue: int, offset: int) -> None:
    first = foreign_record(draft(), 0, 0)
    nowhere = foreign_record(draft(topic, queue), offset, len(first))
    last = foreign_record(draft(), 2, len(first) + len(nowhere))

    (found,) = read_in_slices(first + nowhere + last, SEGMENT, sealed_from=SEGMENT).damaged

    assert (found.start, found.end) == (len(first), len(first) + len(nowhere))
    assert found.problem.startswith(f"it names topic {topic.encode()!r}, queue {queue}")
