"""What is confirmed, by which members, and what receipts claim of it."""

from dataclasses import replace

import pytest

from dittomq.message import Ack
from dittomq.replication.confirmed_offset import ConfirmedOffset, holders_of, may_change
from dittomq.replication.membership_states import Following
from dittomq.replication.missing_ranges import MissingInGroup
from tests.support.confirming_group import ASYNC, MASTER, SMALL_GAP, ConfirmingGroup, at, record_of, replica_of

THREE = record_of("a/1", "a/2")


def test_the_faster_of_two_members_is_enough_for_two_copies() -> None:
    group = ConfirmingGroup(record=THREE)
    group.master(100)

    group.slave("a/2", 90, 80)
    group.slave("a/1", 50, 40)

    assert group.confirmed.confirmed == 80
    assert group.confirmed.level_end(Ack.REPLICA_FLUSHED) == 80


def test_replica_ack_level_received_counts_what_was_received() -> None:
    group = ConfirmingGroup(replace(SMALL_GAP, release_flushed=False))
    group.master(100, 70)

    group.slave("a/1", 100, 0)

    assert group.confirmed.confirmed == 70  # the master's own flush still bounds it
    assert group.confirmed.level_end(Ack.REPLICA_RECEIVED) == 70
    assert group.confirmed.level_end(Ack.REPLICA_FLUSHED) == 0


def test_slaves_alone_confirm_nothing_that_their_master_has_not_flushed() -> None:
    group = ConfirmingGroup(record=THREE)
    group.master(100, 70)

    group.slave("a/1", 100, 100)
    group.slave("a/2", 100, 100)

    assert group.confirmed.confirmed == 70


def test_a_replica_level_never_reaches_further_than_confirmed() -> None:
    group = ConfirmingGroup()
    group.master(100)

    group.slave("a/1", 100, 40)

    assert group.confirmed.level_end(Ack.REPLICA_RECEIVED) == group.confirmed.confirmed == 40


def test_a_copied_disk_under_another_node_name_confirms_nothing() -> None:
    group = ConfirmingGroup()
    group.master(100)
    group.slave("a/1", 40)

    group.confirmed.stream_begins("a/2", replica_of("a/1"), at(0), (), address="x:1", now=0.0)
    group.confirmed.slave_at("a/2", replica_of("a/1"), received=at(100), flushed=at(100), adopted=True, now=0.0)

    assert group.confirmed.confirmed == 40
    assert group.confirmed.view("a/1") is None


def test_a_lost_incarnation_counts_no_longer_when_its_successor_comes() -> None:
    group = ConfirmingGroup(record=record_of("a/1", "a/2", copies=3))
    group.master(100)
    group.slave("a/1", 100)

    group.slave("a/1", 10, incarnation=2)
    group.slave("a/2", 100)

    assert group.confirmed.confirmed == 0
    assert group.confirmed.copies(at(0), at(100)) == (("a/2", True),)


def test_a_late_ack_of_a_replaced_replica_is_ignored() -> None:
    group = ConfirmingGroup()
    group.master(100)
    group.slave("a/1", 0, incarnation=2)

    group.confirmed.slave_at("a/1", replica_of("a/1", 1), received=at(100), flushed=at(100), adopted=True, now=0.0)

    assert group.confirmed.confirmed == 0


def test_a_member_whose_stream_ended_holds_what_it_acknowledged() -> None:
    group = ConfirmingGroup(record=record_of("a/1", "a/2", copies=3))
    group.master(100)
    group.slave("a/1", 100)
    group.confirmed.stream_ended("a/1", sent_goodbye=False, now=1.0)

    group.slave("a/2", 80)

    assert group.confirmed.confirmed == 80
    assert group.confirmed.in_sync == ("a/2",)


def test_what_lies_behind_where_a_stream_begins_counts_no_longer() -> None:
    group = ConfirmingGroup(record=record_of("a/1", "a/2", copies=3))
    group.master(100)
    group.slave("a/1", 100)
    group.stream("a/1", start=40)

    group.slave("a/2", 100)

    assert group.confirmed.confirmed == 40
    assert group.confirmed.copies(at(0), at(41)) == (("a/2", True),)


