"""Who is asked about a transaction, and what is kept of producers that have left."""

import pytest

from dittomq.errors import LimitReached
from services.master.check_watchers import MAX_WATCHERS, CheckWatchers


def test_producers_of_a_group_are_asked_in_turn() -> None:
    watchers = CheckWatchers()
    with watchers.watching("billing") as one, watchers.watching("billing") as other, watchers.watching("mail"):
        assert [watchers.next_of("billing") for _ in range(3)] == [one, other, one]
    assert watchers.next_of("billing") is None


def test_groups_that_nobody_watches_for_any_more_are_forgotten() -> None:
    watchers = CheckWatchers()
    for number in range(MAX_WATCHERS + 1):
        with watchers.watching(f"group{number}"):
            assert watchers.groups == {f"group{number}"}

    assert watchers.groups == frozenset()


def test_watchers_beyond_the_limit_are_refused_whatever_their_group() -> None:
    watchers = CheckWatchers()
    held = [watchers.watching(f"group{number}") for number in range(MAX_WATCHERS)]
    for each in held:
        each.__enter__()

    with pytest.raises(LimitReached), watchers.watching("one more"):
        pass
    assert len(watchers.groups) == MAX_WATCHERS
