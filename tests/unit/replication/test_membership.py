"""Who becomes a member and who is removed, and when a master takes no writes."""

from dataclasses import replace

import pytest

from dittomq.doors.coordination import Versioned, Written
from dittomq.replication.membership import MemberChange, MemberReason, MemberReasonKind, Membership, WriteRefusalKind
from dittomq.replication.membership_states import RecordWrite
from tests.support.confirming_group import (
    ALONE,
    ASYNC,
    MASTER,
    RULES,
    SMALL_GAP,
    ConfirmingGroup,
    at,
    caught_up,
    decided,
    member_of,
    must,
    nodes,
    record_of,
    replica_of,
)

THREE = record_of("a/1", "a/2")


def kinds(change: MemberChange) -> list[MemberReasonKind]:
    return [reason.kind for reason in change.reasons]


def test_a_slave_joins_with_everything_confirmed() -> None:
    group = caught_up("a/1")

    change = must(group, 0.1)

    assert change.record == ALONE.next("w", members=(member_of(MASTER), member_of("a/1")))
    assert change.expected == Versioned(ALONE, "v1")
    assert change.reasons == (MemberReason(MemberReasonKind.CAUGHT_UP, "a/1"),)


def test_a_slave_that_has_not_adopted_the_epoch_does_not_join() -> None:
    group = ConfirmingGroup(record=ALONE)
    group.slave("a/1", 0)
    group.master(100)

    group.slave("a/1", 100, adopted=False)

    assert decided(group, 0.1) is None


def test_a_new_slave_joins_only_with_what_was_the_end_when_it_came() -> None:
    group = ConfirmingGroup(RULES, record=ALONE)
    group.master(100)

    group.slave("a/1", 99)
    before = decided(group, 0.1)
    group.slave("a/1", 100)

    assert (before, nodes(decided(group, 0.2))) == (None, ["a/1"])


def test_a_slave_with_a_gap_at_the_limit_does_not_join_and_one_byte_less_does() -> None:
    seen = []
    for gap in (1_000, 999):
        group = ConfirmingGroup(record=THREE, streaming=("a/1", "a/2"))
        group.confirmed.record_known(record_of("a/1"))
        group.membership = Membership(SMALL_GAP, group.confirmed, Versioned(record_of("a/1"), "v1"), now=0.0)
        group.slave("a/1", 0)
        group.slave("a/2", 0)
        group.master(gap)
        seen.append(nodes(decided(group, 0.5)))

    assert seen == [[], ["a/1", "a/2"]]


def test_no_more_slaves_join_than_replicas_are_expected() -> None:
    group = caught_up("a/1", "a/2", "a/3")

    assert nodes(must(group, 0.1)) == ["a/1", "a/2"]


def test_the_successor_of_a_lost_incarnation_takes_its_place_in_one_write() -> None:
    group = caught_up("a/1", record=("a/1", "a/2"))

    group.slave("a/2", 100, incarnation=2)
    change = must(group, 0.1)

    assert change.record.ids == {replica_of(MASTER), replica_of("a/1"), replica_of("a/2", 2)}
    assert change.reasons == (MemberReason(MemberReasonKind.REPLACED, "a/2", replaced="uuid-a/2.1"),)


def test_a_successor_that_is_not_caught_up_leaves_its_predecessor_for_a_while() -> None:
    group = caught_up("a/1", record=("a/1", "a/2"))
    group.slave("a/2", 10, incarnation=2)

    assert decided(group, 0.1) is None
    assert decided(group, 2.0) is None
    assert kinds(must(group, 2.1)) == [MemberReasonKind.NO_STREAM]


def test_a_member_without_a_stream_is_removed_after_the_time_to_leave() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.confirmed.stream_ended("a/2", sent_goodbye=False, now=1.0)

    assert decided(group, 2.9) is None
    change = must(group, 3.0)

    assert nodes(change) == ["a/1"]
    assert change.reasons == (MemberReason(MemberReasonKind.NO_STREAM, "a/2", 2.0),)


def test_a_member_that_comes_in_time_stays() -> None:
    group = caught_up("a/1", record=("a/1",))
    group.confirmed.stream_ended("a/1", sent_goodbye=False, now=1.0)

    group.stream("a/1", start=100, now=2.5)

    assert decided(group, 3.5) is None


def test_a_member_that_never_came_to_this_master_is_removed_after_the_time_to_leave() -> None:
    group = caught_up("a/1", record=("a/1", "a/2"))

    assert decided(group, 1.9) is None
    assert nodes(must(group, 2.0)) == ["a/1"]