def test_the_master_knows_how_much_an_id_acknowledged_to_it() -> None:
    group = ConfirmingGroup()
    group.slave("a/1", 100, 60)

    assert group.confirmed.acknowledged("a/1", replica_of("a/1")) == 60
    assert group.confirmed.acknowledged("a/1", replica_of("a/1", 2)) == 0
    assert group.confirmed.acknowledged("a/2", replica_of("a/2")) == 0


def test_confirmed_never_goes_back_when_a_member_comes_back_with_less() -> None:
    group = ConfirmingGroup()
    group.master(100)
    group.slave("a/1", 100)

    group.slave("a/1", 10)

    assert group.confirmed.confirmed == 100


def test_the_new_record_alone_confirms_when_it_is_known() -> None:
    group = ConfirmingGroup()
    group.master(100)
    alone = replace(record_of(), revision=2)
    group.confirmed.record_sent(alone)
    before = group.confirmed.confirmed

    group.confirmed.record_known(alone)

    assert (before, group.confirmed.confirmed) == (0, 100)
    assert group.confirmed.degraded
    assert group.confirmed.is_short_of_copies


def test_a_degraded_group_reaches_no_replica_level() -> None:
    group = ConfirmingGroup(record=record_of())

    group.master(100)

    assert group.confirmed.levels_reached(at(0), at(100)) == (Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED)
    assert group.confirmed.members == (MASTER,)


def test_a_master_without_a_record_confirms_alone_and_lists_slaves() -> None:
    rules = replace(SMALL_GAP, copies=1, level_copies=1, replicas_expected=0)
    confirmed = ConfirmedOffset(rules, own=replica_of(MASTER), node=MASTER, record=None, end=at(0), confirmed=at(0), now=0.0)
    confirmed.stream_begins("a/1", replica_of("a/1"), at(0), (), address="x:1", now=0.0)
    confirmed.slave_at("a/1", replica_of("a/1"), received=at(50), flushed=at(50), adopted=True, now=0.0)

    confirmed.master_at(written=at(100), flushed=at(80), now=0.0)

    assert confirmed.confirmed == 80
    assert confirmed.copies(at(0), at(50)) == (("a/1", True),)
    assert (confirmed.in_sync, confirmed.degraded, confirmed.is_short_of_copies) == ((), False, False)


@pytest.mark.parametrize(("sync_flush", "end"), [(True, 60), (False, 100)])
def test_an_async_master_confirms_by_its_own_disk_alone(sync_flush: bool, end: int) -> None:
    group = ConfirmingGroup(replace(ASYNC, sync_flush=sync_flush))

    group.master(100, 60)

    assert group.confirmed.confirmed == end


def test_an_async_master_claims_a_replica_level_only_with_the_copies_asked_for() -> None:
    group = ConfirmingGroup(ASYNC)
    group.master(100)

    group.slave("a/1", 70)

    assert (group.confirmed.confirmed, group.confirmed.level_end(Ack.REPLICA_FLUSHED)) == (100, 70)


def test_copies_name_each_replica_that_holds_the_end_and_how() -> None:
    group = ConfirmingGroup()
    group.master(100)
    group.slave("a/2", 100)
    group.slave("a/1", 100, 50)
    group.slave("a/3", 50)

    assert group.confirmed.copies(at(0), at(100)) == (("a/1", False), ("a/2", True))


def test_members_that_stream_are_in_sync_until_their_streams_end() -> None:
    group = ConfirmingGroup(record=THREE)

    before = group.confirmed.in_sync
    group.stream("a/1")
    group.slave("a/2", 0)
    during = group.confirmed.in_sync
    group.confirmed.stream_ended("a/1", sent_goodbye=True, now=1.0)

    assert (before, during, group.confirmed.in_sync) == ((), ("a/1", "a/2"), ("a/2",))
    view = group.confirmed.view("a/1")
    assert view is not None
    assert (view.state, view.is_member, view.since) == (Following.DEPARTED, True, 1.0)


