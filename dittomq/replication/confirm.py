"""⑦ What is confirmed: below it nothing is ever undone.

Pure. Fed with the master's own positions, with acks of slaves whose lineage was accepted, and with missed deadlines;
answers how far each level reaches, who is in sync, and whether the group is degraded.

Its moves are the tables in `confirm_states`. In sync is a slave whose gap is small and who lately held what was the end at an
earlier send:

    joins   when it holds everything confirmed, its gap is under `max_gap_bytes`, and it is caught up
    leaves  when its gap is too large, or it was not caught up for `max_lag_s`, or it missed two write deadlines, one after the other

A member that was carried over counts as in sync until it leaves by the same rules, and is called so when it has joined by them.

Of bytes that the master's own disk does not give any more slaves acknowledge what lies behind them: while that is not confirmed the group
is degraded, be as many copies in sync as may be. No copy is told of that is known to lack what it acknowledged, the master's included.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dittomq.message import Ack
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm_states import DEGRADE_MOVES, MEMBER_MOVES, Change, Copies, Degrade, Member
from dittomq.replication.events import Lacks
from dittomq.replication.lacking import Lacking
from dittomq.replication.own_log import Ranges
from dittomq.replication.running import RunningTime

REPLICA_LEVELS = (Ack.REPLICA_RECEIVED, Ack.REPLICA_FLUSHED)
_LEVELS = tuple(Ack)
_MISSED_DEADLINES_TO_LEAVE = 2
_EARLY_S = 0.05  # a timer may be so much early

HEARD = (Member.RETURNED, Member.BEHIND, Member.IN_SYNC)  # it said something to this master
_COUNTED = (Member.CARRIED, Member.RETURNED, Member.IN_SYNC)  # it counts as a copy in sync


@dataclass(frozen=True, slots=True)
class ConfirmRules:
    """Settings of the group. Copies count the master. A producer that gave up sooner than after `write_deadline_s` proves nothing yet."""

    sync_master: bool
    sync_flush: bool
    release_flushed: bool
    in_sync_replicas: int
    min_in_sync_replicas: int
    max_gap_bytes: int
    max_lag_s: float
    write_deadline_s: float


@dataclass(slots=True)
class _Slave:
    """Offsets of a slave that was never heard are 0. `since` and `missed_until` are monotonic, the other times of the running time.

    Waits that began before `missed_until` met the same silence as the deadline that was counted last.
    """

    member: Member
    received: PhysicalOffset
    flushed: PhysicalOffset
    since: float
    caught_up_at: float
    mark_end: PhysicalOffset
    mark_at: float
    missed: int = 0
    missed_end: PhysicalOffset = PhysicalOffset(0)
    missed_until: float = float("-inf")
    why_left: str = ""
    left_at: float = 0.0


@dataclass(frozen=True, slots=True)
class _ShortWait:
    """A producer waited for `end` from `since` on, less than a write deadline, which ends at `due` of the running time."""

    end: PhysicalOffset
    since: float
    due: float


@dataclass(frozen=True, slots=True)
class SlaveView:
    """One slave as Confirm sees it; `since` and `left_at` are monotonic seconds. `why_left` is empty when it never left.

    `in_sync`: it was heard, and has caught up; one that was carried over may count as in sync before that.
    """

    in_sync: bool
    since: float
    why_left: str
    left_at: float


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
            self._slaves[node] = _Slave(Member.CARRIED, nothing, nothing, now, float("-inf"), end, 0.0)
        self._in_sync = self._counted_in()
        self._degrade = DEGRADE_MOVES.first
        self._time = RunningTime(now)
        self._lacking = Lacking()
        self._hole = (confirmed, confirmed)  # from the first to the last of what no slave was sent, for it is damaged here
        self._short: _ShortWait | None = None  # the first of those whose write deadline is not over

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
        """Slaves that count as in sync, by name."""
        return self._in_sync

    @property
    def copies_in_sync(self) -> int:
        """Copies in sync; the master counts."""
        return 1 + len(self._in_sync)

    def view(self, node: str) -> SlaveView | None:
        """One slave; None when it was never heard of."""
        slave = self._slaves.get(node)
        return None if slave is None else SlaveView(slave.member is Member.IN_SYNC, slave.since, slave.why_left, slave.left_at)

    def copies(self, start: PhysicalOffset, end: PhysicalOffset) -> tuple[tuple[str, bool], ...]:
        """Slaves that hold [start, end), and all before it that they were sent, by name, and whether they have flushed it."""
        slaves = ((node, slave) for node, slave in sorted(self._slaves.items()) if slave.member in HEARD and slave.received >= end)
        return tuple([(node, slave.flushed >= end) for node, slave in slaves if not self._lacking.slave(node, start, end)])

    def master_has(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether the master's own copy of [start, end) is one, as far as it knows."""
        return not self._lacking.master(start, end)

    def has_room_for_writes(self) -> bool:
        """Whether enough copies are in sync to accept a write at all."""
        return not self._rules.sync_master or self.copies_in_sync >= self._rules.min_in_sync_replicas

    @property
    def is_short_of_copies(self) -> bool:
        """Whether fewer copies than asked are in sync, and what is confirmed counts as stored degraded: nobody waits for the others.

        Under SYNC that is so once the degraded range is durable; under ASYNC copies confirm nothing, and there is no such range.
        """
        if self._rules.sync_master:
            return self._degrade is Degrade.YES
        return self.copies_in_sync < self._rules.in_sync_replicas

    def level_end(self, level: Ack) -> PhysicalOffset:
        """How far `level` reaches now."""
        match level:
            case Ack.MASTER_RECEIVED:
                return self._written
            case Ack.MASTER_FLUSHED:
                return self._flushed
            case Ack.REPLICA_RECEIVED:
                return self._held_whole(flushed=False)
            case Ack.REPLICA_FLUSHED:
                return self._held_whole(flushed=True)

    def reaches(self, level: Ack, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether [start, end) has reached `level` by now."""
        if self.level_end(level) < end:
            return False
        if level not in REPLICA_LEVELS or not self.was_left_out(start, end):
            return True
        slaves = sum(flushed or level is Ack.REPLICA_RECEIVED for _, flushed in self.copies(start, end))
        return self.master_has(start, end) + slaves >= self._rules.in_sync_replicas

    def levels_reached(self, start: PhysicalOffset, end: PhysicalOffset) -> tuple[Ack, ...]:
        """Levels that [start, end) has reached by now."""
        return tuple([level for level in _LEVELS if self.reaches(level, start, end)])

    def was_left_out(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether a copy does not hold bytes of [start, end), and holds what lies behind them."""
        return self._lacking.any_copy(start, end)

    def master_at(self, *, written: PhysicalOffset, flushed: PhysicalOffset, now: float) -> None:
        """The master's own log moved."""
        self._written, self._flushed = written, flushed
        self._review(Change.MASTER_MOVED, now)

    def slave_at(self, node: str, *, received: PhysicalOffset, flushed: PhysicalOffset, now: float) -> None:
        """A slave of accepted lineage acknowledged; a first ack, or one after a cut, may lie below an earlier one."""
        ran_s = self._time.at(now)
        slave = self._slaves.get(node)
        if slave is None:
            slave = _Slave(MEMBER_MOVES.first, received, flushed, now, float("-inf"), self._written, ran_s)
            self._slaves[node] = slave
        slave.received, slave.flushed = received, flushed
        counted = self._counted(slave)
        if counted >= slave.missed_end:
            slave.missed = 0
        if counted >= slave.mark_end:
            slave.caught_up_at = ran_s if counted >= self._written else max(slave.caught_up_at, slave.mark_at)
            slave.mark_end, slave.mark_at = self._written, ran_s
        self._judge(slave, Change.ACKED, now, ran_s)
        self._advance()

    def ends_at(self, node: str, end: PhysicalOffset) -> None:
        """A new stream of that slave begins there: what it acknowledged behind it before, it holds no more, or is told to cut."""
        slave = self._slaves.get(node)
        if slave is not None:
            slave.received, slave.flushed = min(slave.received, end), min(slave.flushed, end)
        self._lacking.end_at(node, end)

    def lacks(self, node: str, ranges: Lacks, upto: PhysicalOffset) -> None:
        """All that this slave knows to lack of what it holds `upto` there: it may have got some of it since it said so last.

        What it was told to leave out behind that it did not know yet.
        """
        self._lacking.forget_before(node, upto)
        for start, end in ranges:
            self.holed(node, start, end)

    def disk_gone(self, node: str, why: str, *, now: float) -> None:
        """What the slave acknowledged lies on a disk that speaks for another slave now, or for nobody: it counts for this one no more."""
        self._lacking.forget(node)
        slave = self._slaves.get(node)
        if slave is None:
            return
        before = slave.member
        slave.received = slave.flushed = PhysicalOffset(0)
        slave.caught_up_at, slave.mark_end = float("-inf"), self._written
        if before in (Member.RETURNED, Member.IN_SYNC):
            slave.member = Member.BEHIND
            slave.since, slave.why_left, slave.left_at = now, why, now
        self._became(slave, before, Change.DISK_GONE)
        self._advance()

    def forget(self, node: str) -> None:
        """A slave that is away, and does not count as in sync: no copy of its is claimed any more."""
        assert node not in self._in_sync
        self._slaves.pop(node, None)
        self._lacking.forget(node)

    def deadline_missed(self, end: PhysicalOffset, *, since: float, now: float) -> None:
        """A producer waited in vain for copies of [.., end) from `since` until now, both monotonic seconds."""
        left_s = self._rules.write_deadline_s - (now - since)
        if left_s <= _EARLY_S:
            self._count_missed(end, since)
        elif self._short is None:
            self._short = _ShortWait(end, since, self._time.at(now) + left_s)
        self._review(Change.DEADLINE_MISSED, now)

    def tick(self, now: float) -> None:
        """Time passed."""
        short = self._short
        if short is not None and self._time.at(now) >= short.due:
            self._short = None
            self._count_missed(short.end, short.since)
            self._review(Change.DEADLINE_MISSED, now)
        self._review(Change.TICKED, now)

    def holed(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Bytes of the master's in [start, end) are damaged, and that slave is told to leave them out."""
        self._lacking.add(node, start, end)
        self._damaged(start, end)

    def master_lacks(self, ranges: Ranges) -> None:
        """All of its own log that the master knows not to hold whole, in order. What of it was confirmed before stays so."""
        self._lacking.own = ranges
        for start, end in ranges:
            if end > self._confirmed:
                self._damaged(PhysicalOffset(start), PhysicalOffset(end))

    def range_recorded(self) -> None:
        """Where the degraded range begins is durable: while RECORDING, confirmed may now advance with the copies that are there."""
        self._move(Copies.RANGE_RECORDED, Degrade.NO if self._degrade is Degrade.NO else Degrade.YES)
        self._advance()

    def _damaged(self, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Of [start, end) there is a copy less than acks say: while that is not confirmed, it is no whole copy of the group's."""
        if end > min(self._confirmed, self._held_by(self._rules.in_sync_replicas, flushed=False)):
            low, high = self._hole
            self._hole = (start, end) if self._confirmed >= high else (min(low, start), max(high, end))
            self._advance()

    def _count_missed(self, end: PhysicalOffset, since: float) -> None:
        """Producers that waited together for a slave that is silent have missed one deadline, however many they are."""
        for slave in self._slaves.values():
            if slave.member in _COUNTED and self._counted(slave) < end and since >= slave.missed_until:
                slave.missed += 1
                slave.missed_end = end
                slave.missed_until = since + self._rules.write_deadline_s - _EARLY_S

    def _counted(self, slave: _Slave) -> PhysicalOffset:
        return slave.flushed if self._rules.release_flushed else slave.received

    def _held_by(self, copies: int, *, flushed: bool) -> PhysicalOffset:
        """Largest end that the master and `copies` - 1 slaves hold."""
        own = self._flushed if flushed else self._written
        if copies <= 1:
            return own
        ends = [slave.flushed if flushed else slave.received for slave in self._slaves.values() if slave.member in HEARD]
        if len(ends) < copies - 1:
            return PhysicalOffset(0)
        ends.sort(reverse=True)
        return min(own, ends[copies - 2])

    def _held_whole(self, *, flushed: bool) -> PhysicalOffset:
        """Largest end that as many copies as asked hold, up to a hole that is not confirmed yet."""
        held, (start, end) = self._held_by(self._rules.in_sync_replicas, flushed=flushed), self._hole
        return held if self._confirmed >= end else min(held, start)

    def _review(self, change: Change, now: float) -> None:
        ran_s = self._time.at(now)
        for slave in self._slaves.values():
            self._judge(slave, change, now, ran_s)
        self._advance()

    def _judge(self, slave: _Slave, change: Change, now: float, ran_s: float) -> None:
        """Let the slave join or leave; `ran_s` is `now` of the running time."""
        before = slave.member
        if change is Change.ACKED and slave.member not in HEARD:
            slave.member = Member.RETURNED if before is Member.CARRIED else Member.BEHIND
        if slave.member in _COUNTED and (why := self._why_leave(slave, ran_s)):
            slave.member = Member.BEHIND if slave.member in HEARD else Member.LOST
            slave.since, slave.why_left, slave.left_at = now, why, now
        elif change is Change.ACKED and slave.member is not Member.IN_SYNC and self._may_join(slave, ran_s):
            slave.missed = slave.missed if slave.member in _COUNTED else 0
            slave.member, slave.since = Member.IN_SYNC, now
        self._became(slave, before, change)

    def _became(self, slave: _Slave, before: Member, change: Change) -> None:
        """It was judged."""
        MEMBER_MOVES.check(before, change, slave.member)
        if slave.member is not before:
            self._in_sync = self._counted_in()

    def _counted_in(self) -> tuple[str, ...]:
        return tuple(sorted(node for node, slave in self._slaves.items() if slave.member in _COUNTED))

    def _why_leave(self, slave: _Slave, ran_s: float) -> str:
        """Empty while it may stay. How far behind one is that was carried over and never heard nobody knows."""
        gap = self._written - self._counted(slave)
        lag_s = ran_s - max(slave.caught_up_at, 0.0)  # one that was carried over was caught up when this began, as far as anybody knows
        if slave.missed >= _MISSED_DEADLINES_TO_LEAVE:
            return "missed two write deadlines"
        if slave.member in HEARD and gap >= self._rules.max_gap_bytes:
            return f"{gap:,} bytes behind"
        if lag_s > self._rules.max_lag_s:
            return f"not caught up for {lag_s:.0f} s" if slave.member in HEARD else f"not heard for {lag_s:.0f} s"
        return ""

    def _may_join(self, slave: _Slave, ran_s: float) -> bool:
        counted = self._counted(slave)
        return (
            counted >= self._confirmed
            and self._written - counted < self._rules.max_gap_bytes
            and ran_s - slave.caught_up_at <= self._rules.max_lag_s
            and slave.missed < _MISSED_DEADLINES_TO_LEAVE
        )

    def _advance(self) -> None:
        if not self._rules.sync_master:
            end = self._flushed if self._rules.sync_flush else self._written
            self._confirmed = max(self._confirmed, end)
            return
        copies = min(self._rules.in_sync_replicas, self.copies_in_sync)
        if copies == self._rules.in_sync_replicas and self._confirmed >= self._hole[1]:
            self._move(Copies.ENOUGH, Degrade.NO)
        elif copies < self._rules.min_in_sync_replicas:
            self._move(Copies.BELOW_MINIMUM, self._degrade)
            return
        elif self._degrade is Degrade.YES:
            self._move(Copies.TOO_FEW, Degrade.YES)
        else:
            self._move(Copies.TOO_FEW, Degrade.RECORDING)
            return
        held = self._held_by(copies, flushed=self._rules.release_flushed)
        own = self._flushed if self._rules.sync_flush else self._written
        self._confirmed = max(self._confirmed, min(held, own))

    def _move(self, copies: Copies, to: Degrade) -> None:
        DEGRADE_MOVES.check(self._degrade, copies, to)
        self._degrade = to
