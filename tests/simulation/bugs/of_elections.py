"""Bugs in elections, promises, and in who is a member."""

from dataclasses import replace
from typing import Any

from dittomq import group_record
from dittomq.broker.candidate import _Attempt
from dittomq.doors.coordination import Conflict, WriteOutcome, Written
from dittomq.group_record import GroupRecord
from dittomq.offsets import PhysicalOffset
from dittomq.replication import confirmed_offset, election, membership
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election import Election, Position
from dittomq.replication.membership import Membership
from dittomq.replication.promise import PromiseRequest
from dittomq.replication.slave_session import SlaveSession
from dittomq.rpc.replicas import RemoteReplicas
from services.master.answers import MasterAnswers
from services.master.in_sync_set import InSyncSet
from services.slave.follower import Follower
from tests.simulation.bugs.patches import Patches, always
from tests.simulation.cluster import Cluster


async def _nothing(*_: Any, **__: Any) -> None:
    return


def one_promise_is_a_quorum(patches: Patches, _: Cluster) -> None:
    patches.put(GroupRecord, "is_quorum", always(True))


def others_than_members_count(patches: Patches, _: Cluster) -> None:
    """An offset is confirmed when enough replicas hold it, members or not."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(ends.keys(), ends, min(len(ends), record.needed)) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def the_deposed_go_on(patches: Patches, _: Cluster) -> None:
    """A master never learns that the record names another one, and keeps its slaves."""
    patches.put(InSyncSet, "_settled", lambda _: lambda members: members._parts.term.moved())
    patches.put(Membership, "writes_refused", always(None))
    patches.put(SlaveSession, "_not_obeyed", always(""))
    patches.put(Follower, "promised", always(None))
    patches.put(Follower, "end_stream", lambda _: _nothing)


def anyone_is_elected(patches: Patches, _: Cluster) -> None:
    """A replica that is no member stands, and its promise counts."""
    patches.put(election, "is_member", always(True))
    patches.put(GroupRecord, "is_quorum", lambda _: lambda record, replicas: len(set(replicas)) >= record.election_quorum)


def the_own_log_wins(patches: Patches, _: Cluster) -> None:
    """A candidate leads with the log that it has, whatever those hold that promised."""
    patches.put(Election, "_elect", lambda _: lambda attempt: attempt._write_record())
    patches.put(Election, "_should_stand_back", always(False))


def the_longest_log_wins(patches: Patches, _: Cluster) -> None:
    """Of two logs the longer one wins, be it of an older epoch."""
    patches.put(Position, "log_rank", lambda _: property(lambda position: (0, position.masters_end)))
    patches.put(Position, "preference", lambda _: property(lambda position: (-position.masters_end, position.node)))


def any_answer_promises(patches: Patches, _: Cluster) -> None:
    """A candidate takes a refusal for a promise."""

    def make(honest: Any) -> Any:
        async def ask(replicas: RemoteReplicas, *what: Any) -> tuple[Position, bool]:
            position, _ = await honest(replicas, *what)
            return position, True

        return ask

    patches.put(RemoteReplicas, "ask", make)
    patches.put(RemoteReplicas, "promise", make)


def too_few_are_enough(patches: Patches, _: Cluster) -> None:
    """A candidate that finds no quorum leads alone, as if data loss had been allowed."""
    patches.put(Election, "_too_few", lambda _: lambda attempt, _: attempt._go_on_with_loss("too few answer"))


def slaves_obey_older_masters(patches: Patches, _: Cluster) -> None:
    """A slave that has promised follows the master of an older epoch, and acknowledges to it."""
    patches.put(SlaveSession, "_not_obeyed", always(""))
    patches.put(Follower, "promised", always(None))
    patches.put(Follower, "end_stream", lambda _: _nothing)


def a_promise_does_not_stop_a_master(patches: Patches, _: Cluster) -> None:
    """A master that promised goes on until it reads the record."""

    def make(_: Any) -> Any:
        async def promise(answers: MasterAnswers, request: PromiseRequest, _: str) -> None:
            store = answers._parts.store
            await answers._parts.lanes.files.call(lambda: store.promise(request.epoch))

        return promise

    patches.put(MasterAnswers, "_promise", make)
    patches.put(MasterAnswers, "_follow", always(None))


def the_whole_log_is_confirmed(patches: Patches, _: Cluster) -> None:
    """A new master takes all that it holds for confirmed."""
    patches.put(election, "Elected", lambda honest: lambda record, version, _, end, *more: honest(record, version, end, end, *more))


def the_master_may_lack_it(patches: Patches, _: Cluster) -> None:
    """Slaves alone confirm what their master has not flushed."""

    def end(records: Any, ends: Any) -> PhysicalOffset:
        return min(confirmed_offset.held_end(record.ids, ends, record.needed) for record in records)

    patches.put(confirmed_offset, "confirmed_end", lambda _: end)


def what_was_sent_counts(patches: Patches, _: Cluster) -> None:
    """Members are what the master has asked the store to write."""
    patches.put(ConfirmedOffset, "_records", lambda _: property(lambda offset: (offset._sent or offset.record,)))


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


def one_copy_is_enough(patches: Patches, _: Cluster) -> None:
    """What the master alone holds is confirmed, whatever the record asks for."""
    patches.put(group_record, "needed_of", always(1))


def nodes_count_for_replicas(patches: Patches, _: Cluster) -> None:
    """A replica counts by its node's name, whatever became of the disk that was a member."""

    def is_member(record: GroupRecord, position: Position) -> bool:
        return record.member_of_node(position.node) is not None

    def is_quorum(attempt: Election, others: Any) -> bool:
        nodes = {each.node for each in attempt._countable(others)}
        record = attempt._found.record if attempt._found is not None else None
        return record is not None and (record.master_node in nodes or len(nodes) >= record.election_quorum)

    patches.put(election, "is_member", lambda _: is_member)
    patches.put(Election, "_is_quorum", lambda _: is_quorum)


def a_handshake_makes_a_member(patches: Patches, _: Cluster) -> None:
    """Whoever streams becomes a member, however little it holds."""
    patches.put(Membership, "_may_join", lambda _: lambda _, replica, __: replica.streams)
    patches.put(Membership, "_soon_holders", lambda _: lambda _, wanted, __: frozenset(each.replica for each in wanted))
    patches.put(membership, "may_change", always(True))


def copies_count_as_members(patches: Patches, _: Cluster) -> None:
    """A slave acknowledges in the epoch what its copy in the making holds, while elections are answered for its old store."""

    def make(honest: Any) -> Any:
        async def session(follower: Follower, line: Any, source: Any, replica: Any, ears: Any) -> Any:
            own, follower._own = follower._own, replica
            try:
                return await honest(follower, line, source, replica, ears)
            finally:
                follower._own = own

        return session

    patches.put(Follower, "_session", make)


def tables_are_not_taken(patches: Patches, _: Cluster) -> None:
    """A candidate leads with the tables that it has."""
    patches.put(_Attempt, "_take_tables", lambda _: _nothing)
