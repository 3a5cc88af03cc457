"""Where messages of a batch lie, once they are stored."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple, Self

from dittomq.offsets import PhysicalOffset, QueueOffset


class AppendResult(NamedTuple):
    """Neighbours: one behind the other in their queue and, without a gap, in the log. The offsets are the first one's.

    `sizes` are their records' in bytes, `store_ms` is when the master stored them, `duplicate`: they were there before.
    """

    topic: str
    queue: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sizes: Sequence[int]
    store_ms: int
    duplicate: bool = False

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return sum(self.sizes)

    @property
    def end(self) -> PhysicalOffset:
        """Where the last one ends in the log."""
        return PhysicalOffset(self.physical_offset + self.size)

    def each(self) -> Iterator[Self]:
        """The messages one by one."""
        position = self.physical_offset
        for queue_offset, size in enumerate(self.sizes, self.queue_offset):
            yield self._replace(queue_offset=QueueOffset(queue_offset), physical_offset=position, sizes=[size])
            position = PhysicalOffset(position + size)


def split_at(runs: Iterable[AppendResult], borders: Sequence[PhysicalOffset]) -> list[AppendResult]:
    """The same messages in runs that cross none of these positions, at which records begin; in ascending order."""
    found: list[AppendResult] = []
    for run in runs:
        if bisect_right(borders, run.physical_offset) == bisect_left(borders, run.end):
            found.append(run)
            continue
        for _, part in groupby(run.each(), key=lambda one: bisect_right(borders, one.physical_offset)):
            found += concat(part)
    return found


def concat(runs: Iterable[AppendResult]) -> list[AppendResult]:
    """The same messages in as few runs as they fit into."""
    found: list[AppendResult] = []
    sizes: list[int] = []
    following = None
    for run in runs:
        topic, queue, queue_offset, physical_offset, mine, store_ms, duplicate = run
        if (topic, queue, queue_offset, physical_offset, store_ms, duplicate) != following:
            sizes = []
            found.append(run._replace(sizes=sizes))
        sizes += mine
        following = (topic, queue, queue_offset + len(mine), run.end, store_ms, duplicate)
    return found
