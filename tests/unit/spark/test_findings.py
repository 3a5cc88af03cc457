"""Findings: from differing bytes to the message, the kind of damage and the copy that is wrong."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark.audit.findings import explain, merge, window_of
from spark.audit.model import Bounds, DamageKind, Finding, Leaf, Slice
from tests.support.synthetic_log import SyntheticLog

LEAF = 1024 * 1024
SEGMENT = 4 * LEAF
NEVER = 2**63 - 1


def findings_of(copies: dict[str, bytes], segment_bytes: int = SEGMENT, sealed_from: int = 0) -> tuple[list[Finding], int]:
    """All findings over every differing leaf, merged as a run does."""
    end = len(next(iter(copies.values())))
    bounds = Bounds(0, end, sealed_from)
    found: list[Finding] = []
    ignored = 0
    for start in range(0, end, LEAF):
        stop = min(start + LEAF, end)
        if len({data[start:stop] for data in copies.values()}) == 1:
            continue
        segment = start - start % segment_bytes
        leaf = Leaf(Slice("a", start, stop, segment, segment + segment_bytes), start, stop)
        window = window_of(leaf, bounds)
        explained = explain(leaf, window, {node: data[window.start : window.end] for node, data in copies.items()}, bounds)
        found += explained.findings
        ignored += explained.ignored
    return list(merge(found)), ignored


@pytest.fixture(scope="module")
def log() -> SyntheticLog:
    return SyntheticLog(SEGMENT).fill(random.Random(7), 12_000)


def three(log: SyntheticLog, damaged: bytes | bytearray) -> dict[str, bytes]:
    whole = bytes(log.data)
    return {"a/0": whole, "a/1": whole, "a/2": bytes(damaged)}


@pytest.mark.tier("test")
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_is_named_exactly_with_its_message_and_copy(log: SyntheticLog, data: st.DataObject) -> None:
    record = data.draw(st.sampled_from(log.records))
    position = data.draw(st.integers(record.start, record.end - 1))
    flip = data.draw(st.integers(1, 255))
    node = data.draw(st.sampled_from(["a/0", "a/1", "a/2"]))
    damaged = bytearray(log.data)
    damaged[position] ^= flip
    copies = {**three(log, log.data), node: bytes(damaged)}

    (finding,), ignored = findings_of(copies)

    assert ignored == 0
    assert (finding.node, finding.first, finding.end, finding.differing) == (node, position, position + 1, 1)
    assert finding.message is not None
    named = (finding.message.topic, finding.message.queue, finding.message.queue_offset)
    assert named == (record.topic, record.queue, record.queue_offset)
    assert finding.message.keys == (f"k-{record.queue_offset}",)
    expected = DamageKind.CORRUPT_HEADER if position < record.body_start else DamageKind.CORRUPT_PROPERTIES
    assert finding.kind is (DamageKind.CORRUPT_BODY if record.body_start <= position < record.body_end else expected)


@pytest.mark.tier("test")
@settings(max_examples=40, deadline=None)
@given(start=st.integers(0, 5 * LEAF), length=st.integers(1, 3 * LEAF), seed=st.integers(0, 2**32))
def test_overwritten_stretches_begin_and_end_exactly_where_bytes_differ(log: SyntheticLog, start: int, length: int, seed: int) -> None:
    damaged = bytearray(log.data)
    stop = min(len(damaged), start + length)
    damaged[start:stop] = random.Random(seed).randbytes(stop - start)
    differing = [at for at in range(start, stop) if damaged[at] != log.data[at]]
    if not differing:
        return

    found, ignored = findings_of(three(log, damaged))

    assert {finding.node for finding in found} <= {"a/2"}
    assert sum(finding.differing for finding in found) + ignored == len(differing)
    if not ignored:
        assert (found[0].first, found[-1].end) == (differing[0], differing[-1] + 1)
        touched = [record for record in log.records if any(record.start <= at < record.end for at in (differing[0], differing[-1]))]
        assert sum(finding.messages for finding in found) >= len(touched)


def test_two_copies_are_judged_by_the_record_checksum(log: SyntheticLog) -> None:
    record = log.records[4_000]
    damaged = bytearray(log.data)
    damaged[record.body_start] ^= 1

    (finding,), _ = findings_of({"a/0": bytes(damaged), "a/1": bytes(log.data)})

    assert finding.node == "a/0"
    assert finding.whole_on == ("a/1",)
    assert "its checksum does not match the body" in finding.blame


def test_copy_whose_record_fits_in_no_queue_is_wrong_without_a_checksum(log: SyntheticLog) -> None:
    """It is one of two copies."""
    record = log.records[4_000]
    damaged = bytearray(log.data)
    damaged[record.start + 20] ^= 0x80  # the sign of its queue offset

    (finding,), _ = findings_of({"a/0": bytes(damaged), "a/1": bytes(log.data)}, sealed_from=NEVER)

    assert (finding.node, finding.whole_on) == ("a/0", ("a/1",))
    assert "it names topic" in finding.blame


def test_without_checksum_and_majority_no_copy_is_blamed(log: SyntheticLog) -> None:
    record = log.records[4_000]
    damaged = bytearray(log.data)
    damaged[record.body_end + 10] ^= 1  # in the properties, which no body checksum covers

    (finding,), _ = findings_of({"a/0": bytes(damaged), "a/1": bytes(log.data)}, sealed_from=NEVER)

    assert finding.node == ""
    assert finding.first == record.body_end + 10


def test_without_checksum_the_majority_decides(log: SyntheticLog) -> None:
    record = log.records[4_000]
    damaged = bytearray(log.data)
    damaged[record.body_end + 10] ^= 1

    (finding,), _ = findings_of(three(log, damaged), sealed_from=NEVER)

    assert finding.node == "a/2"
    assert "2 of 3 copies agree" in finding.blame


def test_zeros_in_the_middle_are_a_gap_and_zeros_up_to_the_cut_a_missing_tail(log: SyntheticLog) -> None:
    gap = bytearray(log.data)
    gap[200_000:200_512] = bytes(512)
    tail = bytearray(log.data)
    tail[len(tail) - 1_500_000 :] = bytes(1_500_000)

    (in_the_middle,), _ = findings_of(three(log, gap))
    at_the_end, _ = findings_of(three(log, tail))

    assert in_the_middle.kind is DamageKind.GAP_ZERO
    assert [finding.kind for finding in at_the_end] == [DamageKind.MISSING_TAIL]


def test_another_whole_record_in_its_place_is_divergence_not_damage() -> None:
    one, other = SyntheticLog(SEGMENT).fill(random.Random(1), 400), SyntheticLog(SEGMENT).fill(random.Random(1), 400)
    for log, letter in ((one, b"x"), (other, b"y")):
        for _ in range(100):
            log.append("orders", 0, letter * 300)

    (finding,), _ = findings_of({"a/0": bytes(one.data), "a/1": bytes(one.data), "a/2": bytes(other.data)})

    assert finding.kind is DamageKind.DIVERGED
    assert finding.node == "a/2"
    assert finding.first == one.records[400].start + 8  # size and magic are equal, the body's checksum is not
    assert finding.messages == 100


def test_bytes_behind_an_end_of_file_mark_are_no_difference(log: SyntheticLog) -> None:
    first_of_next = next(record for record in log.records if record.start >= SEGMENT)
    last_before = max((record for record in log.records if record.end <= SEGMENT), key=lambda record: record.end)
    assert first_of_next.start == SEGMENT
    damaged = bytearray(log.data)
    damaged[SEGMENT - 1] = 7
    assert last_before.end + 8 < SEGMENT

    assert findings_of(three(log, damaged)) == ([], 1)


def test_a_damaged_end_of_file_mark_is_found(log: SyntheticLog) -> None:
    last_before = max((record for record in log.records if record.end <= SEGMENT), key=lambda record: record.end)
    damaged = bytearray(log.data)
    damaged[last_before.end + 5] ^= 255

    (finding,), _ = findings_of(three(log, damaged))

    assert (finding.kind, finding.node, finding.first) == (DamageKind.CORRUPT_MARK, "a/2", last_before.end + 5)
