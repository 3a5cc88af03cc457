"""A sample of `make explore`: the smallest worlds, and bugs that show early in them."""

import time

import pytest

from tests.explore.bugs import BUGS, Bug
from tests.explore.explorer import explore
from tests.explore.values import SmallBounds
from tests.explore.world import SmallWorld
from tests.explore.worlds import SMALLEST

_NEVER = float("inf")
EARLY = [bug for bug in BUGS if bug.name in {"old-version-proves", "new-record-alone", "no-holders", "quorum-too-small"}]


@pytest.mark.parametrize("bounds", SMALLEST, ids=str)
def test_no_order_of_events_in_a_small_world_breaks_a_promise(bounds: SmallBounds) -> None:
    found = explore(SmallWorld(bounds), until=_NEVER, recover_each=200)

    assert (found.problem, found.trace, found.is_exhausted) == ("", (), True)


@pytest.mark.parametrize("bug", EARLY, ids=lambda bug: bug.name)
def test_the_explorer_finds_a_rule_that_is_left_out(bug: Bug) -> None:
    with bug.planted() as world:
        found = explore(world, until=_NEVER)

    assert found.problem
    assert found.trace


def test_states_that_differ_only_in_which_replica_is_which_count_as_one() -> None:
    world = SmallWorld(SMALLEST[0])
    every, waiting = {world.first()}, [world.first()]
    while waiting:
        new = {reached for _, reached, _ in world.steps(waiting.pop())} - every
        every |= new
        waiting += new

    folded = explore(SmallWorld(SMALLEST[0]), until=_NEVER)

    assert len({world.canonical(state) for state in every}) == folded.states < len(every)


def test_a_world_that_is_not_exhausted_says_so() -> None:
    found = explore(SmallWorld(SmallBounds(copies=2, epochs=3, appends=2, changes=2)), until=time.monotonic())

    assert (found.is_exhausted, found.problem) == (False, "")