def test_a_process_that_stood_still_removes_no_member_for_that_time() -> None:
    group = caught_up("a/1", record=("a/1",))
    group.confirmed.tick(10.0)
    group.confirmed.stream_ended("a/1", sent_goodbye=False, now=100.0)

    assert decided(group, 101.9) is None


def test_a_member_that_did_not_answer_the_promise_stays_if_it_streams() -> None:
    group = ConfirmingGroup(record=THREE, silent=("a/2",), streaming=("a/1", "a/2"))

    before = decided(group, 0.1)
    group.confirmed.stream_ended("a/2", sent_goodbye=False, now=0.2)

    assert (before, decided(group, 0.3)) == (None, None)


def test_a_member_that_missed_two_deadlines_is_removed() -> None:
    group = caught_up("a/1", record=("a/1",))
    group.master(200, now=1.0)
    group.confirmed.deadline_missed(at(200), since=1.0, now=4.0)
    before = decided(group, 4.0)

    group.confirmed.deadline_missed(at(200), since=4.0, now=7.0)
    change = must(group, 7.0)

    assert (before, nodes(change)) == (None, [])
    assert change.reasons == (MemberReason(MemberReasonKind.MISSED_DEADLINES, "a/1", 2),)


def test_producers_that_wait_together_for_a_silent_member_miss_one_deadline() -> None:
    group = caught_up("a/1", record=("a/1",), end=300)
    group.master(600, now=1.0)

    for end, since in ((400, 1.0), (500, 1.5), (600, 3.9)):
        group.confirmed.deadline_missed(at(end), since=since, now=since + 3.0)
    before = decided(group, 6.9)
    group.confirmed.deadline_missed(at(600), since=4.0, now=7.0)

    assert before is None
    assert kinds(must(group, 7.0)) == [MemberReasonKind.MISSED_DEADLINES]


def test_producers_in_a_hurry_cannot_remove_a_member_that_answers_in_time() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    for step in range(40):
        now, end = 1.0 + step, 100 * (step + 1)
        group.master(end, now=now)
        for _ in range(5):
            group.confirmed.deadline_missed(at(end), since=now, now=now + 0.01)

        assert decided(group, now + 0.1) is None

        group.slave("a/1", end, now=now + 0.5)


def test_producers_in_a_hurry_find_a_silent_member_after_two_deadlines_of_the_group() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(100)

    for tenth in range(100):
        now = tenth / 10
        group.confirmed.deadline_missed(at(100), since=now - 0.1, now=now)
        if decided(group, now) is not None:
            assert 5.8 <= now <= 6.2
            return
    pytest.fail("the member was never removed")


def test_a_deadline_that_ends_a_little_early_counts_and_an_earlier_one_waits() -> None:
    removed = []
    for waited_s in (2.96, 2.9):
        group = ConfirmingGroup(streaming=("a/1",))
        group.master(100)
        group.confirmed.deadline_missed(at(100), since=0.0, now=waited_s)
        group.confirmed.deadline_missed(at(100), since=4.0, now=4.0 + waited_s)
        removed.append(group.membership.decide(4.0 + waited_s, write="w") is not None)

    assert removed == [True, False]


def test_an_ack_of_what_was_waited_for_forgives_a_missed_deadline() -> None:
    group = caught_up("a/1", record=("a/1",))
    group.master(200, now=1.0)
    group.confirmed.deadline_missed(at(200), since=1.0, now=4.0)
    group.slave("a/1", 200, now=4.5)
    group.master(300, now=5.0)

    group.confirmed.deadline_missed(at(300), since=5.0, now=8.0)

    assert decided(group, 8.0) is None


def test_a_member_with_a_gap_at_the_limit_is_removed_and_one_byte_less_is_not() -> None:
    group = ConfirmingGroup()
    group.slave("a/1", 0)

    group.master(999, now=0.1)
    before = decided(group, 0.1)
    group.master(1_000, now=0.2)

    assert before is None
    assert must(group, 0.2).reasons == (MemberReason(MemberReasonKind.TOO_FAR_BEHIND, "a/1", 1_000),)


def test_the_gap_is_counted_from_what_a_member_flushed_to_what_the_master_wrote() -> None:
    group = ConfirmingGroup()
    group.slave("a/1", 0)
    group.master(1_000, 0, now=0.1)

    group.slave("a/1", 1_000, 0, now=0.1)

    assert kinds(must(group, 0.2)) == [MemberReasonKind.TOO_FAR_BEHIND]


