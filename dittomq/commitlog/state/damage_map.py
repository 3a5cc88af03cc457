"""What of the log this copy does not hold whole: `dittomq/damaged`. Bytes that rotted, and holes that its master told it of.

A range begins where a record does and ends where the next one known to be whole begins, within one segment. A hole is written
down before anything behind it is, so nothing that a start finds behind one is taken for a torn tail.

*Unread* are those of them whose records this store's queues and producers never took in, so that a message in them may have any offset in
its queue and any sequence; and what was lost with a segment's file. They stay so while the checkpoint moves on behind them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, NamedTuple, Self

from msgspec import Meta

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.state_file import Number
from dittomq.commitlog.disk.storage import Storage

MAX_RANGES = 10_000
"""Of more, those that lie closest together are taken for one, as far as they share a segment."""

ROW_BYTES = 128
"""What is written down of a range, at most."""

_NAME = "damaged"
_KIND = b"DAMG"
# The third number of a row that says a second time of a range that it is unread.
_UNREAD = 1


_Row = Annotated[list[Number], Meta(min_length=2, max_length=3)]


class DamagedRange(NamedTuple):
    """Bytes [start, end) of the log."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class DamagedRanges:
    """Ranges in order, none of which touches another of its segment."""

    ranges: tuple[DamagedRange, ...] = ()

    @property
    def total_bytes(self) -> int:
        """How much is damaged."""
        return sum(end - start for start, end in self.ranges)

    def touches(self, start: int, end: int) -> bool:
        """Whether any byte of [start, end) is damaged."""
        return any(low < end and start < high for low, high in self.ranges)

    def within(self, start: int, end: int) -> tuple[DamagedRange, ...]:
        """The ranges that have a byte in [start, end), whole."""
        return tuple(each for each in self.ranges if each.start < end and start < each.end)

    def whole_end(self, end: int) -> int:
        """Up to where nothing is damaged, `end` at most."""
        return min([end, *(each.start for each in self.ranges[:1])])

    def end_over(self, position: int) -> int | None:
        """Where the range ends in which `position` lies; None when it lies in none."""
        return next((high for low, high in self.ranges if low <= position < high), None)

    def with_range(self, start: int, end: int, segment_bytes: int) -> Self:
        """These and [start, end), which lies in one segment."""
        joined: list[DamagedRange] = []
        for low, high in sorted((*self.ranges, (start, end))):
            if joined and low <= joined[-1].end and low // segment_bytes == joined[-1].start // segment_bytes:
                joined[-1] = DamagedRange(joined[-1].start, max(joined[-1].end, high))
            else:
                joined.append(DamagedRange(low, high))
        while len(joined) > MAX_RANGES:
            gaps = [
                (after.start - before.end, at)
                for at, (before, after) in enumerate(pairwise(joined))
                if before.start // segment_bytes == after.start // segment_bytes
            ]
            if not gaps:
                break
            _, at = min(gaps)
            joined[at : at + 2] = [DamagedRange(joined[at].start, joined[at + 1].end)]
        return type(self)(tuple(joined))

    def without(self, start: int, end: int) -> Self:
        """What is left when [start, end) is whole."""
        kept: list[DamagedRange] = []
        for low, high in self.ranges:
            kept += [DamagedRange(*each) for each in ((low, min(high, start)), (max(low, end), high)) if each[0] < each[1]]
        return type(self)(tuple(kept))

    def without_all(self, others: Self) -> Self:
        """What is left when all of `others` is whole."""
        left = self
        for start, end in others.ranges:
            left = left.without(start, end)
        return left

    def clipped(self, start: int, end: int) -> Self:
        """What lies in [start, end)."""
        return type(self)(tuple(DamagedRange(max(low, start), min(high, end)) for low, high in self.ranges if low < end and start < high))


class DamageMap(NamedTuple):
    """What is written down. `unread` are bytes of `damage`."""

    damage: DamagedRanges = DamagedRanges()
    unread: DamagedRanges = DamagedRanges()

    def clipped(self, start: int, end: int) -> "DamageMap":
        """What lies in [start, end)."""
        return DamageMap(self.damage.clipped(start, end), self.unread.clipped(start, end))

    def with_range(self, start: int, end: int, segment_bytes: int, *, unread: DamagedRanges) -> "DamageMap":
        """These and [start, end), which lies in one segment, and of which so much is unread as `unread` says."""
        hidden = self.unread
        for low, high in unread.clipped(start, end).ranges:
            hidden = hidden.with_range(low, high, segment_bytes)
        return DamageMap(self.damage.with_range(start, end, segment_bytes), hidden)

    def with_unread(self, start: int, end: int, segment_bytes: int) -> "DamageMap":
        """These and [start, end), which lies in one segment and was not taken in."""
        return self.with_range(start, end, segment_bytes, unread=DamagedRanges((DamagedRange(start, end),)))

    def without_all(self, others: "DamageMap") -> "DamageMap":
        """What is left when all of `others` is whole."""
        return DamageMap(self.damage.without_all(others.damage), self.unread.without_all(others.damage))


def load(storage: Storage) -> DamageMap:
    """What is written down; nothing when there is no such file. Raises CorruptStateFile."""
    rows = state_file.load_json(storage, _NAME, _KIND, list[_Row]) or []
    return DamageMap(_of(row for row in rows if len(row) == 2), _of(row[:2] for row in rows if len(row) > 2))


def save(storage: Storage, register: DamageMap) -> None:
    """Durably write it down. One caller at a time."""
    unread = [(*each, _UNREAD) for each in register.unread.ranges]
    state_file.save_json(storage, _NAME, _KIND, [*register.damage.ranges, *unread])


def remove(storage: Storage) -> None:
    """Durably forget all of it: what is damaged has to be found again."""
    state_file.remove(storage, _NAME)


def truncate(storage: Storage, to: int) -> None:
    """Durably forget what lies at or behind `to`, where the log is cut."""
    register = load(storage)
    if register.clipped(0, to) != register:
        save(storage, register.clipped(0, to))


def _of(rows: Iterable[Sequence[int]]) -> DamagedRanges:
    return DamagedRanges(tuple(DamagedRange(start, end) for start, end in rows))
