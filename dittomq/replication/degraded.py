"""Ranges of the log that fewer copies confirmed than asked, as every replica knows them. Pure.

A master writes a range down before anything in it is confirmed, and tells it to its slaves before it tells them that anything in it is.
Of its own term it alone knows; of what was before, whoever was there knows some, and together they know all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dittomq.offsets import PhysicalOffset

MAX_RANGES: Final = 1_000


@dataclass(frozen=True, slots=True)
class DegradedRange:
    """Bytes [start, end); `end` None: it goes on. `since_ms` is wall time. `messages` None: nobody knows."""

    start: PhysicalOffset
    end: PhysicalOffset | None
    since_ms: int | None = None
    messages: int | None = None


Degraded = tuple[DegradedRange, ...]
"""By their starts; they do not overlap, and only the last one may go on. At most 1,001: of more, the two oldest become one."""


def total_bytes(ranges: Iterable[DegradedRange], confirmed: PhysicalOffset) -> int:
    """Bytes in all ranges, up to what is confirmed in one that goes on."""
    return sum(max(0, (confirmed if each.end is None else each.end) - each.start) for each in ranges)


def clipped(ranges: Iterable[DegradedRange], end: PhysicalOffset) -> Degraded:
    """What was said of bytes of a log that ends at `end`: other bytes may come to lie behind it."""
    return tuple(
        each if each.end is None or each.end <= end else replace(each, end=end, messages=None) for each in ranges if each.start < end
    )


def told(ours: Iterable[DegradedRange], theirs: Sequence[DegradedRange], term_start: PhysicalOffset) -> Degraded:
    """What is known when a master tells `theirs`, whose term began at `term_start`."""
    before = (each if each.end is not None else replace(each, end=term_start, messages=None) for each in clipped(ours, term_start))
    return united(before, theirs)


def united(ours: Iterable[DegradedRange], theirs: Sequence[DegradedRange]) -> Degraded:
    """What both know. Of two that begin at one place, theirs counts; those that overlap are one, whose messages nobody knows."""
    said = {each.start for each in theirs}
    both: list[DegradedRange] = []
    for each in sorted([*theirs, *(each for each in ours if each.start not in said)], key=_start):
        last = both[-1] if both else None
        if last is None or (last.end is not None and last.end <= each.start):
            both.append(each)
        elif last.end is not None and (each.end is None or each.end > last.end):
            both[-1] = replace(last, end=each.end, messages=None)
    return tuple(bounded(both))


def bounded(ranges: list[DegradedRange]) -> list[DegradedRange]:
    """The same in 1,000 and one that goes on: what lies between the two oldest counts as degraded too."""
    while sum(each.end is not None for each in ranges) > MAX_RANGES:
        first, second = ranges[:2]
        messages = None if first.messages is None or second.messages is None else first.messages + second.messages
        ranges = [DegradedRange(first.start, second.end, first.since_ms, messages), *ranges[2:]]
    return ranges


def _start(each: DegradedRange) -> PhysicalOffset:
    return each.start
