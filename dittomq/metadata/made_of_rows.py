"""What is made of each row of a table, one version after the other: of a table with 60,000 rows only what has changed is made again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, count
from operator import is_not
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Differing:
    """Where two sequences differ: `before[start:before_end]` stands for `now[start:now_end]`; around these, both have the same objects."""

    start: int
    before_end: int
    now_end: int


def differing(before: Sequence[Any], now: Sequence[Any]) -> Differing:
    """The one stretch that holds all differences; it is empty on both sides where there are none."""
    shorter = min(len(before), len(now))
    if before is now:
        return Differing(shorter, shorter, shorter)
    start = _same(before, now, shorter)
    end = min(_same(reversed(before), reversed(now), shorter), shorter - start)
    return Differing(start, len(before) - end, len(now) - end)


class MadeOfRows(Generic[R, T]):
    """Remembers the rows of the last version, and what `make` has made of each."""

    def __init__(self, make: Callable[[R], T]) -> None:
        self._make = make
        self._rows: tuple[R, ...] = ()
        self._made: tuple[T, ...] = ()

    def of(self, rows: Iterable[R]) -> tuple[T, ...]:
        """What is made of these rows, in their order; the same object as for the last ones where none has changed."""
        now = tuple(rows)
        where = differing(self._rows, now)
        if where.before_end > where.start or where.now_end > where.start:
            new = [self._make(row) for row in now[where.start : where.now_end]]
            self._made = (*self._made[: where.start], *new, *self._made[where.before_end :])
            self._rows = now
        return self._made


def _same(before: Iterable[Any], now: Iterable[Any], shorter: int) -> int:
    """How many objects are the same from the first on. In C, and without a look at the objects: they lie far apart in memory."""
    return next(compress(count(), map(is_not, before, now)), shorter)
