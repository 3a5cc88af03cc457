"""⑥ Which replicas are members of the group record, as the master of one epoch decides it.

Pure. The master may change members from any set to any other in one write, if `needed` of the new members hold everything confirmed. One
write is under way at a time, at most one begins in a second.

    joins   when it streams, has adopted the epoch, lags little, and holds everything confirmed, or will in a moment; in the place of an
            earlier replica of its node, if that was a member
    leaves  when it missed two write deadlines, lags too far, said goodbye, has had no stream for `leave_s`, did not answer the promise of
            this master and has no stream, or must leave: it is to be resynced, or the log is kept for it no longer

Damage changes no members. The master never leaves, and no member does while only `min_in_sync_replicas` are left: then nothing could be
written, and the removed one could not be elected.

If a replica cannot hold everything confirmed because that moves on all the time, the master proposes the new set first: from then on both
sets confirm, so the confirmed offset waits for the replica, and the write leaves when it has caught up.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dittomq.doors.coordination import Conflict, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.group_record import GroupRecord, Member, ReplicaId, in_order
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset, may_change
from dittomq.replication.membership_states import RECORD_WRITE_MOVES, Following, RecordWrite, WriteStep
from dittomq.replication.progress import MISSED_DEADLINES_TO_LEAVE, ConfirmRules, ReplicaProgress

_WRITE_EVERY_S: Final = 1.0
_CLOSE_S: Final = 1.0  # a replica that lags less catches up while the confirmed offset waits for it
_PROPOSED_S: Final = 1.0
_REST_S: Final = 5.0  # after a proposal that came to nothing
_READS_PER_ISOLATION: Final = 3
_NEVER: Final = float("-inf")
_NOTHING: Final = PhysicalOffset(0)


class MemberReasonKind(StrEnum):
    """Why the members change."""

    CAUGHT_UP = "caught_up"
    REPLACED = "replaced"
    COPIES = "copies"
    MISSED_DEADLINES = "missed_deadlines"
    TOO_FAR_BEHIND = "too_far_behind"
    NOT_CAUGHT_UP = "not_caught_up"
    SENT_GOODBYE = "sent_goodbye"
    NO_STREAM = "no_stream"
    NO_PROMISE = "no_promise"
    MUST_RESYNC = "must_resync"
    LOG_NOT_KEPT = "log_not_kept"


_SENTENCES: Final = {
    MemberReasonKind.CAUGHT_UP: "{0.node} has caught up",
    MemberReasonKind.REPLACED: "{0.node} has caught up, in the place of its replica {0.replaced}",
    MemberReasonKind.COPIES: "{0.node} asks for {0.amount:.0f} copies",
    MemberReasonKind.MISSED_DEADLINES: "{0.node} missed {0.amount:.0f} write deadlines",
    MemberReasonKind.TOO_FAR_BEHIND: "{0.node} is {0.amount:,.0f} bytes behind",
    MemberReasonKind.NOT_CAUGHT_UP: "{0.node} has not caught up for {0.amount:.0f} s",
    MemberReasonKind.SENT_GOODBYE: "{0.node} said goodbye",
    MemberReasonKind.NO_STREAM: "{0.node} has had no stream for {0.amount:.1f} s",
    MemberReasonKind.NO_PROMISE: "{0.node} did not answer the promise of this master, and has no stream",
    MemberReasonKind.MUST_RESYNC: "{0.node} is to be resynced",
    MemberReasonKind.LOG_NOT_KEPT: "the log is kept for {0.node} no longer",
}


@dataclass(frozen=True, slots=True)
class MemberReason:
    """Why a node joins or leaves. `amount` counts what the kind says: deadlines, bytes, seconds or copies."""

    kind: MemberReasonKind
    node: str
    amount: float = 0.0
    replaced: str = ""

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(self)


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A write that must be sent now: `record` in the place of `expected`, because of `reasons`, one for each node that joins or leaves."""

    record: GroupRecord
    expected: Versioned
    reasons: tuple[MemberReason, ...]

    def __str__(self) -> str:
        return "; ".join(map(str, self.reasons))