def test_a_member_that_falls_further_behind_is_removed_after_the_lag_limit() -> None:
    group = ConfirmingGroup(RULES)
    group.slave("a/1", 0)

    for second in range(1, 40):
        group.master(100 * second, now=float(second))
        group.slave("a/1", 10 * second, now=second + 0.5)
        if (change := decided(group, second + 0.6)) is not None:
            assert kinds(change) == [MemberReasonKind.NOT_CAUGHT_UP]
            assert second == 16  # at 10.5 s it held what had been the end at 1 s, and never what was the end later
            return
    pytest.fail("the member was never removed")


def test_an_idle_equal_member_stays() -> None:
    group = caught_up("a/1", record=("a/1",))

    for now in range(0, 600, 5):
        group.slave("a/1", 100, now=float(now))
        assert decided(group, now + 4.9) is None


def test_a_removed_member_joins_again_when_it_has_caught_up() -> None:
    group = caught_up("a/1", record=("a/1",))
    group.confirmed.stream_ended("a/1", sent_goodbye=True, now=0.1)
    must(group, 0.1)
    group.membership.write_ended(Written("v2"), 0.2)
    left = group.membership.why_left("a/1")
    group.master(200, now=1.0)

    group.slave("a/1", 200, now=1.0)
    change = must(group, 1.2)
    group.membership.write_ended(Written("v3"), 1.3)

    assert left == (MemberReason(MemberReasonKind.SENT_GOODBYE, "a/1"), 0.2)
    assert nodes(change) == ["a/1"]
    assert group.membership.why_left("a/1") is None
    assert group.membership.known.version == "v3"


def test_members_that_have_not_adopted_the_epoch_cannot_be_all_that_is_left() -> None:
    group = ConfirmingGroup(replace(RULES, min_in_sync_replicas=2), record=THREE, silent=("a/1", "a/2"))

    assert decided(group, 0.1) is None


def test_the_member_that_holds_most_is_kept_for_the_minimum() -> None:
    rules = replace(RULES, min_in_sync_replicas=2)
    group = ConfirmingGroup(rules, record=THREE)
    group.master(100)
    group.slave("a/1", 50)
    group.slave("a/2", 80)
    for node in ("a/1", "a/2"):
        group.confirmed.stream_ended(node, sent_goodbye=True, now=0.1)

    assert nodes(must(group, 0.2)) == ["a/2"]


def test_the_last_member_of_the_minimum_is_replaced_by_its_successor_only() -> None:
    group = ConfirmingGroup(replace(RULES, min_in_sync_replicas=2), end=100, confirmed=100)
    group.slave("a/1", 40, incarnation=2)
    before = decided(group, 5.0)

    group.slave("a/1", 100, incarnation=2, now=5.0)
    change = must(group, 5.1)

    assert before is None
    assert change.record.ids == {replica_of(MASTER), replica_of("a/1", 2)}


def test_a_member_that_is_to_be_resynced_leaves_first() -> None:
    group = caught_up("a/1", "a/2", record=("a/1", "a/2"))
    group.membership.must_leave(replica_of("a/2"))

    change = must(group, 0.1)
    during = group.membership.is_member("a/2", replica_of("a/2"))
    group.membership.write_ended(Written("v2"), 0.2)

    assert change.reasons == (MemberReason(MemberReasonKind.MUST_RESYNC, "a/2"),)
    assert (during, group.membership.is_member("a/2", replica_of("a/2"))) == (True, False)


def test_damage_changes_no_members() -> None:
    group = caught_up("a/1", record=("a/1",))

    group.confirmed.record_missing_on_master(((0, 100),))
    group.confirmed.record_missing("a/1", ((at(0), at(50)),), at(100))

    assert decided(group, 1.0) is None


def test_copies_follow_the_configuration_if_enough_members_hold_everything() -> None:
    group = ConfirmingGroup(replace(SMALL_GAP, copies=3), record=THREE, streaming=("a/1", "a/2"))
    group.master(100)
    group.slave("a/1", 100)
    before = decided(group, 0.1)

    group.slave("a/2", 100)
    change = must(group, 0.2)

    assert before is None
    assert change.record.copies == 3
    assert str(change) == "a/0 asks for 3 copies"


