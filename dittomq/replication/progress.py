"""⑦ How far each replica of a group is, as its master knows it: one table for the confirmed offset and for the members. Pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dittomq.group_record import Member, ReplicaId
from dittomq.offsets import PhysicalOffset
from dittomq.replication.active_time import ActiveTime
from dittomq.replication.membership_states import FOLLOWING_TRANSITIONS, Following, StreamStep

MISSED_DEADLINES_TO_LEAVE: Final = 2
_EARLY_S: Final = 0.05  # a timer may be so much early
_NEVER: Final = float("-inf")
_NOTHING: Final = PhysicalOffset(0)
_STREAMS: Final = (Following.JOINING, Following.ADOPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmRules:
    """Settings of the group. Copies count the master.

    `copies`: so many members confirm, as the record is to say (1 under ASYNC_MASTER). `level_copies`: so many reach a REPLICA_* level.
    `min_in_sync_replicas`: 1 under ASYNC_MASTER. `store_required`: unclean elections happen by themselves (`failover.allow_data_loss`),
    so a master without the store refuses writes.
    A producer that gave up sooner than after `write_deadline_s` proves nothing yet.
    """

    copies: int
    level_copies: int
    min_in_sync_replicas: int
    replicas_expected: int
    sync_flush: bool
    release_flushed: bool
    max_gap_bytes: int
    max_lag_s: float
    write_deadline_s: float
    leave_s: float = 2.0
    isolation_s: float = 3.0
    store_required: bool = False


@dataclass(slots=True)
class ReplicaProgress:
    """One replica. Ends are bytes, 0 before its first ack. `since`, `received_at` and `missed_until` are monotonic seconds.

    The other times are of the running time. What the replica holds was the log's end at `caught_up_at`, or later. Waits that began before
    `missed_until` met the same silence as the deadline that was counted last.
    """

    node: str
    replica: ReplicaId
    address: str
    since: float
    caught_up_at: float
    mark_end: PhysicalOffset
    mark_at: float
    state: Following = FOLLOWING_TRANSITIONS.first
    received: PhysicalOffset = _NOTHING
    flushed: PhysicalOffset = _NOTHING
    received_at: float = _NEVER
    away_since: float = 0.0
    has_acked: bool = False
    missed: int = 0
    missed_end: PhysicalOffset = _NOTHING
    missed_until: float = _NEVER

    @property
    def streams(self) -> bool:
        """Whether it has a stream."""
        return self.state in _STREAMS


@dataclass(frozen=True, slots=True)
class _ShortWait:
    """A producer waited for `end` from `since` on, less than a write deadline, which ends at `due` of the running time."""

    end: PhysicalOffset
    since: float
    due: float


class Progress:
    """All replicas of one group as the master of one epoch knows them, by node. `ends` has the master itself, and who adopted the epoch."""

    def __init__(self, rules: ConfirmRules, *, own: ReplicaId, end: PhysicalOffset, members: Iterable[Member], now: float) -> None:
        """`end` is the log's end when the epoch began, all of it flushed. `members` other than the master count as caught up until now."""
        self._rules = rules
        self._own = own
        self.written = end
        self.flushed = end
        self.ends: dict[ReplicaId, PhysicalOffset] = {own: end}
        self._time = ActiveTime(now)
        self._replicas: dict[str, ReplicaProgress] = {}
        for member in members:
            if member.replica != own:
                self._replicas[member.node] = ReplicaProgress(member.node, member.replica, member.address, now, 0.0, end, 0.0)
        self._short: _ShortWait | None = None  # the first of those whose write deadline is not over

    def __iter__(self) -> Iterator[ReplicaProgress]:
        """By node."""
        return iter([self._replicas[node] for node in sorted(self._replicas)])

    def of_node(self, node: str) -> ReplicaProgress | None:
        """The replica that speaks for that node, or last did; None where none did."""
        return self._replicas.get(node)

    def of_member(self, member: Member) -> ReplicaProgress | None:
        """The same, if it is that member: its id counts under the node name of the record only."""
        found = self._replicas.get(member.node)
        return found if found is not None and found.replica == member.replica else None

    def ran_s(self, now: float) -> float:
        """Seconds that this process ran since the epoch began."""
        return self._time.at(now)

    def counted(self, replica: ReplicaProgress) -> PhysicalOffset:
        """How far it holds the log, at the release level."""
        return replica.flushed if self._rules.release_flushed else replica.received

    def gap_bytes(self, replica: ReplicaProgress) -> int:
        """So much of what the master has written the replica does not hold, at the release level."""
        return max(0, self.written - self.counted(replica))

    def lag_s(self, replica: ReplicaProgress, ran_s: float) -> float:
        """What it holds was the log's end so long ago, at most."""
        return 0.0 if replica.has_acked and self.counted(replica) >= self.written else ran_s - replica.caught_up_at

    def level_ends(self, *, flushed: bool) -> dict[ReplicaId, PhysicalOffset]:
        """What the master and all that have adopted the epoch hold in memory, or flushed."""
        found = {each.replica: each.flushed if flushed else each.received for each in self._replicas.values() if each.replica in self.ends}
        found[self._own] = self.flushed if flushed else self.written
        return found

    def master_at(self, *, written: PhysicalOffset, flushed: PhysicalOffset) -> None:
        """The master's own log moved."""
        self.written, self.flushed = written, flushed
        flushes = self._rules.sync_flush or (self._rules.release_flushed and self._rules.copies > 1)
        self.ends[self._own] = flushed if flushes else written

    def stream_begins(self, node: str, replica: ReplicaId, at: PhysicalOffset, *, address: str, now: float) -> tuple[str, ...]:
        """A replica begins a stream at `at`: what it acknowledged at or after that counts no longer.

        Returns the nodes whose earlier replica counts no longer: this one when it has another id now, another one when its disk is here.
        """
        ran_s = self._time.at(now)
        gone = tuple(each.node for each in self if (each.node == node) != (each.replica == replica))
        for other in gone:
            self.forget(other)
        found = self._replicas.get(node)
        if found is None:
            found = self._replicas[node] = ReplicaProgress(node, replica, address, now, _NEVER, self.written, ran_s)
        found.address, found.received_at = address, now
        found.received, found.flushed = min(found.received, at), min(found.flushed, at)
        if replica in self.ends:
            self.ends[replica] = min(self.ends[replica], at)
        self._move(found, StreamStep.BEGAN, Following.ADOPTED if replica in self.ends else Following.JOINING, now)
        return gone

    def stream_ended(self, node: str, *, sent_goodbye: bool, now: float) -> None:
        """The node's last stream ended. Nothing happens if it has none."""
        found = self._replicas.get(node)
        if found is None or not found.streams:
            return
        found.away_since = self._time.at(now)
        if sent_goodbye:
            self._move(found, StreamStep.SENT_GOODBYE, Following.DEPARTED, now)
        else:
            self._move(found, StreamStep.ENDED, Following.AWAY, now)

    def acked(self, node: str, *, received: PhysicalOffset, flushed: PhysicalOffset, adopted: bool, now: float) -> None:
        """The replica whose stream this is acknowledged."""
        found, ran_s = self._replicas[node], self._time.at(now)
        found.received, found.flushed, found.received_at, found.has_acked = received, flushed, now, True
        counted = self.counted(found)
        if adopted:
            self.ends[found.replica] = counted
        else:
            self.ends.pop(found.replica, None)
        self._move(found, StreamStep.ACKED, Following.ADOPTED if adopted else Following.JOINING, now)
        if counted >= found.missed_end:
            found.missed = 0
        if counted >= found.mark_end:
            found.caught_up_at = ran_s if counted >= self.written else max(found.caught_up_at, found.mark_at)
            found.mark_end, found.mark_at = self.written, ran_s

    def forget(self, node: str) -> None:
        """That replica's acks count no longer."""
        if (found := self._replicas.pop(node, None)) is not None:
            self.ends.pop(found.replica, None)

    def clear_missed(self, replicas: Collection[ReplicaId]) -> None:
        """Deadlines that these missed before they were members, or were removed, are not theirs."""
        for each in self._replicas.values():
            if each.replica in replicas:
                each.missed = 0

    def deadline_missed(self, end: PhysicalOffset, *, members: Collection[ReplicaId], since: float, now: float) -> None:
        """A producer waited in vain for copies of [.., end) from `since` until now."""
        left_s = self._rules.write_deadline_s - (now - since)
        if left_s <= _EARLY_S:
            self._count_missed(end, members, since)
        elif self._short is None:
            self._short = _ShortWait(end, since, self._time.at(now) + left_s)

    def tick(self, members: Collection[ReplicaId], now: float) -> None:
        """Time passed."""
        short, ran_s = self._short, self._time.at(now)
        if short is not None and ran_s >= short.due:
            self._short = None
            self._count_missed(short.end, members, short.since)

    def _count_missed(self, end: PhysicalOffset, members: Collection[ReplicaId], since: float) -> None:
        """Producers that waited together for a replica that is silent have missed one deadline, however many they are."""
        for each in self._replicas.values():
            if each.replica in members and self.counted(each) < end and since >= each.missed_until:
                each.missed += 1
                each.missed_end = end
                each.missed_until = since + self._rules.write_deadline_s - _EARLY_S

    def _move(self, replica: ReplicaProgress, step: StreamStep, after: Following, now: float) -> None:
        FOLLOWING_TRANSITIONS.check(replica.state, step, after)
        if after is not replica.state:
            replica.state, replica.since = after, now
