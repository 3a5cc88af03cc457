"""Bugs in elections, promises, and in who is a member."""

from dataclasses import replace
from typing import Any

from dittomq import group_record
from dittomq.broker import candidate
from dittomq.broker.group_watch import GroupWatch
from dittomq.doors.coordination import Conflict, WriteOutcome, Written
from dittomq.group_record import GroupRecord
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import confirmed_offset, election, membership
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election import Election, Position, PromiseSelf
from dittomq.replication.election_states import Attempt
from dittomq.replication.membership import Membership
from dittomq.replication.promise import Grant
from dittomq.replication.slave_session import SlaveSession
from dittomq.rpc.replicas import RemoteReplicas
from services.master import answers
from services.master.in_sync_set import InSyncSet
from services.master.node import MasterNode
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


def nobody_joins(patches: Patches, _: Cluster) -> None:
    """Who left the in-sync set never becomes a member again."""
    patches.put(Membership, "_may_join", always(False))


def promises_are_for_ever(patches: Patches, _: Cluster) -> None:
    """A master takes no notice of slaves that have promised a higher epoch to a candidate that was not elected."""
    patches.put(MasterNode, "_promised_above", lambda _: _nothing)


def an_epoch_is_promised_twice(patches: Patches, _: Cluster) -> None:
    """A candidate asks for the highest epoch that it has seen, and gets it from whoever has promised it to another one."""

    def promise_self(attempt: Election) -> Any:
        seen = [attempt._own, *(each.position for each in attempt._answers.values())]
        attempt._epoch = Epoch(max(1, attempt._epoch_of(attempt._found), *(max(each.promised, each.adopted) for each in seen)))
        return attempt._go(Attempt.PROMISING_SELF, PromiseSelf(attempt._epoch, attempt._birth))

    patches.put(Election, "_promise_self", lambda _: promise_self)
    patches.put(candidate, "decide_promise", always(Grant()))
    patches.put(answers, "decide_promise", always(Grant()))


def nobody_stands(patches: Patches, _: Cluster) -> None:
    """However long its master is silent, no slave stands by itself."""
    patches.put(
        candidate.Candidate,
        "_master_is_silent",
        lambda _: lambda stands, record: record is None or stands._parts.store.replica == record.master,
    )


def the_first_record_is_believed(patches: Patches, _: Cluster) -> None:
    """A node goes by the first record that it has read, for as long as it runs."""

    def make(honest: Any) -> Any:
        async def learn(watch: GroupWatch, found: Any) -> None:
            await honest(watch, found if watch.found is None else watch.found)

        return learn

    patches.put(GroupWatch, "learn", make)


def the_shortest_log_wins(patches: Patches, _: Cluster) -> None:
    """Of all that promised the one with the least wins, and the candidate cuts its own log to that."""
    patches.put(election, "winner_of", lambda _: lambda positions, own: min(positions, key=lambda each: (each.log_rank, each is not own)))
    patches.put(Election, "_should_stand_back", always(False))
