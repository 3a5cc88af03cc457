"""Bugs in elections, promises, and in who is a member."""

from dataclasses import replace
from typing import Any

from dittomq.broker.candidate import Candidate
from dittomq.commitlog.state import replica
from dittomq.commitlog.state.replica import OwnReplica
from dittomq.doors.coordination import Conflict, Written
from dittomq.group_record import GroupRecord
from dittomq.offsets import PhysicalOffset
from dittomq.replication import confirmed_offset, election, membership
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election import Election
from dittomq.replication.membership import Membership
from dittomq.replication.membership_states import RecordWrite
from dittomq.replication.slave_session import SlaveSession
from services.master.answers import MasterAnswers
from services.master.in_sync_set import InSyncSet
from services.master.node import MasterNode
from services.master.term import Term
from services.slave.follower import Follower
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


async def _nothing(*_: Any, **__: Any) -> None:
    return


def promises_are_forgotten(patches: Patches, _: Cluster) -> None:
    """A promise is in memory only: a restart forgets it, and what was adopted with it stays."""

    def make(honest: Any) -> Any:
        def save(storage: Any, state: Any) -> None:
            honest(storage, replace(state, promised=state.adopted))

        return save

    patches.put(replica, "save", make)


def older_masters_are_followed(patches: Patches, _: Cluster) -> None:
    """A replica promises, and its stream goes on."""
    patches.put(SlaveSession, "_not_obeyed", always(""))
    patches.put(Follower, "promised", always(None))
    patches.put(Follower, "end_stream", lambda _: _nothing)


def the_longest_log_wins(patches: Patches, _: Cluster) -> None:
    patches.put(election, "winner_of", lambda _: lambda positions, own: max([own, *positions], key=lambda each: each.log_end))


def the_candidates_log_wins(patches: Patches, _: Cluster) -> None:
    patches.put(election, "winner_of", lambda _: lambda *logs: logs[-1])


def one_promise_is_a_quorum(patches: Patches, _: Cluster) -> None:
    patches.put(GroupRecord, "is_quorum", always(True))


def every_ack_counts(patches: Patches, _: Cluster) -> None:
    """Whether the slave has adopted the epoch or not."""
    patches.put(
        ConfirmedOffset, "slave_at", lambda honest: lambda confirmed, *who, **how: honest(confirmed, *who, **(how | {"adopted": True}))
    )


def acks_to_the_last_master_count(patches: Patches, _: Cluster) -> None:
    """Members are taken to hold all that the new epoch begins with."""

    def make(honest: Any) -> Any:
        def begin(confirmed: ConfirmedOffset, rules: Any, *, end: PhysicalOffset, **others: Any) -> None:
            honest(confirmed, rules, end=end, **others)
            confirmed.progress.ends |= dict.fromkeys(confirmed.record.ids, end)
            confirmed._advance()

        return begin

    patches.put(ConfirmedOffset, "__init__", make)


def others_than_members_count(patches: Patches, _: Cluster) -> None:
    """An offset is confirmed when enough replicas hold it, members or not."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(ends.keys(), ends, min(len(ends), record.needed)) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def a_change_binds_at_once(patches: Patches, _: Cluster) -> None:
    """The old record is no longer satisfied from the moment at which a new one is sent, whether it is written or not."""

    def make(_: Any) -> Any:
        def sent(confirmed: ConfirmedOffset, record: GroupRecord) -> None:
            confirmed.record = record
            confirmed._advance()

        return sent

    patches.put(ConfirmedOffset, "record_sent", make)


def members_need_hold_nothing(patches: Patches, _: Cluster) -> None:
    patches.put(membership, "may_change", always(True))


def silence_removes_nobody(patches: Patches, _: Cluster) -> None:
    """A member that is gone stays one."""
    patches.put(Membership, "_why_leave", always(None))


def a_conflict_is_a_success(patches: Patches, _: Cluster) -> None:
    """A candidate takes the record for its own though another writer was first."""

    def make(honest: Any) -> Any:
        def ended(decider: Election, outcome: Any, now: float) -> Any:
            return honest(decider, Written("0") if isinstance(outcome, Conflict) else outcome, now)

        return ended

    patches.put(Election, "_write_ended", make)


def the_deposed_go_on(patches: Patches, _: Cluster) -> None:
    """A master never learns that the record names another one, and keeps its slaves."""
    patches.put(InSyncSet, "_settled", lambda _: lambda members: members._parts.term.moved())
    patches.put(Membership, "writes_refused", always(None))
    patches.put(SlaveSession, "_not_obeyed", always(""))
    patches.put(Follower, "promised", always(None))
    patches.put(Follower, "end_stream", lambda _: _nothing)


def a_master_promises_and_leads_on(patches: Patches, _: Cluster) -> None:
    patches.put(MasterAnswers, "_follow", always(None))
    patches.put(MasterNode, "end_term", always(None))
    patches.put(Term, "end", always(None))


def strangers_keep_their_ids(patches: Patches, _: Cluster) -> None:
    """A start that may lack acknowledged bytes is the same replica all the same."""
    patches.put(OwnReplica, "draw_incarnation", always(None))


def hearing_masters_is_no_reason(patches: Patches, _: Cluster) -> None:
    """A replica stands whether it hears its master or not, and each one promises."""
    patches.put(Candidate, "_master_is_silent", always(True))


def elections_end_at_the_write(patches: Patches, _: Cluster) -> None:
    """A write of unknown outcome is taken for one that took place."""

    def make(honest: Any) -> Any:
        def doubt(decider: Election, now: float) -> Any:
            assert decider._proposal is not None
            return honest(decider, now) if decider._doubt_since is not None else decider._write_ended(Written("0"), now)

        return doubt

    patches.put(Election, "_doubt", make)


def writes_that_may_arrive_are_forgotten(patches: Patches, _: Cluster) -> None:
    """A master reads the old record, and takes its write of unknown outcome for one that never comes."""

    def make(honest: Any) -> Any:
        def read(members: Membership, found: Any, now: float) -> None:
            honest(members, found, now)
            if found is not None and members._state is RecordWrite.IN_DOUBT and found.record == members._known.record:
                members._state = RecordWrite.SETTLED
                members._settle(found, now)

        return read

    patches.put(Membership, "record_read", make)
