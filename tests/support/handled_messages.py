"""What members of a consumer group handled, and the judge of it."""

from collections.abc import Sequence
from dataclasses import dataclass

_EXPLAINED_S = 3.0  # a member commits once a second


@dataclass(frozen=True, slots=True)
class Handled:
    """A message as a member handled it, at the wall time `at`."""

    at: float
    life: str
    queue: int
    offset: int
    body: str


@dataclass(frozen=True, slots=True)
class GroupTally:
    """What a soak came to."""

    acknowledged: int
    handled: int
    twice: int
    kills: int


def judge(acknowledged: set[str], handled: Sequence[Handled], kills: Sequence[float]) -> GroupTally:
    """AssertionError for a message that nobody handled, or that was handled twice, or out of order, without a reason."""
    first: dict[str, Handled] = {}
    newest: dict[tuple[str, int], Handled] = {}
    twice = 0
    for each in handled:
        before = first.setdefault(each.body, each)
        if before is not each:
            twice += 1
            assert _is_explained(before.at, each.at, kills), f"message {each.body} was handled twice without a kill: {before}, {each}"
        last = newest.get((each.life, each.queue))
        if last is not None and each.offset <= last.offset:
            assert _is_explained(last.at, each.at, kills), f"queue {each.queue} went back without a kill: {last}, {each}"
        newest[each.life, each.queue] = each
    missing = acknowledged - first.keys()
    assert not missing, f"{len(missing):,} acknowledged messages were not handled, {min(missing)} for one"
    return GroupTally(len(acknowledged), len(handled), twice, len(kills))


def _is_explained(first: float, second: float, kills: Sequence[float]) -> bool:
    return any(first - _EXPLAINED_S <= kill <= second for kill in kills)
