"""⑦ What is confirmed: below it nothing is ever undone.

Pure. Fed with the master's own positions, with acks of slaves whose lineage was accepted, and with missed deadlines;
answers how far each level reaches, who is in sync, and whether the group is degraded.

In sync (semantics: a slave whose gap is small and who lately held what was the end at an earlier send):

    joins   when it holds everything confirmed, its gap is under `max_gap_bytes`, and it is caught up
    leaves  when its gap is too large, or it was not caught up for `max_lag_s`, or it missed two write deadlines
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from dittomq.message import Ack
from dittomq.offsets import PhysicalOffset

_MISSED_DEADLINES_TO_LEAVE = 2


@dataclass(frozen=True, slots=True)
class ConfirmRules:
    """Settings of the group. Copies count the master."""

    sync_master: bool
    sync_flush: bool
    release_flushed: bool
    in_sync_replicas: int
    min_in_sync_replicas: int
    max_gap_bytes: int
    max_lag_s: float


class Degrade(Enum):
    """Whether the group confirms with fewer copies than asked."""

    NO = auto()
    RECORDING = auto()
    """Must degrade, but the range is not yet durably recorded: confirmed stands still."""
    YES = auto()


@dataclass(slots=True)
class _Slave:
    """`heard` is False for a member carried over from the last run that has not connected yet."""

    heard: bool
    received: PhysicalOffset
    flushed: PhysicalOffset
    in_sync: bool
    since: float
    caught_up_at: float
    mark_end: PhysicalOffset
    mark_at: float
    missed: int = 0
    missed_end: PhysicalOffset = PhysicalOffset(0)
    why_left: str = ""


@dataclass(frozen=True, slots=True)
class SlaveView:
    """One slave as Confirm sees it; `since` is monotonic seconds."""

    in_sync: bool
    since: float
    why_left: str


class Confirm:
    """The confirmed end of one group, as its master computes it; it never decreases."""

    def __init__(self, rules: ConfirmRules, *, end: PhysicalOffset, confirmed: PhysicalOffset, members: Iterable[str], now: float) -> None:
        """`end` is the log's end when the epoch opened, all of it flushed; `members` were in sync when the last run ended."""
        self._rules = rules
        self._written = end
        self._flushed = end
        self._confirmed = confirmed
        self._slaves: dict[str, _Slave] = {}
        for node in sorted(members):
            nothing = PhysicalOffset(0)
            self._slaves[node] = _Slave(False, nothing, nothing, True, now, now, end, now)
        self._degrade = Degrade.NO

    @property
    def confirmed(self) -> PhysicalOffset:
        """End of what is confirmed."""
        return self._confirmed

    @property
    def degrade(self) -> Degrade:
        """Whether fewer copies than asked confirm."""
        return self._degrade

    @property
    def in_sync(self) -> tuple[str, ...]:
        """Slaves in sync, by name."""
        return tuple(sorted(node for node, slave in self._slaves.items() if slave.in_sync))

    @property
    def copies_in_sync(self) -> int:
        """Copies in sync; the master counts."""
        return 1 + len(self.in_sync)

    def view(self, node: str) -> SlaveView | None:
        """One slave; None when it was never heard of."""
        slave = self._slaves.get(node)
        return None if slave is None else SlaveView(slave.in_sync, slave.since, slave.why_left)

    def copies(self, end: PhysicalOffset) -> tuple[tuple[str, bool], ...]:
        """Slaves that hold [.., end), by name, and whether they have flushed it."""
        return tuple((node, slave.flushed >= end) for node, slave in sorted(self._slaves.items()) if slave.heard and slave.received >= end)

    def has_room_for_writes(self) -> bool:
        """Whether enough copies are in sync to accept a write at all."""
        return not self._rules.sync_master or self.copies_in_sync >= self._rules.min_in_sync_replicas

    def level_end(self, level: Ack) -> PhysicalOffset:
        """How far `level` reaches now."""
        match level:
            case Ack.MASTER_RECEIVED:
                return self._written
            case Ack.MASTER_FLUSHED:
                return self._flushed
            case Ack.REPLICA_RECEIVED:
                return self._held_by(self._rules.in_sync_replicas, flushed=False)
            case Ack.REPLICA_FLUSHED:
                return self._held_by(self._rules.in_sync_replicas, flushed=True)

    def master_at(self, *, written: PhysicalOffset, flushed: PhysicalOffset, now: float) -> None:
        """The master's own log moved."""
        self._written, self._flushed = written, flushed
        self._review(now)

    def slave_at(self, node: str, *, received: PhysicalOffset, flushed: PhysicalOffset, now: float) -> None:
        """A slave of accepted lineage acknowledged; a first ack, or one after a cut, may lie below an earlier one."""
        slave = self._slaves.get(node)
        if slave is None:
            slave = _Slave(True, received, flushed, False, now, float("-inf"), self._written, now)
            self._slaves[node] = slave
        slave.heard, slave.received, slave.flushed = True, received, flushed
        counted = self._counted(slave)
        if counted >= slave.missed_end:
            slave.missed = 0
        if counted >= slave.mark_end:
            slave.caught_up_at = now if counted >= self._written else max(slave.caught_up_at, slave.mark_at)
            slave.mark_end, slave.mark_at = self._written, now
        self._review(now)

    def deadline_missed(self, end: PhysicalOffset, now: float) -> None:
        """A producer waited in vain for copies of [.., end)."""
        for slave in self._slaves.values():
            if slave.in_sync and self._counted(slave) < end:
                slave.missed += 1
                slave.missed_end = end
                if slave.missed >= _MISSED_DEADLINES_TO_LEAVE:
                    self._leave(slave, "missed two write deadlines", now)
        self._review(now)

    def tick(self, now: float) -> None:
        """Time passed."""
        self._review(now)

    def degrade_recorded(self, now: float) -> None:
        """The degraded range's start is durable: confirmed may advance with the copies that are there."""
        if self._degrade is Degrade.RECORDING:
            self._degrade = Degrade.YES
            self._review(now)

    def _counted(self, slave: _Slave) -> PhysicalOffset:
        return slave.flushed if self._rules.release_flushed else slave.received

    def _held_by(self, copies: int, *, flushed: bool) -> PhysicalOffset:
        """Largest end that the master and `copies` - 1 slaves hold."""
        own = self._flushed if flushed else self._written
        if copies <= 1:
            return own
        ends = sorted((slave.flushed if flushed else slave.received for slave in self._slaves.values() if slave.heard), reverse=True)
        if len(ends) < copies - 1:
            return PhysicalOffset(0)
        return min(own, ends[copies - 2])

    def _review(self, now: float) -> None:
        for slave in self._slaves.values():
            self._review_slave(slave, now)
        self._advance()

    def _review_slave(self, slave: _Slave, now: float) -> None:
        counted = self._counted(slave)
        gap = self._written - counted
        if slave.in_sync:
            if slave.heard and gap >= self._rules.max_gap_bytes:
                self._leave(slave, f"{gap:,} bytes behind", now)
            elif slave.heard and now - slave.caught_up_at > self._rules.max_lag_s:
                self._leave(slave, f"not caught up for {now - slave.caught_up_at:.0f} s", now)
        elif (
            slave.heard
            and counted >= self._confirmed
            and gap < self._rules.max_gap_bytes
            and now - slave.caught_up_at <= self._rules.max_lag_s
            and slave.missed < _MISSED_DEADLINES_TO_LEAVE
        ):
            slave.in_sync, slave.since, slave.missed = True, now, 0

    def _leave(self, slave: _Slave, why: str, now: float) -> None:
        slave.in_sync, slave.since, slave.why_left = False, now, why

    def _advance(self) -> None:
        if not self._rules.sync_master:
            end = self._flushed if self._rules.sync_flush else self._written
            self._confirmed = max(self._confirmed, end)
            return
        copies = min(self._rules.in_sync_replicas, self.copies_in_sync)
        if copies == self._rules.in_sync_replicas:
            self._degrade = Degrade.NO
        elif copies < self._rules.min_in_sync_replicas:
            return
        elif self._degrade is not Degrade.YES:
            self._degrade = Degrade.RECORDING
            return
        held = self._held_by(copies, flushed=self._rules.release_flushed)
        own = self._flushed if self._rules.sync_flush else self._written
        self._confirmed = max(self._confirmed, min(held, own))