class WriteRefusalKind(StrEnum):
    """Why a master takes no writes."""

    TOO_FEW_MEMBERS = "too_few_members"
    ISOLATED = "isolated"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """Why this master takes no writes now. `in_sync` of `needed` members stream, the master counts; `silent_s` seconds of isolation."""

    kind: WriteRefusalKind
    in_sync: int
    needed: int
    silent_s: float = 0.0

    def __str__(self) -> str:
        match self.kind:
            case WriteRefusalKind.TOO_FEW_MEMBERS:
                return f"{self.in_sync} members of the group stream, and a write needs {self.needed}"
            case WriteRefusalKind.ISOLATED:
                return f"this master has reached neither the coordination store nor enough members for {self.silent_s:.1f} s"
            case WriteRefusalKind.FENCED:
                return "the group record names another master or another epoch"


class Membership:
    """Decides what the master writes into the group record, and when. Its driver writes, reads, and reports both."""

    def __init__(
        self, rules: ConfirmRules, confirmed: ConfirmedOffset, found: Versioned, *, silent: Collection[str] = (), now: float
    ) -> None:
        """`found` is the record as the election wrote it; `silent` are nodes of members that did not answer the promise of this master."""
        self._rules = rules
        self._confirmed = confirmed
        self._progress = confirmed.progress
        self._known = found
        self._read: Versioned | None = None  # a later revision, read while a write is under way
        self._change: MemberChange | None = None  # what is proposed or sent
        self._state = RECORD_WRITE_MOVES.first
        self._silent = set(silent)
        self._must_leave: dict[ReplicaId, MemberReasonKind] = {}
        self._lost: dict[ReplicaId, float] = {}  # members whose node speaks for another replica, and since when, in running time
        self._sent_at = _NEVER
        self._proposed_at = _NEVER
        self._rests_until = _NEVER
        self._store_answered_at = now
        self._left: dict[str, tuple[MemberReason, float]] = {}

    @property
    def known(self) -> Versioned:
        """The record as this master last knew it to be in the store."""
        return self._known

    @property
    def state(self) -> RecordWrite:
        """How far the change of the record is."""
        return self._state

    @property
    def waits_for_acks(self) -> bool:
        """Whether the next ack may let a proposed change leave: `decide` is to be called after each one."""
        return self._state is RecordWrite.PROPOSED

    def why_left(self, node: str) -> tuple[MemberReason, float] | None:
        """Why that node was last removed, and at which monotonic second; None if it was not, or is a member again."""
        return self._left.get(node)

    def is_member(self, node: str, replica: ReplicaId) -> bool:
        """Whether a record that is in the store, or may come to be, names that replica: it may not be told to resync."""
        records = [self._known.record, *([self._change.record] if self._change is not None else [])]
        return any((member := record.member(replica)) is not None and member.node == node for record in records)

    def must_leave(self, replica: ReplicaId, why: MemberReasonKind = MemberReasonKind.MUST_RESYNC) -> None:
        """Remove that member as soon as a write may. It joins again like any other, by another id if it was resynced."""
        if replica in self._known.record.ids:
            self._must_leave[replica] = why

    def store_answered(self, now: float) -> None:
        """The coordination store answered."""
        self._store_answered_at = now

    def should_read(self, now: float) -> bool:
        """Whether the driver is to read the record now: a write is in doubt, or whether the store answers decides about isolation."""
        if self._state is RecordWrite.IN_DOUBT:
            return True
        timeout_s = self._rules.isolation_s / _READS_PER_ISOLATION
        members_are_silent = self._rules.store_required or now - self._members_reported_at(now) >= timeout_s
        return members_are_silent and now - self._store_answered_at >= timeout_s

    def writes_refused(self, now: float) -> WriteRefusal | None:
        """Why this master takes no writes; None while it does."""
        record, in_sync = self._known.record, self._confirmed.copies_in_sync
        if self._state is RecordWrite.FENCED:
            return WriteRefusal(WriteRefusalKind.FENCED, in_sync, record.needed)
        if in_sync < self._rules.min_in_sync_replicas:
            return WriteRefusal(WriteRefusalKind.TOO_FEW_MEMBERS, in_sync, self._rules.min_in_sync_replicas)
        silent_s = self._isolated_s(now)
        if silent_s >= self._rules.isolation_s:
            return WriteRefusal(WriteRefusalKind.ISOLATED, in_sync, record.needed, silent_s)
        return None

    def silent_s(self, now: float) -> float | None:
        """For so many seconds this master has heard from nobody who keeps others from leading; None once another one leads."""
        return None if self._state is RecordWrite.FENCED else self._isolated_s(now)

    def decide(self, now: float, *, write: str) -> MemberChange | None:
        """What must be written now, if anything; `write` is a fresh random value for a record.

        A change that is returned counts as sent: the driver sends it, and reports with `write_ended` how that went, whatever happens.
        """
        ran_s = self._progress.ran_s(now)
        self._silent.difference_update(self._confirmed.in_sync)
        self._notice_lost(ran_s)
        match self._state:
            case RecordWrite.SETTLED if now >= max(self._rests_until, self._sent_at + _WRITE_EVERY_S):
                self._propose(ran_s, now, write)
            case RecordWrite.IN_DOUBT if now >= self._sent_at + _WRITE_EVERY_S:
                return self._send(RecordWrite.RESENT, now)
        if self._state is not RecordWrite.PROPOSED or self._change is None:
            return None
        if may_change(self._change.record, self._confirmed.holders):
            return self._send(RecordWrite.SENT, now)
        if now >= self._proposed_at + _PROPOSED_S:
            self._rests_until = now + _REST_S
            self._move(WriteStep.GIVEN_UP, RecordWrite.SETTLED)
            self._resolve(self._known, now)
        return None

    def write_ended(self, outcome: WriteOutcome | None, now: float) -> None:
        """How the write went that `decide` returned; None: nothing was sent. What ended it otherwise leaves it Unknown."""
        change = self._change
        if self._state is RecordWrite.FENCED or change is None:
            return
        match outcome:
            case Written(version):
                self.store_answered(now)
                self._move(WriteStep.WRITTEN, RecordWrite.SETTLED)
                self._record(change, now)
                self._resolve(_later(Versioned(change.record, version), self._read), now)
                return
            case Conflict():
                self.store_answered(now)
                self._move(WriteStep.CONFLICTED, RecordWrite.IN_DOUBT)
            case WriteUnknown():
                self._move(WriteStep.UNKNOWN, RecordWrite.IN_DOUBT)
            case None if self._state is RecordWrite.SENT:
                self._move(WriteStep.NOT_SENT, RecordWrite.SETTLED)
                self._resolve(_later(self._known, self._read), now)
                return
            case None:
                self._move(WriteStep.NOT_SENT, RecordWrite.IN_DOUBT)
        if self._read is not None:
            self.record_read(self._read, now)

    def record_read(self, found: Versioned | None, now: float) -> None:
        """The record was read, by whom and when ever; None: there is none. A read that is older than what is known changes nothing.

        Only a later revision ends a doubt: what was read at the version that is known may still be changed by a write that is under way.
        """
        self.store_answered(now)
        if self._state is RecordWrite.FENCED or found is None:
            return
        ours, theirs = self._known.record, found.record
        if theirs.birth == ours.birth and theirs.revision < ours.revision:
            return
        if (theirs.birth, theirs.epoch, theirs.master) != (ours.birth, ours.epoch, self._confirmed.own):
            self._move(WriteStep.OTHER_LEADS, RecordWrite.FENCED)
        elif theirs.revision == ours.revision:
            self._known = Versioned(ours, found.version)
        elif self._state in (RecordWrite.SENT, RecordWrite.RESENT):
            self._read = found if self._read is None else _later(found, self._read)
        else:
            if self._change is not None and self._change.record == theirs:
                self._record(self._change, now)
            self._move(WriteStep.RECORD_MOVED, RecordWrite.SETTLED)
            self._resolve(found, now)

    def _propose(self, ran_s: float, now: float, write: str) -> None:
        """From now on both sets confirm, if another set is wanted that can soon hold everything confirmed."""
        record = self._known.record
        members, reasons = self._wanted(ran_s)
        for copies in dict.fromkeys((self._rules.copies, record.copies)):
            proposed = record.next(write, members=members, copies=copies)
            if (members, copies) == (record.members, record.copies) or not may_change(proposed, self._soon_holders(members, ran_s)):
                continue
            if copies != record.copies:
                reasons = [*reasons, MemberReason(MemberReasonKind.COPIES, record.master_node, copies)]
            self._change, self._proposed_at = MemberChange(proposed, self._known, tuple(reasons)), now
            self._move(WriteStep.WANTED, RecordWrite.PROPOSED)
            self._confirmed.record_sent(proposed)
            return

    def _wanted(self, ran_s: float) -> tuple[tuple[Member, ...], list[MemberReason]]:
        """Members as they should be, and why those join or leave that do."""
        record, own = self._known.record, self._confirmed.own
        leaving = {each: why for each in record.members if each.replica != own and (why := self._why_leave(each, ran_s)) is not None}
        joining = self._joining(leaving, ran_s)
        nodes = {each.node for each in joining}
        stays = [each for each in record.members if each.node not in nodes]
        least = min(self._rules.min_in_sync_replicas, len(record.members)) - len(joining)
        by_need = sorted(
            stays, key=lambda each: (each not in leaving, each.replica not in self._must_leave, self._end_of(each)), reverse=True
        )
        kept = [each for at, each in enumerate(by_need) if at < least or each not in leaving]
        gone = [leaving[each] for each in stays if each not in kept]
        return in_order([*kept, *joining]), [*(self._why_join(each) for each in joining), *gone]

    def _why_leave(self, member: Member, ran_s: float) -> MemberReason | None:
        found, node, rules = self._progress.of_member(member), member.node, self._rules
        if (why := self._must_leave.get(member.replica)) is not None:
            return MemberReason(why, node)
        if found is None or not found.streams:
            if found is not None and found.state is Following.DEPARTED:
                return MemberReason(MemberReasonKind.SENT_GOODBYE, node)
            if node in self._silent:
                return MemberReason(MemberReasonKind.NO_PROMISE, node)
            away_s = ran_s - (found.away_since if found is not None else self._lost[member.replica])
            if away_s >= rules.leave_s:
                return MemberReason(MemberReasonKind.NO_STREAM, node, away_s)
        if found is None:
            return None
        if found.missed >= MISSED_DEADLINES_TO_LEAVE:
            return MemberReason(MemberReasonKind.MISSED_DEADLINES, node, found.missed)
        if found.has_acked and (gap := self._progress.gap_bytes(found)) >= rules.max_gap_bytes:
            return MemberReason(MemberReasonKind.TOO_FAR_BEHIND, node, gap)
        if (lag_s := self._progress.lag_s(found, ran_s)) > rules.max_lag_s:
            return MemberReason(MemberReasonKind.NOT_CAUGHT_UP, node, lag_s)
        return None

    def _joining(self, leaving: Collection[Member], ran_s: float) -> list[Member]:
        """Replicas that may become members, those first whose node has a member that they replace; as many as there is room for."""
        record = self._known.record
        found = [each for each in self._progress if record.member(each.replica) is None and self._may_join(each, ran_s)]
        successors = [each for each in found if record.member_of_node(each.node) is not None]
        stay = sum(each not in leaving and each.node not in {one.node for one in successors} for each in record.members)
        room = max(0, self._rules.replicas_expected + 1 - stay)
        ordered = [*successors, *(each for each in found if each not in successors)]
        return [Member(each.node, each.replica, each.address) for each in ordered[:room]]

    def _may_join(self, replica: ReplicaProgress, ran_s: float) -> bool:
        lags_little = (
            self._progress.gap_bytes(replica) < self._rules.max_gap_bytes and self._progress.lag_s(replica, ran_s) <= self._rules.max_lag_s
        )
        is_holder = replica.replica in self._confirmed.holders or self._is_close(replica, ran_s)
        return replica.state is Following.ADOPTED and lags_little and is_holder

    def _is_close(self, replica: ReplicaProgress, ran_s: float) -> bool:
        """Whether it will hold everything confirmed in a moment, if that waits for it."""
        return replica.state is Following.ADOPTED and self._progress.lag_s(replica, ran_s) <= _CLOSE_S

    def _soon_holders(self, members: Iterable[Member], ran_s: float) -> frozenset[ReplicaId]:
        found = [self._progress.of_member(member) for member in members]
        close = [each.replica for each in found if each is not None and self._is_close(each, ran_s)]
        return self._confirmed.holders.union(close)

    def _why_join(self, member: Member) -> MemberReason:
        before = self._known.record.member_of_node(member.node)
        if before is None:
            return MemberReason(MemberReasonKind.CAUGHT_UP, member.node)
        return MemberReason(MemberReasonKind.REPLACED, member.node, replaced=str(before.replica))

    def _end_of(self, member: Member) -> PhysicalOffset:
        return self._progress.ends.get(member.replica, _NOTHING)

    def _isolated_s(self, now: float) -> float:
        silent_s = now - self._store_answered_at
        return silent_s if self._rules.store_required else min(silent_s, now - self._members_reported_at(now))

    def _members_reported_at(self, now: float) -> float:
        """Since then fewer than `needed` members were heard; now if the master alone is enough."""
        record = self._known.record
        found = (self._progress.of_member(member) for member in record.members if member.replica != self._confirmed.own)
        heard = [now, *(each.received_at if each is not None else _NEVER for each in found)]
        return sorted(heard, reverse=True)[record.needed - 1]

    def _notice_lost(self, ran_s: float) -> None:
        members = [each for each in self._known.record.members if each.replica != self._confirmed.own]
        lost = [each.replica for each in members if self._progress.of_member(each) is None]
        self._lost = {replica: self._lost.get(replica, ran_s) for replica in lost}

    def _send(self, state: RecordWrite, now: float) -> MemberChange | None:
        assert self._change is not None
        self._move(WriteStep.SENT, state)
        self._sent_at = now
        self._change = MemberChange(self._change.record, self._known, self._change.reasons)
        return self._change

    def _resolve(self, known: Versioned, now: float) -> None:
        """The outcome is known: this is the record."""
        self._known, self._change, self._read = known, None, None
        for node in [node for node in self._left if known.record.member_of_node(node) is not None]:
            del self._left[node]
        self._must_leave = {each: why for each, why in self._must_leave.items() if each in known.record.ids}
        self._confirmed.record_known(known.record)

    def _record(self, change: MemberChange, now: float) -> None:
        for reason in change.reasons:
            if change.record.member_of_node(reason.node) is None:
                self._left[reason.node] = (reason, now)

    def _move(self, step: WriteStep, after: RecordWrite) -> None:
        RECORD_WRITE_MOVES.check(self._state, step, after)
        self._state = after


def _later(found: Versioned, other: Versioned | None) -> Versioned:
    """Of two versions of one record the later one."""
    return found if other is None or other.record.revision <= found.record.revision else other
