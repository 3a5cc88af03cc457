"""When a call on the disk has hung for too long."""

from services.disk_watchdog import DiskWatchdog

HUNG = ("fdatasync", "/data/commitlog/0")


def test_a_call_that_is_under_way_at_every_look_hangs_when_the_limit_is_reached() -> None:
    patience = DiskWatchdog(limit_s=2.0, look_every_s=0.5)

    looks = [patience.look([HUNG], 0.5) for _ in range(5)]

    assert looks == [None, None, None, None, HUNG]


def test_calls_that_follow_each_other_never_hang() -> None:
    patience = DiskWatchdog(limit_s=1.0, look_every_s=0.5)

    assert all(patience.look([("fdatasync", f"{number}")], 0.5) is None for number in range(10))


def test_a_process_that_stood_still_counts_two_looks_at_most() -> None:
    patience = DiskWatchdog(limit_s=30.0, look_every_s=0.5)

    patience.look([HUNG], 0.5)

    assert patience.look([HUNG], 3_600.0) is None
    assert [patience.look([HUNG], 0.5) for _ in range(57)] == [None] * 57
    assert patience.look([HUNG], 0.5) is HUNG


def test_other_calls_beside_it_do_not_make_it_younger() -> None:
    patience = DiskWatchdog(limit_s=1.0, look_every_s=0.5)

    patience.look([HUNG], 0.5)
    patience.look([("write", "a"), HUNG], 0.5)

    assert patience.look([HUNG, ("write", "b")], 0.5) is HUNG
