"""What is confirmed, who is in sync, and when a group degrades."""

from dataclasses import replace

import pytest

from dittomq.message import Ack
from dittomq.replication.confirm import Confirm, ConfirmRules
from dittomq.replication.confirm_states import Degrade
from tests.support.confirming import SMALL_GAP, at, confirm


def test_the_masters_own_flush_confirms_nothing_while_a_member_has_not_acknowledged() -> None:
    group = confirm()

    group.master_at(written=at(100), flushed=at(100), now=1.0)

    assert group.confirmed == 0


def test_the_faster_of_two_slaves_is_enough_for_two_copies() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)

    group.slave_at("a/2", received=at(90), flushed=at(80), now=1.0)
    group.slave_at("a/1", received=at(50), flushed=at(40), now=1.0)

    assert group.confirmed == 80
    assert group.level_end(Ack.REPLICA_RECEIVED) == 90
    assert group.level_end(Ack.REPLICA_FLUSHED) == 80


def test_what_a_slave_received_and_did_not_flush_is_not_confirmed() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)

    group.slave_at("a/1", received=at(100), flushed=at(0), now=1.0)

    assert group.confirmed == 0


def test_a_slave_whose_stream_begins_anew_is_no_copy_of_what_it_acknowledged_behind_that() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/1", received=at(100), flushed=at(90), now=1.0)
    group.ends_at("a/1", at(40))

    assert group.level_end(Ack.REPLICA_RECEIVED) == group.level_end(Ack.REPLICA_FLUSHED) == 40
    assert group.copies(at(0), at(41)) == ()
    assert group.confirmed == 90
    group.slave_at("a/1", received=at(60), flushed=at(60), now=2.0)
    assert group.copies(at(0), at(60)) == (("a/1", True),)


def test_release_level_received_counts_what_was_received() -> None:
    group = confirm(replace(SMALL_GAP, release_flushed=False))
    group.master_at(written=at(100), flushed=at(70), now=1.0)

    group.slave_at("a/1", received=at(100), flushed=at(0), now=1.0)

    assert group.confirmed == 70  # the master's own flush still bounds it


def test_confirmed_never_goes_back_when_a_slave_comes_back_with_less() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/1", received=at(100), flushed=at(100), now=1.0)

    group.slave_at("a/1", received=at(10), flushed=at(10), now=2.0)

    assert group.confirmed == 100


def test_two_missed_deadlines_degrade_the_group_only_after_the_range_is_recorded() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.deadline_missed(at(100), since=1.0, now=4.0)
    before = group.degrade

    group.deadline_missed(at(100), since=4.0, now=7.0)

    assert (before, group.degrade) == (Degrade.NO, Degrade.RECORDING)
    assert group.confirmed == 0
    group.range_recorded()
    assert group.confirmed == 100


def test_producers_that_wait_together_for_a_silent_slave_miss_one_deadline() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)

    for end, since in ((100, 1.0), (200, 1.5), (300, 3.9)):
        group.deadline_missed(at(end), since=since, now=since + 3.0)

    before = group.in_sync
    group.deadline_missed(at(300), since=4.0, now=7.0)
    assert (before, group.in_sync) == (("a/1",), ())


def test_producers_in_a_hurry_cannot_make_a_slave_leave_that_answers_in_time() -> None:
    group = confirm()
    for step in range(40):
        now, end = 1.0 + step, at(100 * (step + 1))
        group.master_at(written=end, flushed=end, now=now)
        for _ in range(5):
            group.deadline_missed(end, since=now, now=now + 0.01)
        group.tick(now=now + 0.1)

        group.slave_at("a/1", received=end, flushed=end, now=now + 0.5)

        assert group.in_sync == ("a/1",)
    assert group.degrade is Degrade.NO


def test_producers_in_a_hurry_find_out_a_dead_slave_after_two_deadlines_of_the_group() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=0.0)
    left_at = None

    for tenth in range(100):
        now = tenth / 10
        group.deadline_missed(at(100), since=now - 0.1, now=now)
        group.tick(now=now)
        if left_at is None and not group.in_sync:
            left_at = now

    assert left_at is not None
    assert 5.8 <= left_at <= 6.2


def test_a_degraded_group_recovers_when_a_slave_has_caught_up() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.deadline_missed(at(100), since=1.0, now=4.0)
    group.deadline_missed(at(100), since=4.0, now=7.0)
    group.range_recorded()

    group.slave_at("a/1", received=at(100), flushed=at(100), now=8.0)

    assert group.degrade is Degrade.NO
    assert group.in_sync == ("a/1",)


def test_a_group_below_its_floor_takes_no_writes_and_confirms_nothing() -> None:
    group = confirm(replace(SMALL_GAP, min_in_sync_replicas=2), members=())

    group.master_at(written=at(100), flushed=at(100), now=1.0)

    assert not group.has_room_for_writes()
    assert group.confirmed == 0


def test_a_member_of_the_last_run_counts_as_in_sync_until_it_misses_two_deadlines() -> None:
    group = confirm()

    group.tick(now=1_000.0)

    assert group.in_sync == ("a/1",)


