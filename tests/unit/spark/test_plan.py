"""What an audit compares, and what makes it incomplete before a byte is read."""

from dataclasses import replace
from itertools import pairwise

from dittomq.copies import ReplicaDescription
from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion
from spark.audit.model import GroupPlan, GroupSurvey, Surveyed
from spark.audit.plan import SLICE_BYTES, changes, late, plan
from tests.support.synthetic_log import address

MIB = 1024 * 1024
SEGMENT = 100 * MIB


def held(node: str, *, low: int = 0, end: int = 0, confirmed: int | None = None) -> ReplicaDescription:
    epoch_history = (EpochEntry(Epoch(1), 0, 5, PhysicalOffset(0)),)
    known = PhysicalOffset(end if confirmed is None else confirmed)
    end_at = PhysicalOffset(end)
    role = "SYNC_MASTER" if node.endswith("/0") else "SLAVE"
    return ReplicaDescription(
        node, "c", node, role, epoch_history, 0, PhysicalOffset(low), end_at, end_at, known, SEGMENT, DataVersion(), "1"
    )


def planned(*copies: ReplicaDescription, expected: int | None = None) -> GroupPlan:
    nodes = tuple(Surveyed(address(copy.node), copy) for copy in copies)
    return plan(GroupSurvey("a", "c", nodes, len(copies) - 1 if expected is None else expected))


def test_the_cut_is_the_lowest_confirmed_end_that_a_copy_also_holds() -> None:
    found = planned(held("a/0", end=900), held("a/1", end=850, confirmed=900), held("a/2", end=900, confirmed=870))

    assert (found.bounds.low, found.bounds.cut, found.frontier) == (0, 850, 900)
    assert found.problems == ()
    assert {(part.node, part.size) for part in found.not_compared} == {("a/0", 50), ("a/2", 50)}


def test_slices_tile_what_is_compared_and_never_span_a_segment() -> None:
    slices = planned(held("a/0", end=250 * MIB + 7), held("a/1", end=250 * MIB + 7)).slices

    assert slices[0].start == 0
    assert slices[-1].end == 250 * MIB + 7
    assert all(one.end == other.start for one, other in pairwise(slices))
    for each in slices:
        assert each.segment_start <= each.start < each.end <= each.segment_end
        assert each.end - each.start <= SLICE_BYTES


def test_bytes_that_only_an_older_copy_holds_make_it_incomplete() -> None:
    found = planned(held("a/0", end=SEGMENT + 5), held("a/1", low=SEGMENT, end=SEGMENT + 5))

    assert (found.bounds.low, found.bounds.cut) == (SEGMENT, SEGMENT + 5)
    assert found.problems == (f"a/0: {SEGMENT:,} bytes older than the first byte of another copy",)


def test_an_empty_copy_of_a_full_group_is_incomplete_never_a_pass() -> None:
    found = planned(held("a/0", end=1_000), held("a/1", end=0))

    assert found.slices == ()
    assert found.problems == ("a/1 lacks 1,000 confirmed bytes: it is still catching up",)


def test_a_copy_that_knows_of_nothing_confirmed_is_incomplete() -> None:
    found = planned(held("a/0", end=1_000), held("a/1", end=1_000, confirmed=0))

    assert found.problems == ("a/1 knows of nothing confirmed beyond byte 0, others up to 1,000",)


def test_a_copy_far_behind_is_incomplete_and_one_in_flight_is_normal() -> None:
    far = planned(held("a/0", end=90 * MIB), held("a/1", end=10 * MIB))
    near = planned(held("a/0", end=90 * MIB), held("a/1", end=89 * MIB))

    assert len(far.problems) == 1
    assert near.problems == ()


def test_copies_without_confirmed_bytes_are_incomplete_and_empty_ones_pass() -> None:
    unconfirmed = planned(held("a/0", end=1_000, confirmed=0), held("a/1", end=1_000, confirmed=0))
    empty = planned(held("a/0"), held("a/1"))

    assert unconfirmed.problems == ("a: nothing is confirmed yet, so nothing can be compared",)
    assert empty.problems == ()


def test_segments_of_different_sizes_are_not_compared() -> None:
    found = planned(held("a/0", end=1_000), replace(held("a/1", end=1_000), segment_bytes=7))

    assert found.slices == ()
    assert "segments of different sizes" in found.problems[0]


def test_a_group_whose_size_nobody_tells_is_incomplete() -> None:
    nodes = (Surveyed(address("a/0"), held("a/0", end=10)),)

    assert plan(GroupSurvey("a", "c", nodes, None)).problems == ("not every node of a said how many copies there should be",)


def test_a_group_of_which_only_slaves_could_be_read_is_incomplete() -> None:
    gone = ("a: no master is among the copies that could be read, and it may hold what they lack",)
    two, both_slaves = planned(held("a/1", end=10), expected=0), planned(held("a/1", end=10), held("a/2", end=10), expected=1)

    assert (two.problems, both_slaves.problems) == (gone, gone)
    assert "a is configured with 3 copies and 2 are registered" in planned(held("a/1", end=10), held("a/2", end=10), expected=2).problems


def test_a_group_of_one_copy_has_nothing_wrong_with_it() -> None:
    assert planned(held("a/0", end=10)).problems == ()


def test_copy_that_lacks_what_was_confirmed_at_the_start_is_reported() -> None:
    """It does not get it during the run."""
    first = planned(held("a/0", end=1_000), held("a/1", end=900))
    address_of = {copy.node: copy.address for copy in first.copies}

    def said(*now: ReplicaDescription) -> list[str]:
        return late(first, tuple(Surveyed(address_of[copy.node], copy) for copy in now))

    assert first.problems == ()
    assert said(held("a/0", end=2_000), held("a/1", end=1_000)) == []
    assert said(held("a/0", end=2_000), held("a/1", end=900)) == [
        "a/1 still lacks 100 bytes at the end of the run that were confirmed at its start"
    ]
    assert said(held("a/0", end=2_000), held("a/1", end=2_000, confirmed=900)) == [
        "a/1 knows of nothing confirmed beyond byte 900 at the end of the run, others knew up to 1,000 at its start"
    ]


def test_what_happens_to_a_copy_during_the_run_is_said() -> None:
    before = held("a/0", end=1_000)
    node = Surveyed(address("a/0"), before)
    cases = {
        "another store": replace(before, replica_uuid="other"),
        "epoch changed": replace(before, epoch_history=(*before.epoch_history, EpochEntry(Epoch(2), 0, 6, PhysicalOffset(1_000)))),
        "cut or replaced": replace(before, generation=1),
        "first byte moved": replace(before, min_offset=PhysicalOffset(100)),
    }
    for words, now in cases.items():
        (found,) = changes((node,), (Surveyed(address("a/0"), now),))
        assert words in found
    assert changes((node,), (Surveyed(address("a/0"), replace(before, end=PhysicalOffset(2_000))),)) == []
    assert "did not answer at the end" in changes((node,), (Surveyed(address("a/0"), None, "gone"),))[0]
    assert "no longer registered" in changes((node,), ())[0]
