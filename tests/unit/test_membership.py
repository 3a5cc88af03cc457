"""Who is in sync: by which gap, lag and missed deadlines a slave leaves, and with what it joins again."""

from dataclasses import replace

import pytest

from dittomq.replication.confirm import ConfirmRules
from dittomq.settings import load
from services.master.config import MasterConfig, confirm_rules
from tests.support.confirming import SMALL_GAP, at, confirm


def test_a_gap_at_the_limit_leaves_and_one_byte_less_does_not() -> None:
    group = confirm()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=0.0)

    group.master_at(written=at(999), flushed=at(999), now=1.0)
    before = group.copies_in_sync
    group.master_at(written=at(1_000), flushed=at(1_000), now=1.0)

    assert (before, group.copies_in_sync) == (2, 1)


def test_a_slave_that_does_not_catch_up_leaves_after_the_lag_limit() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=0.0)
    group.slave_at("a/1", received=at(100), flushed=at(100), now=0.0)
    group.master_at(written=at(200), flushed=at(200), now=1.0)

    group.slave_at("a/1", received=at(150), flushed=at(150), now=1.5)
    for second in range(2, 17):
        group.tick(now=float(second))

    assert group.in_sync == ()
    view = group.view("a/1")
    assert view is not None
    assert "not caught up" in view.why_left


def test_an_idle_equal_slave_that_answers_stays_in_sync() -> None:
    group = confirm()
    group.master_at(written=at(100), flushed=at(100), now=0.0)

    for now in range(0, 600, 5):
        group.slave_at("a/1", received=at(100), flushed=at(100), now=float(now))
        group.tick(now=now + 4.9)

    assert group.in_sync == ("a/1",)


def test_the_gap_is_counted_from_what_the_slave_flushed_to_what_the_master_wrote() -> None:
    group = confirm()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=0.0)
    group.master_at(written=at(999), flushed=at(0), now=1.0)

    group.slave_at("a/1", received=at(999), flushed=at(0), now=1.0)
    before = group.copies_in_sync
    group.master_at(written=at(1_000), flushed=at(0), now=1.0)

    assert (before, group.copies_in_sync) == (2, 1)


def test_a_slave_that_acknowledges_all_the_time_and_falls_further_behind_leaves_after_the_lag_limit() -> None:
    group = confirm(replace(SMALL_GAP, max_gap_bytes=1_000_000))
    group.slave_at("a/1", received=at(0), flushed=at(0), now=0.0)
    left_at = None

    for second in range(1, 40):
        group.master_at(written=at(100 * second), flushed=at(100 * second), now=float(second))
        group.slave_at("a/1", received=at(10 * second), flushed=at(10 * second), now=second + 0.5)
        if left_at is None and not group.in_sync:
            left_at = second

    # At 10.5 s it held what had been the end at 0.5 s, and never again what was the end later.
    assert left_at == 17


def test_a_slave_that_was_caught_up_as_long_ago_as_it_may_be_stays_and_leaves_a_moment_later() -> None:
    group = confirm()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=0.0)
    group.master_at(written=at(100), flushed=at(100), now=0.0)
    for second in range(1, 16):
        group.tick(now=float(second))

    before = group.in_sync
    group.tick(now=15.25)

    assert (before, group.in_sync) == (("a/1",), ())


@pytest.mark.parametrize(("acked_at", "in_sync"), [(15.0, ("a/1",)), (15.25, ())])
def test_a_slave_joins_with_what_was_the_end_as_long_ago_as_it_may_be_and_not_a_moment_later(
    acked_at: float, in_sync: tuple[str, ...]
) -> None:
    group = confirm(replace(SMALL_GAP, in_sync_replicas=3), members=())
    group.master_at(written=at(100), flushed=at(100), now=0.0)
    group.slave_at("a/1", received=at(0), flushed=at(0), now=0.0)
    group.master_at(written=at(200), flushed=at(200), now=0.0)
    for second in range(1, 16):
        group.tick(now=float(second))

    group.slave_at("a/1", received=at(100), flushed=at(100), now=acked_at)

    assert group.in_sync == in_sync


def test_a_new_slave_joins_only_with_what_was_the_end_when_it_came() -> None:
    group = confirm(members=())
    group.master_at(written=at(100), flushed=at(100), now=1.0)

    seen = []
    for end in (0, 99, 100):
        group.slave_at("a/1", received=at(end), flushed=at(end), now=1.0)
        seen.append(group.in_sync)

    assert seen == [(), (), ("a/1",)]