def test_a_member_of_the_last_run_that_comes_with_less_counts_as_in_sync_and_is_not_called_so() -> None:
    group = Confirm(SMALL_GAP, end=at(500), confirmed=at(400), members=("a/1",), now=0.0)

    seen = []
    for end in (0, 400, 500):
        group.slave_at("a/1", received=at(end), flushed=at(end), now=1.0)
        view = group.view("a/1")
        assert view is not None
        seen.append((group.in_sync, view.in_sync))

    assert seen == [(("a/1",), False), (("a/1",), False), (("a/1",), True)]


def test_a_member_of_the_last_run_that_comes_with_less_and_does_not_catch_up_leaves_after_the_lag_limit() -> None:
    group = Confirm(SMALL_GAP, end=at(500), confirmed=at(400), members=("a/1",), now=0.0)
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)

    for second in range(2, 17):
        group.tick(now=float(second))

    assert group.in_sync == ()


def test_an_async_master_confirms_by_its_own_disk_alone() -> None:
    rules = replace(SMALL_GAP, sync_master=False, in_sync_replicas=1)
    group = confirm(rules, members=())

    group.master_at(written=at(100), flushed=at(60), now=1.0)

    assert group.confirmed == 60
    assert confirm_async_flush() == 100


def confirm_async_flush() -> int:
    group = confirm(replace(SMALL_GAP, sync_master=False, sync_flush=False, in_sync_replicas=1), members=())
    group.master_at(written=at(100), flushed=at(60), now=1.0)
    return group.confirmed


def test_copies_name_each_slave_that_holds_the_end_and_how() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/2", received=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/1", received=at(100), flushed=at(50), now=1.0)
    group.slave_at("a/3", received=at(50), flushed=at(50), now=1.0)

    assert group.copies(at(0), at(100)) == (("a/1", False), ("a/2", True))


def test_whoever_waits_for_copies_of_what_is_damaged_here_is_not_told_that_there_are_some() -> None:
    group = confirm()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(300), flushed=at(300), now=1.0)

    group.holed("a/1", at(100), at(200))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)

    assert group.confirmed == 0
    assert group.level_end(Ack.REPLICA_FLUSHED) == group.level_end(Ack.REPLICA_RECEIVED) == 100
    group.range_recorded()
    assert (group.confirmed, group.degrade) == (300, Degrade.YES)
    group.tick(2.0)
    assert group.degrade is Degrade.NO
    for start, end, copies in ((0, 100, 2), (50, 150, 1), (100, 200, 1), (150, 250, 1), (200, 300, 2)):
        assert group.reaches(Ack.REPLICA_FLUSHED, at(start), at(end)) == (copies > 1)
        assert (Ack.REPLICA_RECEIVED in group.levels_reached(at(start), at(end))) == (copies > 1)
        assert 1 + len(group.copies(at(start), at(end))) == copies


@pytest.mark.parametrize("rules", [SMALL_GAP, replace(SMALL_GAP, sync_master=False)])
def test_no_copy_is_told_of_what_is_damaged_here_either_where_the_master_alone_had_confirmed_it_before(rules: ConfirmRules) -> None:
    group = confirm(rules, members=())
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.range_recorded()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    assert group.confirmed == 300

    group.holed("a/1", at(100), at(200))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)

    for start, end, copies in ((0, 100, 2), (100, 200, 1), (200, 300, 2)):
        assert group.reaches(Ack.REPLICA_FLUSHED, at(start), at(end)) == (copies > 1)
        assert 1 + len(group.copies(at(start), at(end))) == copies


def test_no_copy_is_told_of_what_was_damaged_here_earlier_either_however_often_that_happened() -> None:
    group, count = confirm(), 200
    for at_ in range(0, count * 100, 100):
        group.master_at(written=at(at_ + 100), flushed=at(at_ + 100), now=1.0)
        group.holed("a/1", at(at_), at(at_ + 50))
        group.slave_at("a/1", received=at(at_ + 100), flushed=at(at_ + 100), now=1.0)
        group.range_recorded()

    assert group.confirmed == count * 100
    assert not any(group.copies(at(at_), at(at_ + 50)) for at_ in range(0, count * 100, 100))
    assert len(group.copies(at(count * 100 - 50), at(count * 100))) == 1


def test_a_slave_that_was_not_sent_what_others_have_is_no_copy_of_it_and_its_ack_reaches_no_level_of_it() -> None:
    group = confirm(replace(SMALL_GAP, release_flushed=False))
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.slave_at("a/1", received=at(300), flushed=at(0), now=1.0)
    group.slave_at("a/2", received=at(0), flushed=at(0), now=1.0)
    assert group.confirmed == 300

    group.holed("a/2", at(100), at(200))
    group.slave_at("a/2", received=at(300), flushed=at(300), now=1.0)

    assert group.copies(at(100), at(200)) == (("a/1", False),)
    assert group.reaches(Ack.REPLICA_RECEIVED, at(100), at(200))
    assert not group.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))
    assert group.reaches(Ack.REPLICA_FLUSHED, at(200), at(300))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=2.0)
    assert group.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))
    assert group.copies(at(200), at(300)) == (("a/1", True), ("a/2", True))


