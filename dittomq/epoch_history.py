"""Which masters wrote which stretches of a log. Values and one rule; both stores and sessions agree on them.

What lies before the first entry, and what entries of the master FOREIGN begin, no master of ours wrote: RocketMQ did.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from dittomq.offsets import LAST_EPOCH, Epoch, PhysicalOffset

FOREIGN = -1
"""The master of bytes that no master of ours wrote."""


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """The log from `start` to the next entry's start was written by the master that opened `epoch`.

    `incarnation` is a random 64-bit number of that opening: two masters that both took one epoch differ here. A stretch of the
    master FOREIGN is of no epoch: it carries the number of the one before it, and a digest of its first record as incarnation.
    """

    epoch: Epoch
    master_id: int
    incarnation: int
    start: PhysicalOffset


EpochHistory = tuple[EpochEntry, ...]
"""Oldest first; starts grow, and so do epochs, except that a foreign stretch has its predecessor's."""


def newest_epoch(epoch_history: Sequence[EpochEntry]) -> Epoch:
    """The last entry's epoch, 0 for an empty epoch history."""
    return epoch_history[-1].epoch if epoch_history else Epoch(0)


def newest_incarnation(epoch_history: Sequence[EpochEntry]) -> int | None:
    """The last entry's incarnation; None for an empty epoch history."""
    return epoch_history[-1].incarnation if epoch_history else None


def grows(epoch_history: EpochHistory) -> bool:
    """Whether starts and epochs are in order, and each is one that files hold."""
    return newest_epoch(epoch_history) <= LAST_EPOCH and all(
        before.start < after.start and (before.epoch < after.epoch or (after.master_id == FOREIGN and before.epoch == after.epoch))
        for before, after in pairwise(epoch_history)
    )


def last_own_end(epoch_history: EpochHistory, end: PhysicalOffset) -> PhysicalOffset:
    """One past the last byte of a log that ends at `end` that a master of ours wrote; `end` when none ever wrote there."""
    stop = end
    for entry in reversed(epoch_history):
        if entry.master_id != FOREIGN:
            return stop
        stop = entry.start
    return end


def last_foreign_end(epoch_history: EpochHistory, end: PhysicalOffset) -> PhysicalOffset:
    """One past the last byte of a log that ends at `end` that no master of ours wrote; 0 when ours wrote all of it."""
    stop = end
    for entry in reversed(epoch_history):
        if entry.master_id == FOREIGN:
            return stop
        stop = entry.start
    return stop


def common_end(*, ours: EpochHistory, our_end: PhysicalOffset, theirs: EpochHistory, their_end: PhysicalOffset) -> PhysicalOffset:
    """Up to where two logs may be equal by who wrote them; beyond it nothing is known to be. Content decides whether they are.

    What lies before both first epochs is taken for a copy of one RocketMQ log until the content says otherwise.
    """
    shared = 0
    for mine, other in zip(ours, theirs, strict=False):
        if mine != other:
            break
        shared += 1
    our_stop = ours[shared].start if shared < len(ours) else our_end
    their_stop = theirs[shared].start if shared < len(theirs) else their_end
    return PhysicalOffset(max(0, min(our_stop, their_stop, our_end, their_end)))


def truncate_history(epoch_history: EpochHistory, end: PhysicalOffset) -> EpochHistory:
    """The epoch history of a log that was cut to `end`: entries that hold no byte below it are gone."""
    return tuple(entry for entry in epoch_history if entry.start < end)


def entry_at(epoch_history: Sequence[EpochEntry], position: PhysicalOffset) -> EpochEntry | None:
    """The entry that covers the byte at `position`; None when none does."""
    return next((entry for entry in reversed(epoch_history) if entry.start <= position), None)


def master_ids_of(epoch_history: Sequence[EpochEntry], start: int, end: int) -> set[int]:
    """Configured ids of the masters that wrote [start, end), and FOREIGN where none of ours did."""
    first = entry_at(epoch_history, PhysicalOffset(start))
    return {FOREIGN if first is None else first.master_id, *(entry.master_id for entry in epoch_history if start < entry.start < end)}


def epoch_end_offset(epoch_history: Sequence[EpochEntry], position: PhysicalOffset, limit: int) -> PhysicalOffset:
    """Where the bytes of one entry end, from `position` on; at most `limit`."""
    return PhysicalOffset(min([limit, *(entry.start for entry in epoch_history if entry.start > position)]))


def epoch_at(epoch_history: Sequence[EpochEntry], position: PhysicalOffset) -> Epoch:
    """Epoch of the byte at `position`; 0 when no entry covers it."""
    entry = entry_at(epoch_history, position)
    return Epoch(0) if entry is None else entry.epoch


def start_of_later_epochs(epoch_history: Sequence[EpochEntry], epoch: int) -> PhysicalOffset | None:
    """Where the first master of a later epoch began to write; None when none did."""
    return next((entry.start for entry in epoch_history if entry.epoch > epoch), None)


def end_of_epoch(epoch_history: Sequence[EpochEntry], epoch: int) -> PhysicalOffset | None:
    """Where the stretch that the master of `epoch` wrote ends; None for an epoch that wrote nothing, and for the newest."""
    entries = pairwise(epoch_history)
    return next((after.start for entry, after in entries if entry.epoch == epoch and entry.master_id != FOREIGN), None)
