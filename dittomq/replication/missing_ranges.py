"""Which copies do not hold bytes that they hold what lies behind of: left out, for they were damaged, or rotten since. Pure."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import Final

from dittomq.offsets import PhysicalOffset

Ranges = Sequence[tuple[int, int]]
"""Bytes of the log, each [start, end), in order."""
MissingRanges = tuple[tuple[PhysicalOffset, PhysicalOffset], ...]
"""What a slave says that it lacks: bytes of the log, each [start, end), in order."""
_MOST_LEFT_OUT: Final = 64


class MissingInGroup:
    """Those of one group. `own` are the master's own, in order; those of slaves are kept by name, heard or not."""

    def __init__(self) -> None:
        self.own: Ranges = ()
        self._slaves: dict[str, list[tuple[PhysicalOffset, PhysicalOffset]]] = {}

    def add(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """That slave lacks [start, end) too. Of more than 64 ranges the two oldest become one, with what lies between them."""
        missing_ranges = self._slaves.setdefault(node, [])
        missing_ranges.append((start, end))
        if len(missing_ranges) > _MOST_LEFT_OUT:
            (low, high), (first, last), *rest = missing_ranges
            missing_ranges[:] = [(min(low, first), max(high, last)), *rest]

    def end_at(self, node: str, end: PhysicalOffset) -> None:
        """That slave holds nothing behind `end`."""
        if node in self._slaves:
            self._slaves[node] = [(low, min(high, end)) for low, high in self._slaves[node] if low < end]

    def remove_before(self, node: str, end: PhysicalOffset) -> None:
        """What that slave lacks before `end` it says again."""
        if node in self._slaves:
            self._slaves[node] = [(max(low, end), high) for low, high in self._slaves[node] if high > end]

    def forget(self, node: str) -> None:
        """That slave lacks nothing, or holds nothing at all."""
        self._slaves.pop(node, None)

    def master(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether the master lacks some of [start, end)."""
        at = bisect_right(self.own, start, key=itemgetter(1))  # the first that ends behind `start`
        return at < len(self.own) and self.own[at][0] < end

    def slave(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether that slave lacks some of [start, end)."""
        return any(max(low, start) < min(high, end) for low, high in self._slaves.get(node, ()))

    def after(self, offset: PhysicalOffset) -> Iterator[tuple[PhysicalOffset, PhysicalOffset]]:
        """Ranges that end behind `offset`: the master's, then those of slaves."""
        for start, end in self.own[bisect_right(self.own, offset, key=itemgetter(1)) :]:
            yield PhysicalOffset(start), PhysicalOffset(end)
        yield from ((start, end) for start, end in chain.from_iterable(self._slaves.values()) if end > offset)
