from hypothesis import given
from hypothesis import strategies as st

from dittomq.consumer.retries import DeadLetter, RetryAfter, decide_retry

LEVELS = 18


def test_delays_grow_with_the_tries_from_level_3_to_the_last() -> None:
    found = [decide_retry(times, 20, LEVELS) for times in range(20)]

    assert found == [RetryAfter(min(3 + times, 18), times + 1) for times in range(20)]


@given(most=st.integers(0, 40), level=st.integers(0, 18) | st.none())
def test_every_message_is_given_up_after_as_many_tries_as_the_group_allows(most: int, level: int | None) -> None:
    times = tries = 0
    while isinstance(decided := decide_retry(times, most, LEVELS, level=level), RetryAfter):
        assert decided.times == times + 1
        times, tries = decided.times, tries + 1

    assert tries == most
    assert decided == DeadLetter(most)


def test_a_negative_level_gives_a_message_up_at_once() -> None:
    assert decide_retry(0, 16, LEVELS, level=-1) == DeadLetter(0)
