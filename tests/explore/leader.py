"""A master's two deciders as one, without time: each call is at second 0, and what waits may wait for ever or no more."""

from dataclasses import replace
from itertools import combinations
from math import inf
from typing import Any, Final, assert_never

from dittomq.doors.coordination import Versioned
from dittomq.group_record import GroupRecord, ReplicaId
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.membership import Membership
from dittomq.replication.membership_states import RecordWrite
from dittomq.replication.progress import ConfirmRules

_NOW: Final = 0.0
_LONG_AGO: Final = -1_000.0


class MasterDeciders:
    """What a master's driver keeps: the confirmed offset, and the members."""

    def __init__(self, record: GroupRecord, version: str, *, end: int, copies: int, own: ReplicaId, node: str) -> None:
        rules = ConfirmRules(
            copies=copies,
            level_copies=copies,
            min_in_sync_replicas=1,
            replicas_expected=2,
            sync_flush=True,
            release_flushed=True,
            max_gap_bytes=1 << 30,
            max_lag_s=inf,
            write_deadline_s=1.0,
            leave_s=inf,
        )
        self.offset = ConfirmedOffset(
            rules, own=own, node=node, record=record, end=PhysicalOffset(end), confirmed=PhysicalOffset(0), now=_NOW
        )
        self.members = Membership(rules, self.offset, Versioned(record, version), now=_NOW)
        self._forget_time()

    @property
    def confirmed_end(self) -> int:
        """What it confirmed."""
        return self.offset.confirmed

    @property
    def is_proposed(self) -> bool:
        """Whether other members are wanted, and holders of them still catch up."""
        return self.members.state is RecordWrite.PROPOSED

    @property
    def sent(self) -> GroupRecord | None:
        """What it has sent, if it does not know the outcome."""
        change = self.members._change
        return change.record if change is not None and self.members.state not in (RecordWrite.PROPOSED, RecordWrite.SETTLED) else None

    @property
    def awaits_answer(self) -> bool:
        """Whether the store's answer is not here."""
        return self.members.state in (RecordWrite.SENT, RecordWrite.RESENT)

    @property
    def may_leave(self) -> list[tuple[ReplicaId, ...]]:
        """Sets of members that may leave, if it may want others now; what is in doubt is on its way already, and not sent again."""
        if self.members.state not in (RecordWrite.SETTLED, RecordWrite.PROPOSED):
            return []
        if self.is_proposed:
            return [()]
        others = sorted(self.offset.record.ids - {self.offset.own})
        return [chosen for size in range(len(others) + 1) for chosen in combinations(others, size)]

    def streams(self, node: str) -> bool:
        """Whether that replica has a stream, as far as this master knows."""
        found = self.offset.progress.of_node(node)
        return found is not None and found.streams

    def take(self, event: tuple[Any, ...]) -> Any:
        """Take what happened. Returns the record that must be written, or whether it is fenced."""
        said = self._take(event)
        self._forget_time()
        return said

    def _take(self, event: tuple[Any, ...]) -> Any:
        offset, members = self.offset, self.members
        match event:
            case ("grew", end, flushed):
                offset.master_at(written=end, flushed=flushed, now=_NOW)
            case ("stream", node, replica, at):
                offset.stream_begins(node, replica, at, (), address="", now=_NOW)
            case ("ack", node, replica, end):
                offset.slave_at(node, replica, received=end, flushed=end, adopted=True, now=_NOW)
            case ("end", node):
                offset.stream_ended(node, sent_goodbye=False, now=_NOW)
            case ("decide", leaving):
                for replica in leaving:
                    members.must_leave(replica)
                change = members.decide(_NOW, write=f"m{members.known.record.revision}")
                return change.record if change is not None else None
            case ("give up",):
                members._proposed_at = _LONG_AGO
                members.decide(_NOW, write="")
            case ("ended", outcome):
                members.write_ended(outcome, _NOW)
            case ("read", found):
                members.record_read(found, _NOW)
                return members.state is RecordWrite.FENCED
            case _:
                assert_never(event)  # type: ignore[arg-type]
        return None

    def _forget_time(self) -> None:
        """Everything that time allows may happen, so no two states differ in it alone."""
        members = self.members
        members._sent_at = members._rests_until = _LONG_AGO
        members._proposed_at = _NOW
        members._left, members._must_leave = {}, {}
        if members._change is not None:
            members._change = replace(members._change, reasons=())
        for each in self.offset.progress:
            each.received_at = each.since = each.caught_up_at = each.mark_at = each.away_since = _NOW
            each.mark_end, each.has_acked = PhysicalOffset(0), True
