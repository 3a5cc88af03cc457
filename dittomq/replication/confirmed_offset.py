"""⑦ The confirmed offset: below it nothing is ever undone.

Pure. The master of epoch e counts an offset as confirmed when `needed` members of the group record, itself included, have adopted e and
hold it at the release level. From before a write of the record is sent until its outcome is known, that must be so by the old and by the
new record. So every offset ever confirmed is held by `needed` members of whichever record is in the store.

PUT_OK and the REPLICA_* levels follow the confirmed offset. Replicas that are no members are listed as copies, and count for nothing.

Damage changes no members. A range that a member knows to lack is passed when those members that do not lack it hold it, `needed` of them
or all; a receipt for it claims only the copies that hold it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from dittomq.group_record import GroupRecord, Member, ReplicaId
from dittomq.message import Ack
from dittomq.offsets import NO_EPOCH, PhysicalOffset
from dittomq.replication.membership_states import Following
from dittomq.replication.missing_ranges import MissingInGroup, MissingRanges, Ranges
from dittomq.replication.progress import ConfirmRules, Progress

REPLICA_LEVELS = (Ack.REPLICA_RECEIVED, Ack.REPLICA_FLUSHED)
_LEVELS = tuple(Ack)
_NOTHING = PhysicalOffset(0)

Ends = Mapping[ReplicaId, PhysicalOffset]
"""How far replicas hold the log. Only of those that have adopted the epoch: the acks of others count for nothing."""


def held_end(replicas: Collection[ReplicaId], ends: Ends, copies: int) -> PhysicalOffset:
    """The largest end that `copies` of these replicas hold, 0 where fewer of them are known."""
    if copies > len(replicas):
        return _NOTHING
    return sorted([ends.get(replica, _NOTHING) for replica in replicas], reverse=True)[copies - 1]


def confirmed_end(records: Collection[GroupRecord], ends: Ends) -> PhysicalOffset:
    """What `needed` members hold by each of these records, the master among them: the one that is known, and one that was sent.

    Without the master's own copy it would be lost where the master is elected anew by its own promise alone.
    """
    return min(min(held_end(record.ids, ends, record.needed), ends.get(record.master, _NOTHING)) for record in records)


def holders_of(ends: Ends, confirmed: PhysicalOffset) -> frozenset[ReplicaId]:
    """Replicas that have adopted the epoch, and hold everything confirmed."""
    return frozenset(replica for replica, end in ends.items() if end >= confirmed)


def may_change(proposed: GroupRecord, holders: Collection[ReplicaId]) -> bool:
    """Whether a master may write this record: `needed` of its members hold everything confirmed, and the master is one of them."""
    holding = proposed.ids & frozenset(holders)
    return proposed.master in holding and len(holding) >= proposed.needed


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as its master sees it; `state` since the monotonic second `since`."""

    replica: ReplicaId
    state: Following
    is_member: bool
    since: float