def test_an_ack_without_a_stream_is_ignored() -> None:
    group = ConfirmingGroup()
    group.master(100)

    group.confirmed.slave_at("a/1", replica_of("a/1"), received=at(100), flushed=at(100), adopted=True, now=0.0)

    assert group.confirmed.confirmed == 0


def test_a_replica_that_no_member_replaces_is_forgotten() -> None:
    group = ConfirmingGroup()
    group.slave("a/2", 100)

    group.confirmed.forget("a/2")

    assert group.confirmed.copies(at(0), at(100)) == ()
    with pytest.raises(AssertionError):
        group.confirmed.forget("a/1")


def test_what_no_member_was_sent_is_passed_and_no_receipt_claims_it() -> None:
    group = ConfirmingGroup()
    group.stream("a/1")
    group.master(300)

    group.confirmed.record_skipped("a/1", at(100), at(200))
    group.slave("a/1", 300)

    assert group.confirmed.confirmed == 300
    for start, end, copies in ((0, 100, 2), (50, 150, 1), (100, 200, 1), (150, 250, 1), (200, 300, 2)):
        assert group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(start), at(end)) == (copies > 1)
        assert (Ack.REPLICA_RECEIVED in group.confirmed.levels_reached(at(start), at(end))) == (copies > 1)
        assert 1 + len(group.confirmed.copies(at(start), at(end))) == copies


def test_confirmed_waits_for_the_member_that_may_hold_what_others_lack() -> None:
    group = ConfirmingGroup(record=THREE, streaming=("a/1", "a/2"))
    group.master(300)
    group.confirmed.record_missing_on_master(((100, 200),))
    group.confirmed.record_skipped("a/2", at(100), at(200))
    group.slave("a/2", 300)
    before = group.confirmed.confirmed

    group.slave("a/1", 200)

    assert (before, group.confirmed.confirmed) == (100, 300)
    assert group.confirmed.copies(at(100), at(200)) == (("a/1", True),)
    assert not group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))


def test_what_all_members_lack_is_passed() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(300)
    group.confirmed.record_missing_on_master(((100, 200),))

    group.confirmed.record_skipped("a/1", at(100), at(200))
    group.slave("a/1", 300)

    assert group.confirmed.confirmed == 300
    assert group.confirmed.was_left_out(at(100), at(200))


def test_damage_of_no_member_hinders_no_receipt() -> None:
    group = ConfirmingGroup()
    group.master(300)
    group.slave("a/1", 300)
    group.slave("a/2", 0)
    group.confirmed.record_skipped("a/2", at(100), at(200))
    group.slave("a/2", 300)

    assert group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))
    assert group.confirmed.copies(at(100), at(200)) == (("a/1", True),)


def test_a_second_holder_makes_a_copy_of_what_one_member_lacks() -> None:
    group = ConfirmingGroup(record=THREE, streaming=("a/2",))
    group.master(300)
    group.confirmed.record_skipped("a/2", at(100), at(200))
    group.slave("a/2", 300)
    before = group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))

    group.slave("a/1", 300)

    assert (before, group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))) == (False, True)


def test_a_member_that_is_sent_again_what_was_left_out_is_a_copy_of_it() -> None:
    group = ConfirmingGroup(record=THREE, streaming=("a/2",))
    group.master(300)
    group.slave("a/1", 300)
    group.confirmed.record_skipped("a/2", at(100), at(200))
    group.slave("a/2", 300)
    before = len(group.confirmed.copies(at(100), at(200)))

    group.stream("a/2", start=100)
    group.slave("a/2", 300)

    assert (before, len(group.confirmed.copies(at(100), at(200)))) == (1, 2)


