"""What may go of a log's beginning, and for whom it stays."""

from dataclasses import replace

from dittomq.commitlog.retention import Decision, DiskUse, LogFacts, RetentionFloor, RetentionRules, Segment, decide
from dittomq.offsets import PhysicalOffset

MIB = 1 << 20
HOUR_MS = 3_600_000
SEGMENTS = tuple(
    Segment(PhysicalOffset(number * 100), PhysicalOffset(number * 100 + 100), newest_ms=number * HOUR_MS, disk_bytes=10 * MIB)
    for number in range(10)
)
"""One an hour; the newest, the tenth, has just begun."""
LOG = LogFacts(SEGMENTS, PhysicalOffset(910), PhysicalOffset(950), DiskUse(1000 * MIB, 500 * MIB), now_ms=10 * HOUR_MS)
FOUR_HOURS = RetentionRules(max_age_ms=4 * HOUR_MS)


def hold(offset: int, name: str = "a/1", *, max_bytes: int | None = None, until_ms: int | None = None) -> RetentionFloor:
    return RetentionFloor(name, PhysicalOffset(offset), max_bytes, until_ms)


def test_without_rules_everything_is_kept() -> None:
    full = replace(LOG, disk=DiskUse(1000 * MIB, 0))

    assert RetentionRules().keep_all
    assert decide(full, RetentionRules(), []) == Decision(PhysicalOffset(0))


def test_segments_go_whose_newest_record_is_too_old() -> None:
    assert decide(LOG, FOUR_HOURS, []).min_offset == 600
    assert decide(replace(LOG, now_ms=LOG.now_ms + 1), FOUR_HOURS, []).min_offset == 700


def test_segment_of_unreadable_age_goes_only_with_a_later_one() -> None:
    unread = [replace(each, newest_ms=None) if each.start in {100, 500} else each for each in SEGMENTS]

    assert decide(replace(LOG, segments=unread), FOUR_HOURS, []).min_offset == 500
    assert decide(replace(LOG, segments=unread, now_ms=LOG.now_ms + 1), FOUR_HOURS, []).min_offset == 700


def test_the_newest_segment_stays_however_old_it_is() -> None:
    assert decide(replace(LOG, settled=LOG.end, now_ms=1_000 * HOUR_MS), FOUR_HOURS, []).min_offset == 900


def test_a_log_that_ends_with_its_segment_keeps_that_segment() -> None:
    whole = replace(LOG, settled=PhysicalOffset(1_000), end=PhysicalOffset(1_000), now_ms=1_000 * HOUR_MS)

    assert decide(whole, FOUR_HOURS, []).min_offset == 900


def test_nothing_that_is_not_settled_goes() -> None:
    assert decide(replace(LOG, settled=PhysicalOffset(399)), FOUR_HOURS, []).min_offset == 300


def test_a_full_disk_lets_the_oldest_go_until_it_is_no_fuller_than_the_rule() -> None:
    crowded = replace(LOG, disk=DiskUse(1000 * MIB, 225 * MIB))  # 77.5 %: 25 MiB too much

    assert decide(crowded, RetentionRules(max_used_percent=75), []).min_offset == 300
    assert decide(LOG, RetentionRules(max_used_percent=75), []).min_offset == 0


def test_disk_use_is_counted_in_blocks() -> None:
    crowded = replace(LOG, disk=DiskUse(1000 * MIB, 225 * MIB), segments=[replace(each, disk_bytes=26 * MIB) for each in SEGMENTS])

    assert decide(crowded, RetentionRules(max_used_percent=75), []).min_offset == 100


def test_a_slave_that_is_behind_holds_the_segment_it_needs_next() -> None:
    decision = decide(LOG, FOUR_HOURS, [hold(250), hold(950, "a/2")])

    assert decision == Decision(PhysicalOffset(200), held=(("a/1", 40 * MIB),))


def test_a_slave_that_is_further_behind_than_the_cap_holds_nothing() -> None:
    assert decide(LOG, FOUR_HOURS, [hold(250, max_bytes=700)]).min_offset == 200
    assert decide(LOG, FOUR_HOURS, [hold(250, max_bytes=699)]) == Decision(PhysicalOffset(600), lost=("a/1",))


def test_an_audit_holds_its_range_until_its_lease_is_over() -> None:
    lease = hold(0, "audit", until_ms=LOG.now_ms)

    assert decide(replace(LOG, now_ms=LOG.now_ms - 1), FOUR_HOURS, [lease]).min_offset == 0
    assert decide(LOG, FOUR_HOURS, [lease]) == Decision(PhysicalOffset(600), lost=("audit",))


def test_holds_give_way_only_above_the_forced_limit_and_only_as_far_as_it_takes() -> None:
    crowded = replace(LOG, disk=DiskUse(1000 * MIB, 125 * MIB))
    rules = RetentionRules(max_used_percent=75, forced_used_percent=85)

    decision = decide(crowded, rules, [hold(120)])

    assert decision.min_offset == 300
    assert decision.lost == ("a/1",)
    assert decision.held == (("a/1", 60 * MIB),)


def test_a_log_that_began_later_never_begins_earlier() -> None:
    late = replace(LOG, segments=SEGMENTS[5:])

    assert decide(late, RetentionRules(max_age_ms=9 * HOUR_MS), []).min_offset == 500


def test_who_wants_what_is_not_here_any_more_holds_nothing() -> None:
    late = replace(LOG, segments=SEGMENTS[3:])

    assert decide(late, FOUR_HOURS, [hold(299)]) == Decision(PhysicalOffset(600))
    assert decide(late, FOUR_HOURS, [hold(299), hold(300, "a/2")]) == Decision(PhysicalOffset(300), held=(("a/2", 30 * MIB),))