def test_a_slave_with_a_gap_at_the_limit_does_not_join_and_with_one_byte_less_it_does() -> None:
    group = confirm(replace(SMALL_GAP, in_sync_replicas=3), members=())
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(1_200), flushed=at(1_200), now=2.0)

    group.slave_at("a/1", received=at(200), flushed=at(200), now=2.0)
    before = group.in_sync
    group.slave_at("a/1", received=at(1_200), flushed=at(1_200), now=2.0)
    group.master_at(written=at(2_199), flushed=at(2_199), now=2.0)

    assert (before, group.in_sync) == ((), ("a/1",))


def test_a_slave_that_left_joins_only_with_all_that_was_confirmed_without_it() -> None:
    group = confirm()
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.deadline_missed(at(100), since=1.0, now=4.0)
    group.deadline_missed(at(100), since=4.0, now=7.0)
    group.range_recorded()
    group.master_at(written=at(200), flushed=at(200), now=7.0)

    group.slave_at("a/1", received=at(199), flushed=at(199), now=8.0)
    before = (group.confirmed, group.in_sync)
    group.slave_at("a/1", received=at(200), flushed=at(200), now=8.0)

    assert (before, group.in_sync) == ((200, ()), ("a/1",))


def test_a_slave_on_another_disk_joins_only_with_what_is_the_end_now() -> None:
    group = confirm(replace(SMALL_GAP, in_sync_replicas=3))
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(500), flushed=at(500), now=1.0)
    group.disk_gone("a/1", "it has another disk", now=2.0)

    seen = []
    for end in (0, 499, 500):
        group.slave_at("a/1", received=at(end), flushed=at(end), now=2.0)
        seen.append(group.in_sync)

    assert seen == [(), (), ("a/1",)]


def test_a_deadline_that_ends_a_little_early_counts_and_one_that_ends_earlier_waits_for_the_groups_own() -> None:
    left = []
    for waited_s in (2.96, 2.9):
        group = confirm()
        group.master_at(written=at(100), flushed=at(100), now=0.0)
        group.deadline_missed(at(100), since=0.0, now=waited_s)
        group.deadline_missed(at(100), since=4.0, now=4.0 + waited_s)
        left.append(group.in_sync)

    assert left == [(), ("a/1",)]


def test_deadlines_missed_before_a_slave_is_in_sync_are_not_its_own() -> None:
    group = confirm(replace(SMALL_GAP, in_sync_replicas=3), members=())
    group.master_at(written=at(100), flushed=at(100), now=1.0)
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(200), flushed=at(200), now=1.0)
    group.deadline_missed(at(200), since=1.0, now=4.0)
    group.deadline_missed(at(200), since=4.0, now=7.0)

    group.slave_at("a/1", received=at(150), flushed=at(150), now=7.0)

    assert group.in_sync == ("a/1",)


def test_of_two_deadlines_the_first_counts_no_more_when_the_slave_has_left_between_them() -> None:
    group = confirm(replace(SMALL_GAP, in_sync_replicas=3))
    group.slave_at("a/1", received=at(0), flushed=at(0), now=1.0)
    group.master_at(written=at(900), flushed=at(900), now=1.0)
    group.deadline_missed(at(900), since=1.0, now=4.0)
    group.master_at(written=at(1_000), flushed=at(1_000), now=4.0)
    left = group.in_sync

    group.slave_at("a/1", received=at(500), flushed=at(500), now=4.0)
    group.deadline_missed(at(900), since=4.0, now=7.0)

    assert (left, group.in_sync) == ((), ("a/1",))


def test_a_member_of_the_last_run_that_catches_up_between_two_missed_deadlines_without_what_was_waited_for_leaves() -> None:
    group = confirm()
    group.master_at(written=at(900), flushed=at(900), now=1.0)
    group.deadline_missed(at(900), since=1.0, now=4.0)

    group.slave_at("a/1", received=at(500), flushed=at(500), now=4.0)
    view = group.view("a/1")
    group.deadline_missed(at(900), since=4.0, now=7.0)

    assert view is not None
    assert view.in_sync
    assert group.in_sync == ()


def test_the_limits_that_are_set_are_those_that_a_slave_is_judged_by() -> None:
    limits = ("ha_max_gap_bytes=7000", "ha_max_lag_ms=2500", "ack_timeout_ms=300")
    copies = ("replicas_expected=3", "in_sync_replicas=3", "min_in_sync_replicas=2")
    levels = ("mode=SYNC_MASTER", "flush_mode=ASYNC_FLUSH", "release_level=received")

    config = load(MasterConfig, None, {}, [f"replication.{setting}" for setting in (*limits, *copies, *levels)]).value

    assert confirm_rules(config.replication) == ConfirmRules(
        sync_master=True,
        sync_flush=False,
        release_flushed=False,
        in_sync_replicas=3,
        min_in_sync_replicas=2,
        max_gap_bytes=7_000,
        max_lag_s=2.5,
        write_deadline_s=0.3,
    )