def test_a_replica_says_what_it_lacks_and_what_no_longer() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(300)
    group.confirmed.record_missing("a/1", ((at(100), at(200)),), at(300))
    group.slave("a/1", 300)

    assert group.confirmed.copies(at(100), at(200)) == ()
    assert len(group.confirmed.copies(at(200), at(300))) == 1
    group.confirmed.record_missing("a/1", (), at(300))
    assert len(group.confirmed.copies(at(100), at(200))) == 1


def test_a_replica_says_nothing_of_a_missing_range_that_it_has_not_reached() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(300)
    group.confirmed.record_skipped("a/1", at(200), at(300))
    group.confirmed.record_missing("a/1", ((at(0), at(50)),), at(200))
    group.slave("a/1", 300)

    assert [len(group.confirmed.copies(at(low), at(low + 50))) for low in (0, 100, 200)] == [0, 1, 0]
    group.confirmed.record_missing("a/1", (), at(300))
    assert [len(group.confirmed.copies(at(low), at(low + 50))) for low in (0, 100, 200)] == [1, 1, 1]


def test_a_stream_that_truncates_keeps_what_the_replica_was_known_to_lack() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(300)
    group.confirmed.record_skipped("a/1", at(100), at(200))

    group.confirmed.stream_begins("a/1", replica_of("a/1"), at(150), None, address="x:1", now=0.0)
    group.slave("a/1", 300)

    assert group.confirmed.copies(at(100), at(150)) == ()
    assert group.confirmed.copies(at(150), at(200)) == (("a/1", True),)


def test_another_replica_of_a_node_lacks_nothing_of_what_the_earlier_one_did() -> None:
    group = ConfirmingGroup(streaming=("a/1",))
    group.master(300)
    group.confirmed.record_skipped("a/1", at(100), at(200))

    group.slave("a/1", 300, incarnation=2)

    assert group.confirmed.copies(at(100), at(200)) == (("a/1", True),)


def test_what_rots_on_the_master_is_no_copy_of_its_own_until_it_is_repaired() -> None:
    group = ConfirmingGroup()
    group.master(300)
    group.slave("a/1", 300)
    group.confirmed.record_missing_on_master(((100, 200),))

    assert [group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(low), at(low + 100)) for low in (0, 100, 200)] == [True, False, True]
    assert [group.confirmed.master_has(at(low), at(low + 100)) for low in (0, 100, 200)] == [True, False, True]
    group.confirmed.record_missing_on_master(())
    assert group.confirmed.reaches(Ack.REPLICA_FLUSHED, at(150), at(160))


def test_no_copy_is_claimed_of_what_was_damaged_however_often() -> None:
    group, count = ConfirmingGroup(streaming=("a/1",)), 200
    for low in range(0, count * 100, 100):
        group.master(low + 100)
        group.confirmed.record_skipped("a/1", at(low), at(low + 50))
        group.slave("a/1", low + 100)

    assert group.confirmed.confirmed == count * 100
    assert not any(group.confirmed.copies(at(low), at(low + 50)) for low in range(0, count * 100, 100))
    assert len(group.confirmed.copies(at(count * 100 - 50), at(count * 100))) == 1


def test_lacking_ranges_behind_an_offset_are_the_masters_and_the_slaves() -> None:
    missing = MissingInGroup()
    missing.own = ((0, 10), (20, 30), (40, 50))
    missing.add("a/1", at(5), at(15))
    missing.add("a/1", at(60), at(70))

    assert list(missing.after(at(20))) == [(20, 30), (40, 50), (60, 70)]


def test_a_change_needs_so_many_holders_as_the_new_members_need() -> None:
    ends = {replica_of("a/0"): at(90), replica_of("a/1"): at(70), replica_of("a/2"): at(50)}
    holders = holders_of(ends, at(70))

    assert may_change(record_of("a/1"), holders)
    assert may_change(record_of(), holders)
    assert may_change(THREE, holders)
    assert not may_change(record_of("a/2"), holders)
    assert not may_change(record_of("a/1"), holders - {replica_of(MASTER)})
