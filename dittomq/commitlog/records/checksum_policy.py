"""Whose records a stretch of the log holds, and so which checksum decides there. Pure.

Every record of an epoch of ours is sealed: it carries the record CRC. Elsewhere that property is not looked at, because RocketMQ
copies it into redeliveries without computing it again; there lengths, position and the body's CRC decide.
"""

import sys
from bisect import bisect_right
from typing import NamedTuple

from dittomq.epoch_history import FOREIGN, EpochHistory

FOREVER = sys.maxsize


class SealedRange(NamedTuple):
    """Bytes [start, end) of the log; `sealed`: epochs of ours wrote all of them. The last stretch never ends."""

    start: int
    end: int
    sealed: bool


class ChecksumPolicy:
    """What an epoch history says of every byte. One thread changes it, any number ask."""

    def __init__(self, epoch_history: EpochHistory) -> None:
        self.sealed_ranges: tuple[SealedRange, ...] = ()
        self.adopt(epoch_history)

    def adopt(self, epoch_history: EpochHistory) -> None:
        """Go by this epoch history from now on."""
        borders = [(0, False), *((entry.start, entry.master_id != FOREIGN) for entry in epoch_history)]
        ends = [*(start for start, _ in borders[1:]), FOREVER]
        joined: list[SealedRange] = []
        for (start, sealed), end in zip(borders, ends, strict=True):
            if joined and joined[-1].sealed == sealed:
                joined[-1] = SealedRange(joined[-1].start, end, sealed)
            elif start < end:
                joined.append(SealedRange(start, end, sealed))
        self.sealed_ranges = tuple(joined)

    def at(self, position: int) -> SealedRange:
        """The stretch in which a byte lies."""
        sealed_ranges = self.sealed_ranges
        last = sealed_ranges[-1]
        if position >= last.start:
            return last
        return sealed_ranges[bisect_right(sealed_ranges, position, key=_start_of) - 1]

    def end_at(self, position: int) -> None:
        """Take nothing from `position` on for ours."""
        kept = [
            sealed_range._replace(end=min(sealed_range.end, position))
            for sealed_range in self.sealed_ranges
            if sealed_range.start < position
        ]
        self.sealed_ranges = (*kept, SealedRange(position, FOREVER, sealed=False))


def _start_of(sealed_range: SealedRange) -> int:
    return sealed_range.start