def test_members_change_while_copies_cannot() -> None:
    group = ConfirmingGroup(replace(RULES, copies=3, replicas_expected=3), record=record_of("a/1", "a/2", "a/3", copies=2))
    group.stream("a/1")
    group.slave("a/2", 0)
    group.master(100)
    group.slave("a/2", 100)
    group.confirmed.stream_ended("a/3", sent_goodbye=False, now=0.0)

    change = must(group, 3.0)

    assert (nodes(change), change.record.copies) == (["a/1", "a/2"], 2)


def test_a_member_is_not_removed_while_too_few_others_hold_what_is_confirmed() -> None:
    group = ConfirmingGroup(RULES, record=THREE, streaming=("a/1",))
    group.slave("a/2", 0)
    group.master(100)
    group.slave("a/2", 100)
    group.confirmed.tick(1.5)
    group.confirmed.stream_ended("a/2", sent_goodbye=True, now=1.5)

    before = decided(group, 1.5)
    group.slave("a/1", 100, now=1.6)

    assert (before, nodes(decided(group, 1.6))) == (None, ["a/1"])


def test_a_slave_that_never_holds_all_that_is_confirmed_joins_under_load() -> None:
    group = ConfirmingGroup(RULES, record=ALONE)
    group.slave("a/1", 0)
    now, change = 0.0, None
    for step in range(1, 200):
        now = step / 100
        group.master(1_000 * step, now=now)
        group.slave("a/1", 1_000 * step - 700, now=now)
        if step > 10 and (group.membership.waits_for_acks or step % 50 == 0):
            change = change or decided(group, now)

    assert nodes(change) == ["a/1"]
    assert group.confirmed.confirmed <= 1_000 * 200 - 700


def test_a_proposal_that_comes_to_nothing_is_given_up_and_rests() -> None:
    group = ConfirmingGroup(RULES, record=ALONE)
    group.slave("a/1", 0)
    group.master(100)
    before = decided(group, 0.1)
    proposed = group.membership.state
    group.master(200, now=0.2)
    stands_at = group.confirmed.confirmed

    after = decided(group, 1.2)

    assert (before, proposed, stands_at, after) == (None, RecordWrite.PROPOSED, 100, None)
    assert (group.membership.state, group.confirmed.confirmed) == (RecordWrite.SETTLED, 200)
    group.slave("a/1", 200, now=2.0)
    assert decided(group, 6.1) is None
    assert nodes(decided(group, 6.3)) == ["a/1"]


def test_writes_are_refused_while_fewer_members_stream_than_the_minimum() -> None:
    group = ConfirmingGroup(replace(RULES, min_in_sync_replicas=2))
    before = group.membership.writes_refused(0.0)

    group.stream("a/1")

    assert before is not None
    assert str(before) == "1 members of the group stream, and a write needs 2"
    assert group.membership.writes_refused(0.0) is None


def test_a_stream_of_no_member_makes_no_room_for_writes() -> None:
    group = ConfirmingGroup(replace(RULES, min_in_sync_replicas=2))

    group.stream("a/2")

    assert group.membership.writes_refused(0.0) is not None


def test_a_master_that_reaches_neither_store_nor_members_refuses_writes() -> None:
    group = ConfirmingGroup(streaming=("a/1",))

    before = group.membership.writes_refused(2.9)
    refusal = group.membership.writes_refused(3.0)

    assert before is None
    assert refusal is not None
    assert (refusal.kind, refusal.silent_s) == (WriteRefusalKind.ISOLATED, 3.0)
    group.slave("a/1", 0, now=3.0)
    assert group.membership.writes_refused(3.1) is None
    group.membership.store_answered(6.0)
    assert group.membership.writes_refused(8.9) is None


def test_a_master_that_confirms_alone_is_not_isolated_without_the_store() -> None:
    for rules, record in ((RULES, ALONE), (ASYNC, record_of("a/1", copies=1))):
        group = ConfirmingGroup(rules, record=record)

        assert group.membership.writes_refused(100.0) is None


def test_a_master_that_unclean_elections_can_depose_needs_the_store() -> None:
    group = ConfirmingGroup(replace(RULES, store_required=True), record=ALONE)

    assert group.membership.should_read(1.0)
    assert group.membership.writes_refused(3.0) is not None


def test_the_store_is_asked_when_members_are_silent() -> None:
    group = ConfirmingGroup(streaming=("a/1",))

    assert not group.membership.should_read(0.9)
    assert group.membership.should_read(1.0)
    group.slave("a/1", 0, now=1.0)
    assert not group.membership.should_read(1.1)