class ConfirmedOffset:
    """The confirmed offset as the master of one epoch computes it. It never decreases."""

    def __init__(
        self,
        rules: ConfirmRules,
        *,
        own: ReplicaId,
        node: str,
        record: GroupRecord | None,
        end: PhysicalOffset,
        confirmed: PhysicalOffset,
        now: float,
    ) -> None:
        """`end` is the log's end when the epoch began, all of it flushed; `confirmed` is what the election knew.

        `record` None (`replicas_expected` is 0): the master alone confirms.
        """
        self.own = own
        self.record = record if record is not None else _alone(node, own)
        self._sent: GroupRecord | None = None  # its outcome is not known; None: nothing is under way
        self._rules = rules
        self._begin = end
        self._confirmed = confirmed
        self._missing = MissingInGroup()
        self.progress = Progress(rules, own=own, end=end, members=self.record.members, now=now)
        self._advance()

    # What it knows

    @property
    def confirmed(self) -> PhysicalOffset:
        """End of what is confirmed."""
        return self._confirmed

    @property
    def written(self) -> PhysicalOffset:
        """End of the master's log."""
        return self.progress.written

    @property
    def flushed(self) -> PhysicalOffset:
        """How far the master's log is flushed."""
        return self.progress.flushed

    @property
    def members(self) -> tuple[str, ...]:
        """Nodes of the members, by the record as it is known; the master's among them."""
        return tuple(member.node for member in self.record.members)

    @property
    def in_sync(self) -> tuple[str, ...]:
        """Members other than the master that stream, by node."""
        found = ((member.node, self.progress.of_member(member)) for member in self.record.members if member.replica != self.own)
        return tuple([node for node, replica in found if replica is not None and replica.streams])

    @property
    def copies_in_sync(self) -> int:
        """Members that stream; the master counts."""
        return 1 + len(self.in_sync)

    @property
    def degraded(self) -> bool:
        """Whether fewer members confirm than the record asks for."""
        return len(self.record.members) < self.record.copies

    @property
    def is_short_of_copies(self) -> bool:
        """Whether no write can reach a REPLICA_* level: there are fewer members than that takes. A producer need not wait for them."""
        return len(self.record.members) < self._rules.level_copies

    @property
    def holders(self) -> frozenset[ReplicaId]:
        """Replicas that have adopted the epoch, and hold everything confirmed."""
        return holders_of(self.progress.ends, self._confirmed)

    def view(self, node: str) -> ReplicaView | None:
        """One replica; None if this master does not know it."""
        found = self.progress.of_node(node)
        if found is None:
            return None
        member = self.record.member(found.replica)
        return ReplicaView(found.replica, found.state, member is not None and member.node == node, found.since)

    def acknowledged(self, node: str, replica: ReplicaId) -> PhysicalOffset:
        """How far this replica acknowledged this master's log as flushed: one that comes back with less is a copied disk.

        Acks without the adopted epoch do not bind: a copy that is made anew may be given up.
        """
        found = self.progress.of_node(node)
        return found.flushed if found is not None and found.replica == replica and replica in self.progress.ends else _NOTHING

    def level_end(self, level: Ack) -> PhysicalOffset:
        """How far `level` reaches now."""
        match level:
            case Ack.MASTER_RECEIVED:
                return self.written
            case Ack.MASTER_FLUSHED:
                return self.flushed
            case Ack.REPLICA_RECEIVED | Ack.REPLICA_FLUSHED:
                ends = self.progress.level_ends(flushed=level is Ack.REPLICA_FLUSHED)
                return min([self._confirmed, *[held_end(each.ids, ends, self._rules.level_copies) for each in self._records]])

    def reaches(self, level: Ack, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether [start, end) has reached `level` by now."""
        if self.level_end(level) < end:
            return False
        if level not in REPLICA_LEVELS or not self.was_left_out(start, end):
            return True
        ends = self.progress.level_ends(flushed=level is Ack.REPLICA_FLUSHED)
        return all(self._holding(each, ends, start, end) >= self._rules.level_copies for each in self._records)

    def levels_reached(self, start: PhysicalOffset, end: PhysicalOffset) -> tuple[Ack, ...]:
        """Levels that [start, end) has reached by now."""
        return tuple([level for level in _LEVELS if self.reaches(level, start, end)])

    def was_left_out(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether a member does not hold bytes of [start, end) whole, whatever it acknowledged."""
        return any(self._has_missing(member, start, end) for member in self.record.members)

    def copies(self, start: PhysicalOffset, end: PhysicalOffset) -> tuple[tuple[str, bool], ...]:
        """Replicas, members or not, that hold [start, end) whole, by node, and whether they have flushed it. Without the master."""
        holding = (each for each in self.progress if each.received >= end and not self._missing.slave(each.node, start, end))
        return tuple([(each.node, each.flushed >= end) for each in holding])

    def master_has(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether the master holds [start, end) whole, as far as it knows."""
        return not self._missing.master(start, end)

    # What happens

    def master_at(self, *, written: PhysicalOffset, flushed: PhysicalOffset, now: float) -> None:
        """The master's own log moved."""
        self.progress.ran_s(now)
        self.progress.master_at(written=written, flushed=flushed)
        self._advance()

    def slave_at(
        self, node: str, replica: ReplicaId, *, received: PhysicalOffset, flushed: PhysicalOffset, adopted: bool, now: float
    ) -> None:
        """The replica acknowledged on its stream. `adopted`: the ack says that it has adopted this master's epoch.

        An ack of a replica that another one has replaced under its node name is ignored. A member's id under another node name counts for
        nothing: its disk was copied or moved. Nor does a replica that holds less than the log that the epoch began with: it had adopted the
        epoch, lost bytes, and came back as a new incarnation.
        """
        found = self.progress.of_node(node)
        if found is None or found.replica != replica or not found.streams:
            return
        members = [member for record in self._records if (member := record.member(replica)) is not None]
        counts = adopted and flushed >= self._begin and all(member.node == node for member in members)
        self.progress.acked(node, received=received, flushed=flushed, adopted=counts, now=now)
        self._advance()

    def stream_begins(
        self, node: str, replica: ReplicaId, at: PhysicalOffset, missing_ranges: MissingRanges | None, *, address: str, now: float
    ) -> None:
        """A replica's stream begins at `at`, and of the bytes before it lacks `missing_ranges`. `address` is its replication port, for the
        record.

        `missing_ranges` None: it is to truncate its log, and says afterwards what it lacks; until then it lacks what it was known to lack.
        """
        for gone in self.progress.stream_begins(node, replica, at, address=address, now=now):
            self._missing.forget(gone)
        self._missing.end_at(node, at)
        if missing_ranges is not None:
            self.record_missing(node, missing_ranges, at)

    def stream_ended(self, node: str, *, sent_goodbye: bool, now: float) -> None:
        """The node has no stream now. Its acks count on: what it acknowledged it holds, or it comes back under another id."""
        self.progress.stream_ended(node, sent_goodbye=sent_goodbye, now=now)

    def record_missing(self, node: str, ranges: MissingRanges, upto: PhysicalOffset) -> None:
        """All that this replica knows to lack of what it received up to `upto`: it may have got some of it since it said so last."""
        self._missing.remove_before(node, upto)
        for start, end in ranges:
            self._missing.add(node, start, end)
        self._advance()

    def record_skipped(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """Bytes in [start, end) are damaged here, so that replica is told to leave them out."""
        self._missing.add(node, start, end)
        self._advance()

    def record_missing_on_master(self, ranges: Ranges) -> None:
        """All of its own log that the master knows not to hold whole, in order. What of it was confirmed before stays so."""
        self._missing.own = ranges
        self._advance()

    def forget(self, node: str) -> None:
        """That node is neither connected nor a member: none of its copies is claimed from now on."""
        assert node not in self.members
        self.progress.forget(node)
        self._missing.forget(node)

    def deadline_missed(self, end: PhysicalOffset, *, since: float, now: float) -> None:
        """A producer waited in vain for copies of [.., end) from `since` until now, both monotonic seconds."""
        self.progress.deadline_missed(end, members=self.record.ids, since=since, now=now)

    def tick(self, now: float) -> None:
        """Time passed; to be called at least once a second."""
        self.progress.tick(self.record.ids, now)

    def record_sent(self, record: GroupRecord) -> None:
        """A write of `record` may leave from now on: until its outcome is known, nothing is confirmed that not both records have."""
        assert self._sent is None or self._sent == record
        self._sent = record

    def record_known(self, record: GroupRecord) -> None:
        """`record` is in the store, and no earlier write of this master can arrive later than it."""
        self.progress.clear_missed(self.record.ids ^ record.ids)
        self.record, self._sent = record, None
        self._advance()

    @property
    def _records(self) -> tuple[GroupRecord, ...]:
        return (self.record,) if self._sent is None else (self.record, self._sent)

    def _advance(self) -> None:
        end = confirmed_end(self._records, self.progress.ends)
        if end > self._confirmed:
            for start, stop in self._missing.after(self._confirmed):
                if start < end and not self._may_pass(start, min(stop, end)):
                    end = max(start, self._confirmed)
            self._confirmed = max(self._confirmed, end)

    def _may_pass(self, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        """Whether of the members that do not lack some of [start, end) `needed` hold it, or all of them do."""
        for record in self._records:
            whole = [member for member in record.members if not self._has_missing(member, start, end)]
            holding = sum(self.progress.ends.get(member.replica, _NOTHING) >= end for member in whole)
            if holding < min(record.needed, len(whole)):
                return False
        return True

    def _holding(self, record: GroupRecord, ends: Ends, start: PhysicalOffset, end: PhysicalOffset) -> int:
        """So many members hold [start, end) whole."""
        return sum(ends.get(member.replica, _NOTHING) >= end and not self._has_missing(member, start, end) for member in record.members)

    def _has_missing(self, member: Member, start: PhysicalOffset, end: PhysicalOffset) -> bool:
        if member.replica == self.own:
            return self._missing.master(start, end)
        return self._missing.slave(member.node, start, end)


def _alone(node: str, own: ReplicaId) -> GroupRecord:
    """What a master without a record goes by: itself."""
    return GroupRecord("", NO_EPOCH, 0, own, (Member(node, own, ""),), copies=1)
