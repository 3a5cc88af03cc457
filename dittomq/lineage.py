"""Which masters wrote which stretches of a log. Values and one rule; both stores and sessions agree on them."""

from collections.abc import Sequence
from dataclasses import dataclass

from dittomq.offsets import Epoch, PhysicalOffset


@dataclass(frozen=True, slots=True)
class LineageEntry:
    """The log from `start` to the next entry's start was written by the master that opened `epoch`.

    `incarnation` is a random 64-bit number of that opening: two masters that both took one epoch differ here.
    """

    epoch: Epoch
    opener_id: int
    incarnation: int
    start: PhysicalOffset


Lineage = tuple[LineageEntry, ...]
"""Oldest first; epochs and starts both grow."""


def newest_epoch(lineage: Sequence[LineageEntry]) -> Epoch:
    """The last entry's epoch, 0 for an empty lineage."""
    return lineage[-1].epoch if lineage else Epoch(0)


def common_end(*, ours: Lineage, our_end: PhysicalOffset, theirs: Lineage, their_end: PhysicalOffset) -> PhysicalOffset:
    """Up to where two logs were written by the same masters; beyond it nothing is known to be equal. 0 when nothing is."""
    shared = 0
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            break
        shared += 1
    if shared == 0:
        return PhysicalOffset(0)
    our_stop = ours[shared].start if shared < len(ours) else our_end
    their_stop = theirs[shared].start if shared < len(theirs) else their_end
    return PhysicalOffset(max(0, min(our_stop, their_stop, our_end, their_end)))


def cut_lineage(lineage: Lineage, end: PhysicalOffset) -> Lineage:
    """The lineage of a log that was cut to `end`: entries that hold no byte below it are gone."""
    return tuple(entry for entry in lineage if entry.start < end)


def epoch_at(lineage: Sequence[LineageEntry], position: PhysicalOffset) -> Epoch:
    """Epoch of the byte at `position`; 0 when no entry covers it."""
    found = Epoch(0)
    for entry in lineage:
        if entry.start > position:
            break
        found = entry.epoch
    return found
