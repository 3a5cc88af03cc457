"""Lags as times, and rates."""

import random

from dittomq.offsets import PhysicalOffset
from dittomq.replication.lag import LagHistory, Rate


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def test_lag_in_time_is_the_age_of_the_end_that_a_copy_holds() -> None:
    history = LagHistory()
    for second in range(10):
        history.mark(at(second * 100), float(second))

    assert history.lag_s(at(900), at(900), 9.0) == 0.0
    assert history.lag_s(at(450), at(900), 9.5) == 5.5
    assert history.lag_s(None, at(900), 9.5) is None
    assert LagHistory().lag_s(at(0), at(900), 9.5) is None


def test_lag_of_days_is_known_to_the_minute() -> None:
    """One from before all marks is unknown."""
    history = LagHistory()
    for mark in range(3 * 86_400):
        history.mark(at(mark + 100), float(mark))

    lag_s = history.lag_s(at(500), at(3 * 86_400 + 99), 3 * 86_400.0)

    assert lag_s is not None
    assert 3 * 86_400 - 400 <= lag_s <= 3 * 86_400 - 400 + 60
    assert history.lag_s(at(99), at(3 * 86_400 + 99), 3 * 86_400.0) is None


def test_a_rate_is_what_went_in_the_last_five_seconds() -> None:
    rate = Rate()
    for tenth in range(200):
        rate.add(1_000 if tenth < 100 else 3_000, tenth / 10)

    assert 29_000 <= rate.bytes_per_s(20.0) <= 31_000


def test_a_rate_counts_from_when_bytes_began_to_flow() -> None:
    rate = Rate()
    for tenth in range(20):
        rate.add(1_000, 100 + tenth / 10)

    assert 9_500 <= rate.bytes_per_s(102.0) <= 10_500
    assert Rate().bytes_per_s(1.0) == 0


def test_one_small_chunk_is_no_great_rate() -> None:
    rate = Rate()
    rate.add(100, 7.0)

    assert rate.bytes_per_s(7.0) == 100


def test_a_rate_falls_to_nothing_when_nothing_goes() -> None:
    rate = Rate()
    rate.add(10_000, 0.0)

    assert [rate.bytes_per_s(float(second)) for second in (1, 2, 5, 6)] == [10_000, 5_000, 2_000, 0]


class Compared(int):
    """A position that counts how often it is compared."""

    times = 0

    def __lt__(self, other: int) -> bool:
        type(self).times += 1
        return int(self) < other

    def __ge__(self, other: int) -> bool:
        type(self).times += 1
        return int(self) >= other


def test_a_look_at_a_week_of_marks_takes_a_few_steps() -> None:
    history = LagHistory()
    for number in range(12_000):
        history.mark(at(1_000 + number), 60.0 * number)

    Compared.times = 0
    assert history.lag_s(PhysicalOffset(Compared(1_000)), at(20_000), 60.0 * 12_000) is None
    assert history.lag_s(PhysicalOffset(Compared(5_000)), at(20_000), 60.0 * 12_000) == 60.0 * 8_000
    assert Compared.times < 100


def test_of_an_end_that_goes_back_the_newest_mark_before_a_position_counts() -> None:
    chance = random.Random(7)
    history, marks = LagHistory(), list[tuple[float, int]]()
    for number in range(2_000):
        end = max(0, (marks[-1][1] if marks else 0) + chance.randrange(-40, 60))
        marks.append((number * 0.5, end))
        history.mark(at(end), number * 0.5)

    for position in range(0, marks[-1][1], 7):
        newest = max((when for when, end in marks if end <= position), default=None)
        assert history.lag_s(at(position), at(marks[-1][1]), 1_000.0) == (None if newest is None else 1_000.0 - newest)
