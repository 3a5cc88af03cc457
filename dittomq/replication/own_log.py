"""What a starting master finds on its disk."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dittomq.lineage import Lineage, newest_epoch, newest_opener, rank
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.routes import NO_OPENING, Claim, Opening

_NOTHING = PhysicalOffset(0)
Ranges = Sequence[tuple[int, int]]
"""Bytes of the log, each [start, end), in order."""


class Stopped(StrEnum):
    """How the store's last process ended, as far as its log is concerned."""

    WHOLE = "whole"
    POWER_LOSS = "power loss"
    FAILED_SYNC = "failed fsync"
    EMPTY = "empty"
    INCOMPLETE = "incomplete"

    @property
    def lacks_most(self) -> bool:
        """Whether the disk cannot be expected to hold anything that was confirmed."""
        return self in {Stopped.EMPTY, Stopped.INCOMPLETE}


@dataclass(frozen=True, slots=True)
class OwnLog:
    """What this master found on its disk. `granted` is the epoch that its last promotion gave it, None when it was never promoted.

    `is_noted`: that so many nodes had noted it for this one that too few were left to confirm anything in another's epoch of that number.

    `unread` are damaged bytes, [start, end), which may hold the newest messages of queues and producers.
    `accepted_loss`: what the operator gave up when it was granted, in words; empty for nothing.
    `tables_restored`: one of its tables came from its `.bak` and may lack a change that slaves have.
    `told`: the newest epoch that an earlier life of this node was told of.
    `confirmed`: up to there it is known to be confirmed; more may be.
    `tables_epoch`: the newest version of its tables, which RocketMQ may have given them; those of an epoch that is opened must be newer.
    """

    node: str
    stopped: Stopped
    end: PhysicalOffset
    lineage: Lineage
    node_id: int = 0
    granted: Epoch | None = None
    unread: Ranges = ()
    accepted_loss: str = ""
    tables_restored: bool = False
    told: Opening = NO_OPENING
    confirmed: PhysicalOffset = _NOTHING
    is_noted: bool = False
    tables_epoch: Epoch = NO_EPOCH

    @property
    def is_freshly_granted(self) -> bool:
        """Whether a promotion lets it open an epoch that it has not opened yet."""
        return self.granted is not None and self.granted > newest_epoch(self.lineage)

    @property
    def known_epoch(self) -> Epoch:
        """The newest epoch that another node may have opened as far as this one was ever told."""
        return Epoch(self.granted - 1) if self.granted and self.is_freshly_granted else newest_epoch(self.lineage)

    @property
    def outgrown_epoch(self) -> Epoch:
        """What it opens is newer than that, unless it opens what it was granted."""
        return self.known_epoch if self.is_freshly_granted else max(self.known_epoch, self.tables_epoch)

    @property
    def gave_up_epoch(self) -> bool:
        """Whether it has led in the newest epoch of its log, and then found that its slaves have confirmed what it lacks."""
        return self.stopped is Stopped.INCOMPLETE and self.told == self.newest and self.newest.opener_id == self.node_id

    def knows_beyond(self, common: PhysicalOffset) -> bool:
        """Whether more than that is known to be confirmed here. What one that gave its epoch up knows of that one counts no more."""
        return self.confirmed > common and self.stopped is not Stopped.EMPTY and not self.gave_up_epoch

    def lost_with(self, node: str, lineage: Lineage, end: PhysicalOffset, common: PhysicalOffset) -> str:
        """What is known here to be confirmed and that log lacks, in words, where this is a part of a log and that one outranks it."""
        if self.stopped is not Stopped.INCOMPLETE or not self.knows_beyond(common) or rank(lineage, end) <= rank(self.lineage, self.end):
            return ""
        return f"{self.confirmed:,} bytes are known here to be confirmed and the newer log of {node} has only {common:,} of them"

    @property
    def held_epoch(self) -> Epoch:
        """The epoch that another node's must exceed to be followed.

        One that holds no bytes was perhaps opened by a node that died over it, so that nobody heard of it and another one was granted the
        same number. Then it gives way, unless it was granted too; but to none of those whom its promotion went past. One that gave its
        epoch up gives way to whoever leads in one of that number.
        """
        if self.gave_up_epoch:
            return Epoch(newest_epoch(self.lineage) - 1)
        if self.is_freshly_granted or not self.lineage or self._has_written or self.opened_its_grant:
            return self.known_epoch
        return max(newest_epoch(self.lineage[:-1]), self.granted or Epoch(0))

    @property
    def newest(self) -> Opening:
        """The newest epoch of its log, and who opened it."""
        return Opening(newest_epoch(self.lineage), newest_opener(self.lineage))

    @property
    def claim(self) -> Claim:
        """Why it leads, if it does in the newest epoch of its log."""
        return Claim(self.newest, self.granted)

    @property
    def opened_its_grant(self) -> bool:
        """Whether the newest epoch of its log is the one that its last promotion gave it."""
        return self.granted is not None and self.granted == newest_epoch(self.lineage)

    @property
    def stands_by_its_grant(self) -> bool:
        """Whether it opened that epoch, and gives way to nobody who leads in one of that number by a lower claim.

        Nobody had heard of an epoch that too few had noted and that holds no bytes: to give it up loses nothing.
        """
        return self.opened_its_grant and (self.is_noted or self._has_written)

    @property
    def _has_written(self) -> bool:
        """Whether the newest epoch of its log, if there is one, holds a byte."""
        return bool(self.lineage) and self.lineage[-1].start < self.end

    @property
    def may_give_up_epoch(self) -> bool:
        """Whether it opened the newest epoch of its log, and has not given that up, nor was told of one that counts more."""
        return (
            not self.gave_up_epoch
            and self.newest.opener_id == self.node_id
            and (self.told == self.newest or self.told.epoch < self.newest.epoch)
        )
