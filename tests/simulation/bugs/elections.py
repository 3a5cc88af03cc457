"""Bugs in elections, promises, and in who is a member."""

from dataclasses import replace
from typing import Any

from dittomq.doors.coordination import Conflict, WriteOutcome, Written
from dittomq.group_record import GroupRecord
from dittomq.ha_status import DataLossKind
from dittomq.offsets import PhysicalOffset
from dittomq.replication import confirmed_offset, election
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election import Election, Position
from dittomq.replication.election_events import DataLoss
from dittomq.replication.membership import Membership
from dittomq.replication.slave_session import SlaveSession
from dittomq.rpc.replica_client import ReplicaClient
from services.master.in_sync_set import InSyncSet
from services.slave.replica_fetcher import ReplicaFetcher
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


async def _nothing(*_: Any, **__: Any) -> None:
    return


def one_promise_is_a_quorum(patches: Patches, _: Cluster) -> None:
    patches.put(GroupRecord, "is_quorum", always(True))


def a_quorum_is_one_short(patches: Patches, _: Cluster) -> None:
    """So many members are enough as may not hold what is confirmed."""
    patches.put(GroupRecord, "election_quorum", lambda _: property(lambda record: max(1, len(record.members) - record.needed)))


def others_than_members_count(patches: Patches, _: Cluster) -> None:
    """An offset is confirmed when enough replicas hold it, members or not."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(ends.keys(), ends, min(len(ends), record.needed)) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def the_deposed_go_on(patches: Patches, _: Cluster) -> None:
    """A master never learns that the record names another one, and keeps its slaves."""
    patches.put(InSyncSet, "_apply_change", lambda _: lambda members: members._parts.term.moved())
    patches.put(Membership, "writes_refused", always(None))
    patches.put(SlaveSession, "_why_not_bound", always(""))
    patches.put(ReplicaFetcher, "promised", always(None))
    patches.put(ReplicaFetcher, "end_stream", lambda _: _nothing)


def any_answer_promises(patches: Patches, _: Cluster) -> None:
    """A candidate takes a refusal for a promise."""

    def make(honest: Any) -> Any:
        async def ask(replicas: ReplicaClient, *what: Any) -> tuple[Position, bool]:
            position, _ = await honest(replicas, *what)
            return position, True

        return ask

    patches.put(ReplicaClient, "ask", make)
    patches.put(ReplicaClient, "promise", make)


def too_few_are_enough(patches: Patches, _: Cluster) -> None:
    """A candidate that finds no quorum leads alone, as if data loss had been allowed."""
    patches.put(Election, "_too_few", lambda _: lambda attempt, _: attempt._go_on_with_loss(DataLoss(DataLossKind.SETTING_ALLOWED)))


def the_master_may_lack_it(patches: Patches, _: Cluster) -> None:
    """Slaves alone confirm what their master has not flushed."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(record.ids, ends, record.needed) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def members_by_streams(patches: Patches, _: Cluster) -> None:
    """Whoever has no stream is no member to its master, whatever the record says."""

    def living(offset: ConfirmedOffset) -> tuple[GroupRecord, ...]:
        nodes = {*offset.in_sync, offset.record.master_node}
        return (replace(offset.record, members=tuple(each for each in offset.record.members if each.node in nodes)),)

    patches.put(ConfirmedOffset, "_records", lambda _: property(living))


def unknown_is_written(patches: Patches, _: Cluster) -> None:
    """A change of members that got no answer from the store is taken for written."""

    def make(honest: Any) -> Any:
        def ended(members: Membership, outcome: WriteOutcome | None, now: float) -> None:
            sent = members._change
            unanswered = sent is not None and not isinstance(outcome, Written | Conflict)
            honest(members, Written(sent.expected.version) if sent is not None and unanswered else outcome, now)

        return ended

    patches.put(Membership, "write_ended", make)


def nobody_joins(patches: Patches, _: Cluster) -> None:
    """Who left the in-sync set never becomes a member again."""
    patches.put(Membership, "_may_join", always(False))


def the_shortest_log_wins(patches: Patches, _: Cluster) -> None:
    """Of all that promised the one with the least wins, and the candidate cuts its own log to that."""
    patches.put(election, "winner_of", lambda _: lambda positions, own: min(positions, key=lambda each: (each.log_rank, each is not own)))
    patches.put(Election, "_should_stand_back", always(False))
