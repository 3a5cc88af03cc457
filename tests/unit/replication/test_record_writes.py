"""How a master writes the group record: one write at a time, and both sets of members confirm until the outcome is known."""

import pytest

from dittomq.doors.coordination import Conflict, Versioned, WriteUnknown, Written
from dittomq.offsets import Epoch
from dittomq.replication.membership import WriteRefusalKind
from dittomq.replication.membership_states import RecordWrite
from tests.support.confirming_group import ALONE, MASTER, caught_up, decided, must, nodes, record_of, replica_of

NOT_SENT = None


def test_one_write_begins_in_a_second() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", sent_goodbye=True, now=0.0)
    must(group, 0.0)
    group.membership.write_ended(Written("v2"), 0.1)
    group.confirmed.stream_ended("a/1", sent_goodbye=True, now=0.1)

    assert decided(group, 0.9) is None
    assert nodes(must(group, 1.0)) == []


def test_no_other_write_begins_while_one_is_under_way() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", sent_goodbye=True, now=0.0)
    must(group, 0.0)
    group.confirmed.stream_ended("a/1", sent_goodbye=True, now=0.1)

    assert decided(group, 5.0) is None


def test_an_unknown_write_is_sent_again_unchanged_and_both_sets_confirm() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", sent_goodbye=True, now=0.0)
    first = must(group, 0.0)
    group.membership.write_ended(WriteUnknown("no answer"), 0.1)

    group.membership.record_read(Versioned(group.record, "v1"), 0.2)
    too_early = decided(group, 0.9)
    again = must(group, 1.0)

    assert (too_early, again) == (None, first)
    assert group.membership.should_read(1.0) is False
    group.membership.write_ended(Written("v2"), 1.1)
    assert group.membership.known == Versioned(first.record, "v2")


def test_a_later_revision_of_this_master_ends_a_doubt() -> None:
    for arrived in (True, False):
        group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
        group.confirmed.stream_ended("a/2", sent_goodbye=True, now=0.0)
        change = must(group, 0.0)
        group.membership.write_ended(Conflict(), 0.1)

        record = change.record if arrived else group.record.next("an operator's", paused=True)
        group.membership.record_read(Versioned(record, "v7"), 0.2)

        assert group.membership.known == Versioned(record, "v7")
        assert group.membership.state is RecordWrite.SETTLED
        assert group.confirmed.record == record
        assert (group.membership.why_left("a/2") is not None) == arrived


def test_a_conflict_alone_deposes_no_master() -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.write_ended(Conflict(), 0.1)

    assert group.membership.state is RecordWrite.IN_DOUBT
    assert group.membership.should_read(0.1)
    assert group.membership.writes_refused(0.1) is None


def test_a_write_that_was_never_sent_leaves_no_doubt() -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.write_ended(NOT_SENT, 0.1)
    group.master(200, now=0.2)

    assert group.membership.state is RecordWrite.SETTLED
    assert group.confirmed.confirmed == 200


def test_a_second_try_that_was_never_sent_leaves_the_doubt_of_the_first() -> None:
    group = caught_up("a/1")
    must(group, 0.0)
    group.membership.write_ended(WriteUnknown("no answer"), 0.1)
    must(group, 1.0)

    group.membership.write_ended(NOT_SENT, 1.1)
    group.master(200, now=1.2)

    assert group.membership.state is RecordWrite.IN_DOUBT
    assert group.confirmed.confirmed == 100


def test_a_later_revision_that_is_read_during_a_write_counts_when_that_ends() -> None:
    group = caught_up("a/1")
    change = must(group, 0.0)
    paused = change.record.next("an operator's", paused=True)

    group.membership.record_read(Versioned(paused, "v3"), 0.1)
    during = group.membership.known
    group.membership.write_ended(Written("v2"), 0.2)

    assert during == Versioned(ALONE, "v1")
    assert group.membership.known == Versioned(paused, "v3")


def test_a_read_that_is_older_than_what_is_known_changes_nothing() -> None:
    group = caught_up("a/1")
    change = must(group, 0.0)
    group.membership.write_ended(Written("v2"), 0.1)

    group.membership.record_read(Versioned(ALONE, "v1"), 0.2)

    assert group.membership.known == Versioned(change.record, "v2")
    assert group.confirmed.members == (MASTER, "a/1")


def test_a_version_that_moved_without_a_new_revision_is_written_over() -> None:
    group = caught_up("a/1")

    group.membership.record_read(Versioned(ALONE, "v1 touched"), 0.0)

    assert must(group, 0.1).expected.version == "v1 touched"


@pytest.mark.parametrize(
    "changes", [{"epoch": Epoch(2)}, {"birth": "another"}, {"master": replica_of("a/1"), "members": record_of("a/1").members}]
)
def test_another_epoch_birth_or_master_fences(changes: dict[str, object]) -> None:
    group = caught_up("a/1")
    must(group, 0.0)

    group.membership.record_read(Versioned(ALONE.next("w2", **changes), "v9"), 0.1)
    group.membership.write_ended(Conflict(), 0.2)
    refusal = group.membership.writes_refused(0.3)

    assert group.membership.state is RecordWrite.FENCED
    assert refusal is not None
    assert refusal.kind is WriteRefusalKind.FENCED
    assert decided(group, 5.0) is None


def test_a_missing_record_fences_no_master() -> None:
    group = caught_up("a/1")

    group.membership.record_read(None, 0.0)

    assert group.membership.state is RecordWrite.SETTLED