def test_a_slave_that_is_sent_anew_what_was_left_out_is_a_copy_of_it_then() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)
    group.slave_at("a/2", received=at(0), flushed=at(0), now=1.0)
    group.holed("a/2", at(100), at(200))
    group.slave_at("a/2", received=at(300), flushed=at(300), now=1.0)
    assert len(group.copies(at(100), at(200))) == 1

    group.ends_at("a/2", at(100))
    group.slave_at("a/2", received=at(300), flushed=at(300), now=2.0)

    assert len(group.copies(at(100), at(200))) == 2


def test_what_a_slave_says_to_lack_when_its_stream_begins_is_on_it_no_more_and_what_it_says_no_more_is() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.lacks("a/1", ((at(100), at(200)),), at(300))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)

    assert (group.confirmed, group.degrade) == (0, Degrade.RECORDING)
    group.range_recorded()
    assert group.confirmed == 300
    assert group.copies(at(100), at(200)) == ()
    assert len(group.copies(at(200), at(300))) == 1
    group.lacks("a/1", (), at(300))
    assert len(group.copies(at(100), at(200))) == 1


def test_a_slave_that_says_what_it_lacks_does_not_speak_of_a_hole_that_it_has_not_heard_of() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.holed("a/1", at(200), at(300))
    group.lacks("a/1", ((at(0), at(50)),), at(200))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)

    assert [len(group.copies(at(low), at(low + 50))) for low in (0, 100, 200)] == [0, 1, 0]
    group.lacks("a/1", (), at(300))
    assert [len(group.copies(at(low), at(low + 50))) for low in (0, 100, 200)] == [1, 1, 1]


def test_what_is_damaged_on_a_master_when_it_comes_to_lead_is_confirmed_as_degraded() -> None:
    group = Confirm(SMALL_GAP, end=at(500), confirmed=at(400), members=("a/1",), now=0.0)
    group.master_lacks(((0, 50), (410, 420)))
    group.slave_at("a/1", received=at(500), flushed=at(500), now=1.0)

    assert (group.confirmed, group.degrade) == (400, Degrade.RECORDING)
    group.range_recorded()
    assert group.confirmed == 500


def test_what_rots_on_a_master_before_it_is_confirmed_is_no_copy_of_its_own_whatever_slaves_hold() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.master_lacks(((100, 200),))
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)

    assert (group.confirmed, group.degrade) == (0, Degrade.RECORDING)
    group.range_recorded()
    assert group.confirmed == 300
    assert [group.reaches(Ack.REPLICA_FLUSHED, at(low), at(low + 100)) for low in (0, 100, 200)] == [True, False, True]
    assert [group.master_has(at(low), at(low + 100)) for low in (0, 100, 200)] == [True, False, True]
    group.slave_at("a/2", received=at(300), flushed=at(300), now=1.0)
    assert group.reaches(Ack.REPLICA_FLUSHED, at(100), at(200))


def test_what_rots_on_a_master_is_a_copy_of_its_own_again_when_it_is_mended() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)
    group.master_lacks(((100, 200),))

    assert (group.confirmed, group.degrade) == (300, Degrade.NO)
    assert not group.reaches(Ack.REPLICA_FLUSHED, at(150), at(160))
    group.master_lacks(())
    assert group.reaches(Ack.REPLICA_FLUSHED, at(150), at(160))


def test_the_master_alone_confirms_what_is_damaged_on_it_where_copies_confirm_nothing() -> None:
    group = confirm(replace(SMALL_GAP, sync_master=False))

    group.holed("a/1", at(0), at(100))
    group.master_at(written=at(300), flushed=at(300), now=1.0)

    assert (group.confirmed, group.degrade) == (300, Degrade.NO)


def test_a_slave_that_was_not_sent_something_before_its_first_ack_is_no_copy_of_it() -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.slave_at("a/1", received=at(300), flushed=at(300), now=1.0)
    assert group.confirmed == 300

    group.holed("a/2", at(100), at(200))
    group.slave_at("a/2", received=at(300), flushed=at(300), now=2.0)

    assert group.copies(at(100), at(200)) == (("a/1", True),)
    group.ends_at("a/2", at(100))
    group.slave_at("a/2", received=at(300), flushed=at(300), now=3.0)
    assert group.copies(at(100), at(200)) == (("a/1", True), ("a/2", True))


@pytest.mark.parametrize("how", ["stream", "disk"])
def test_what_a_slave_was_not_sent_counts_no_more_when_it_begins_anew_before_its_first_ack(how: str) -> None:
    group = confirm()
    group.master_at(written=at(300), flushed=at(300), now=1.0)
    group.holed("a/2", at(100), at(200))
    if how == "stream":
        group.ends_at("a/2", at(100))
    else:
        group.disk_gone("a/2", "it has another disk", now=2.0)
    group.slave_at("a/2", received=at(300), flushed=at(300), now=3.0)

    assert group.copies(at(100), at(200)) == (("a/2", True),)
