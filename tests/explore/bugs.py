"""Deliberate bugs: each leaves one rule of leadership out, of a decider or of its driver. The explorer must find every one of them."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dittomq.doors.coordination import Versioned
from dittomq.group_record import GroupRecord, ReplicaId, in_order
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import confirmed_offset, election, election_events, membership
from dittomq.replication.confirmed_offset import ConfirmedOffset
from dittomq.replication.election import Election
from dittomq.replication.election_events import Command, Position, PromiseSelf, WriteRecord
from dittomq.replication.election_states import Attempt
from dittomq.replication.membership import Membership
from dittomq.replication.membership_states import RecordWrite, WriteStep
from tests.explore.values import BIRTH, LEADS, Effect, SmallBounds, SmallReplica
from tests.explore.world import SmallWorld

Patch = tuple[Any, str, Any]


@dataclass(frozen=True, slots=True)
class Bug:
    """`rule` is what is left out, as a sentence, with (M) where the contract has that mark. The bug shows within `bounds`."""

    name: str
    rule: str
    bounds: SmallBounds
    world: type[SmallWorld] = SmallWorld
    patches: tuple[Patch, ...] = ()
    recover_each: int = 2_000

    @contextmanager
    def planted(self) -> Iterator[SmallWorld]:
        """A world with the bug in it; outside the deciders are as they were."""
        with ExitStack() as undo:
            for owner, name, buggy in self.patches:
                undo.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, buggy)
            yield self.world(self.bounds)


class _AdoptsAtOnce(SmallWorld):
    def adopting(self, slave: SmallReplica, epoch: int, start: int) -> SmallReplica:
        return slave._replace(adopted=epoch)


class _ForgetsPromises(SmallWorld):
    def restarted(self, replica: SmallReplica) -> SmallReplica:
        return replica._replace(promised=replica.adopted, stream=0) if replica.mode != LEADS else replica


class _AcksBeforeItAdopts(SmallWorld):
    def acknowledges(self, slave: SmallReplica, epoch: int, start: int) -> bool:
        return True


class _TakesTailsAsTheyCome(SmallWorld):
    """From each better answer that comes, without its adopted epoch."""

    def _promised(self, at: int, own: SmallReplica, by: int, other: SmallReplica) -> Effect:
        effect = super()._promised(at, own, by, other)
        if self.position(by, other).log_rank > self.position(at, own).log_rank and effect.words.find(" promises ") > 0:
            after: SmallReplica = self.replicas[effect.own]
            return effect._replace(own=self.number(after._replace(log=other.log)))
        return effect


class _AdoptsWithAPart(SmallWorld):
    def took_part(self, candidate: SmallReplica, source: SmallReplica) -> SmallReplica:
        return candidate._replace(adopted=source.adopted)


class _OpensWithoutItsPromise(SmallWorld):
    def may_open(self, candidate: SmallReplica, epoch: int) -> bool:
        return True


def _only_the_known_record(offset: ConfirmedOffset) -> tuple[GroupRecord, ...]:
    return (offset.record,)


def _only_the_sent_record(offset: ConfirmedOffset) -> tuple[GroupRecord, ...]:
    return (offset.record if offset._sent is None else offset._sent,)


def _takes_the_old_version_for_failed(members: Membership, found: Versioned | None, now: float) -> None:
    if members._state is RecordWrite.IN_DOUBT and found is not None and found.record.revision == members._known.record.revision:
        members._move(WriteStep.RECORD_MOVED, RecordWrite.SETTLED)
        members._resolve(members._known, now)
        return
    _HONEST_READ(members, found, now)


_HONEST_READ: Final = Membership.record_read


def _any_replica(proposed: GroupRecord, holders: object) -> bool:
    return True


def _everybody_while_nothing_is_confirmed(offset: ConfirmedOffset) -> frozenset[ReplicaId]:
    """Goes by the confirmed offset alone: each replica that it knows holds everything up to 0."""
    if offset._confirmed == 0:
        return offset.record.ids | {each.replica for each in offset.progress}
    return confirmed_offset.holders_of(offset.progress.ends, offset._confirmed)


def _whatever_it_holds(offset: ConfirmedOffset, *facts: Any, **more: Any) -> None:
    offset._begin = PhysicalOffset(0)
    _HONEST_ACK(offset, *facts, **more)


_HONEST_ACK: Final = ConfirmedOffset.slave_at


def _without_the_master(records: Collection[GroupRecord], ends: confirmed_offset.Ends) -> PhysicalOffset:
    return min(confirmed_offset.held_end(record.ids, ends, record.needed) for record in records)


def _its_own_log(positions: Iterable[Position], own: Position) -> Position:
    return own


def _longest(position: Position) -> tuple[int, int]:
    return 0, position.log_end


def _newest(position: Position) -> tuple[int, int]:
    return position.adopted, 0


def _always(*_: object) -> bool:
    return True


def _one_too_few(record: GroupRecord) -> int:
    return max(1, len(record.members) - record.needed)


def _counts_only(record: GroupRecord, replicas: Any) -> bool:
    return len(record.ids & frozenset(replicas)) >= record.election_quorum


def _above_the_record(election: Election) -> list[Command]:
    election._epoch = Epoch(1 + election._epoch_of(election._found))
    return election._go(Attempt.PROMISING_SELF, PromiseSelf(election._epoch, BIRTH))


def _members_that_promised(election: Election) -> list[Command]:
    [command] = _HONEST_WRITE(election)
    assert isinstance(command, WriteRecord)
    record = command.record
    here = {each.replica for each in election._promised()} | {record.master}
    object.__setattr__(record, "members", in_order(each for each in record.members if each.replica in here))
    return [command]


_HONEST_WRITE: Final = Election._write_record


def _property(getter: Callable[[Any], Any]) -> Any:
    return property(getter)


_B_LEADS: Final = (
    "B stands in epoch 2 at revision 1 and reaches C",
    "C promises B epoch 2",
    "the store has revision 2",
    "B hears that its record",
)
_B_LEADS_TWICE: Final = (
    *_B_LEADS,
    "C follows B in epoch 2",
    "B appends",
    "B appends",
    "B restarts",
    "B stands in epoch 3 at revision 2 and reaches none",
    "the store has revision 3",
    "B hears that its record",
)
_A_LEADS_TWICE: Final = (
    "A appends",
    "B takes a byte of A",
    "A gets the ack of B at 1",
    "A restarts",
    "A stands in epoch 2 at revision 1 and reaches none",
    "the store has revision 2",
    "A hears that its record",
)
_SMALL: Final = SmallBounds(copies=2, epochs=3, appends=1, changes=0)
_CHANGING: Final = SmallBounds(copies=2, epochs=2, appends=1, changes=1)

BUGS: Final = (
    Bug("adopts-at-once", "(M) A slave adopts an epoch only when it holds the log up to where the epoch begins.", _SMALL, _AdoptsAtOnce),
    Bug("forgets-promises", "(M) A promise is durable before its answer leaves.", _SMALL, _ForgetsPromises),
    Bug(
        "acks-before-adopting",
        "(M) Only members that have adopted the epoch confirm.",
        SmallBounds(copies=2, epochs=4, appends=2, changes=0, begun=_B_LEADS_TWICE),
        _AcksBeforeItAdopts,
        ((ConfirmedOffset, "slave_at", _whatever_it_holds),),  # the master checks it too
    ),
    Bug(
        "old-record-alone",
        "(M) While a write is under way, the new record must be satisfied too.",
        _CHANGING,
        patches=((ConfirmedOffset, "_records", _property(_only_the_known_record)),),
    ),
    Bug(
        "new-record-alone",
        "(M) While a write is under way, the old record must be satisfied too.",
        _CHANGING,
        patches=((ConfirmedOffset, "_records", _property(_only_the_sent_record)),),
    ),
    Bug(
        "old-version-proves",
        "(M) Reading the old version does not prove that a write failed.",
        _CHANGING,
        patches=((Membership, "record_read", _takes_the_old_version_for_failed),),
    ),
    Bug(
        "no-holders",
        "(M) `needed` members of the new set hold everything confirmed.",
        _CHANGING,
        patches=((membership, "may_change", _any_replica),),
    ),
    Bug(
        "holders-by-confirmed-alone",
        "(M) A holder has adopted the epoch: the confirmed offset that a new master knows is too low to go by.",
        _CHANGING,
        patches=((ConfirmedOffset, "holders", _property(_everybody_while_nothing_is_confirmed)),),
    ),
    Bug(
        "counts-shortened-logs",
        "A new incarnation of a replica that had adopted the epoch counts only from where the epoch begins.",
        SmallBounds(copies=2, epochs=2, appends=1, changes=1, losses=1, tails=True, begun=("A appends", "B takes a byte of A", *_B_LEADS)),
        patches=((ConfirmedOffset, "slave_at", _whatever_it_holds),),
    ),
    Bug(
        "confirms-without-the-master",
        "The master itself holds what it confirms: it is elected by its own promise alone.",
        SmallBounds(copies=2, epochs=2, appends=1, changes=0, unsynced=True),
        patches=((confirmed_offset, "confirmed_end", _without_the_master),),
    ),
    Bug(
        "own-log-wins",
        "(M) Of all answers the greatest (adopted epoch, log end) wins.",
        _SMALL,
        patches=((election, "winner_of", _its_own_log),),
    ),
    Bug(
        "longest-log-wins",
        "(M) The adopted epoch goes before the log end.",
        SmallBounds(copies=2, epochs=3, appends=2, changes=0, begun=("A appends", *_B_LEADS)),
        patches=((election_events.Position, "log_rank", _property(_longest)),),
    ),
    Bug(
        "newest-epoch-wins",
        "(M) Among equal adopted epochs the log end counts.",
        _SMALL,
        patches=((election_events.Position, "log_rank", _property(_newest)),),
    ),
    Bug(
        "keeps-its-adopted-epoch",
        "(M) With a tail the candidate takes over its adopted epoch, and it takes the best of all answers.",
        SmallBounds(copies=1, epochs=3, appends=1, changes=0),
        _TakesTailsAsTheyCome,
        ((election, "winner_of", _its_own_log),),
    ),
    Bug(
        "adopts-with-a-part",
        "(M) A tail that is fetched in part changes no adopted epoch.",
        SmallBounds(copies=2, epochs=4, appends=1, changes=0, partial=True, begun=_A_LEADS_TWICE),
        _AdoptsWithAPart,
    ),
    Bug(
        "members-that-promised",
        "(M) An election leaves the members as they are.",
        SmallBounds(copies=2, epochs=3, appends=1, changes=0),
        patches=((Election, "_write_record", _members_that_promised),),
    ),
    Bug(
        "opens-without-its-promise",
        "The candidate opens its epoch only while its promise holds.",
        SmallBounds(copies=1, epochs=3, appends=1, changes=0),
        _OpensWithoutItsPromise,
    ),
    Bug(
        "master-is-no-quorum",
        "The record's master is an election quorum by itself.",
        SmallBounds(copies=1, epochs=2, appends=1, changes=0),
        patches=((GroupRecord, "is_quorum", _counts_only),),
        recover_each=10,
    ),
    Bug(
        "promises-for-ever",
        "A candidate goes above every promise that it has seen.",
        SmallBounds(copies=2, epochs=3, appends=0, changes=0),
        patches=((Election, "_promise_self", _above_the_record),),
        recover_each=10,
    ),
    Bug(
        "quorum-too-small",
        "An election quorum has a member that holds whatever was confirmed.",
        _SMALL,
        patches=((GroupRecord, "election_quorum", _property(_one_too_few)),),
    ),
)
