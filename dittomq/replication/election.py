"""⑤ An election: how one replica comes to lead its group, or does not.

Pure; one attempt of one candidate. It reads the group record, asks the members, promises an epoch that is above every promise it has seen,
has an election quorum promise it, takes over the log that wins, and writes the record by compare-and-set. Only that write makes a master.

Safety rests on the record's version, on durable promises, and on which log wins. Time decides only when it asks, waits or gives up.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, assert_never

from dittomq.doors.coordination import Conflict, Versioned, WriteOutcome, WriteUnknown, Written
from dittomq.group_record import GroupRecord, Member, in_order
from dittomq.ha_status import DataLossKind
from dittomq.offsets import NO_EPOCH, Epoch
from dittomq.replication.election_events import (
    Answered,
    AskMembers,
    AskPromises,
    BecomeMaster,
    Command,
    DataLoss,
    Elected,
    ElectionReason,
    ElectionReasonKind,
    ElectionRules,
    ElectionTick,
    EndElection,
    Event,
    Position,
    PromiseAnswered,
    PromiseSelf,
    PromiseUnanswered,
    ReadRecord,
    RecordRead,
    SelfPromised,
    SentBy,
    StandOrder,
    StoreSilent,
    TailFailed,
    TailTaken,
    TakeTail,
    Target,
    Unanswered,
    WriteEnded,
    WriteRecord,
)
from dittomq.replication.election_states import ELECTION_MOVES, Attempt

__all__ = ["Election", "Position", "is_member", "may_stand", "winner_of"]

_OTHERS_S: Final = 0.2  # a quorum waits so long for the other answers
_ANSWER_S: Final = 1.2  # a question that has no answer by then gets none
_STAND_BACK_S: Final = 0.3
_ASK_AGAIN_S: Final = 0.5
_ALL_CAME_S: Final = 5.0  # every member's uuid answers, and too few are who they were: nothing better can come
_SEND_AGAIN_S: Final = 0.2
_RACE_S: Final = (0.1, 0.4)  # another candidate is at work
_REST_S: Final = (0.5, 0.5)


def may_stand(
    rules: ElectionRules, own: Position, record: GroupRecord | None, order: StandOrder, *, master_is_silent: bool
) -> ElectionReason | None:
    """Why this replica does not stand for election now; None: it may.

    Without a record every replica may: then all must promise. A replica that is no member may where data loss is allowed, or where it
    is what became of one: whether that is enough the election finds out.
    """
    if own.leads:
        return ElectionReason(ElectionReasonKind.LEADS)
    if record is None:
        return None
    if own.birth and record.birth != own.birth:
        return ElectionReason(ElectionReasonKind.OTHER_BIRTH, ours=own.birth, theirs=record.birth)
    if own.birth and record.revision < own.revision:
        return ElectionReason(ElectionReasonKind.STORE_RESTORED, (own.node,), ours=str(own.revision), theirs=str(record.revision))
    is_successor = (found := record.member_of_node(own.node)) is not None and found.replica.uuid == own.replica.uuid
    if not (is_member(record, own) or is_successor or rules.allow_data_loss or order.allow_data_loss):
        return ElectionReason(ElectionReasonKind.NOT_MEMBER)
    if order.sent_by is not SentBy.NOBODY or (record.master == own.replica and record.master_node == own.node):
        return None
    if record.paused or not rules.automatic:
        kind = ElectionReasonKind.PAUSED if record.paused else ElectionReasonKind.MANUAL
        return ElectionReason(kind, (record.master_node,))
    return None if master_is_silent else ElectionReason(ElectionReasonKind.SEES_MASTER, (record.master_node,))


def is_member(record: GroupRecord, position: Position) -> bool:
    """Whether this replica is a member. Its id counts under the node name that the record gives it only: disks are copied."""
    member = record.member(position.replica)
    return member is not None and member.node == position.node and position.birth in ("", record.birth)


def winner_of(positions: Iterable[Position], own: Position) -> Position:
    """Of all that promised the one whose log wins: the greatest adopted epoch, then log end; if it is equal, the candidate's."""
    best = max(positions, key=lambda each: each.log_rank)
    return own if own.log_rank == best.log_rank else best


class Election:
    """One attempt of one candidate. The driver carries out what it returns, and reports; for the next attempt it makes another one."""

    def __init__(
        self,
        rules: ElectionRules,
        own: Position,
        order: StandOrder,
        nodes: tuple[Target, ...],
        *,
        birth: str,
        write: str,
        now: float,
    ) -> None:
        """`nodes` are the group as nameservers list it, where there is no record. `birth` and `write` are fresh random values."""
        self._rules = rules
        self._own = own
        self._order = order
        self._nodes = nodes
        self._fresh_birth = birth
        self._write = write
        self._state = ELECTION_MOVES.first
        self._began = now
        self._found: Versioned | None = None
        self._was_read = False
        self._targets: dict[str, Target] = {}  # whom the question under way goes to, without this node
        self._silent: set[str] = set()  # those of them that do not answer it
        self._asked_at = now
        self._answers: dict[str, Answered] = {}
        self._stood_back = False
        self._until = now  # STANDING_BACK, WAITING and IN_DOUBT end then
        self._promises: dict[str, PromiseAnswered] = {}
        self._epoch = NO_EPOCH  # what is promised
        self._loss: DataLoss | None = None  # why it leads without an election quorum; None: it has one
        self._proposal: GroupRecord | None = None
        self._unknown_since: float | None = None  # when the write was first in doubt

    @property
    def state(self) -> Attempt:
        """How far it is."""
        return self._state

    def begin(self) -> list[Command]:
        """The first command."""
        return [ReadRecord()]

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take what happened; `now` is monotonic. Late answers are ignored. Raises IllegalTransition for what was not asked for."""
        if ELECTION_MOVES.out_of_turn(self._state, type(event)):
            return []
        before = self._state
        commands = self._take(event, now)
        ELECTION_MOVES.check(before, type(event), self._state)
        return commands

    def _take(self, event: Event, now: float) -> list[Command]:
        match event:
            case RecordRead(found):
                return self._check(found, now) if self._state is Attempt.CHECKING else self._ask(found, now)
            case StoreSilent(problem):
                return self._store_silent(problem, now)
            case Answered(position):
                self._answers[position.node] = event
                return self._weigh_answers(now)
            case Unanswered(node):
                self._silent.add(node)
                return self._weigh_answers(now)
            case SelfPromised(position):
                return self._ask_promises(position, now)
            case PromiseAnswered(position):
                self._promises[position.node] = event
                return self._weigh_promises(now)
            case PromiseUnanswered(node):
                self._silent.add(node)
                return self._weigh_promises(now)
            case TailTaken(position):
                return self._tail_taken(position)
            case TailFailed(problem):
                return self._end(ElectionReasonKind.LOG_TAIL_NOT_FETCHED, (self._winner().node,), ours=problem)
            case WriteEnded(outcome):
                return self._write_ended(outcome, now)
            case ElectionTick():
                return self._tick(now)
            case _:
                assert_never(event)

    def _tick(self, now: float) -> list[Command]:
        match self._state:
            case Attempt.ASKING:
                return self._weigh_answers(now)
            case Attempt.PROMISING:
                return self._weigh_promises(now)
            case Attempt.IN_DOUBT if now >= self._until:
                return self._send_again(now)
            case Attempt.STANDING_BACK | Attempt.WAITING if now >= self._until:
                return self._go(Attempt.READING, ReadRecord())
        return []

    # Asking

    def _ask(self, found: Versioned | None, now: float) -> list[Command]:
        """The record is known: ask everybody, again if this replica waited."""
        record = found.record if found is not None else None
        if self._was_read and self._epoch_of(found) != self._epoch_of(self._found):
            return self._end(ElectionReasonKind.CONFLICT, retry=_RACE_S)
        if (problem := may_stand(self._rules, self._own, record, self._order, master_is_silent=True)) is not None:
            return self._end_with(problem, _REST_S)
        self._found, self._was_read = found, True
        listed = {target.node: target for target in self._nodes}
        recorded = {member.node: Target(member.node, member.address) for member in record.members} if record is not None else {}
        self._targets = {node: target for node, target in {**listed, **recorded}.items() if node != self._own.node}
        self._answers, self._silent, self._asked_at = {}, set(), now
        self._state = Attempt.ASKING
        return [*self._asking(), *self._weigh_answers(now)]

    def _asking(self) -> list[Command]:
        return [AskMembers(tuple(self._targets.values()), self._order.sent_by)] if self._targets else []

    def _weigh_answers(self, now: float) -> list[Command]:
        """Go on when an election quorum would promise and the others had their time, or when no other answer can come."""
        willing = [each.position for each in self._answers.values() if each.would_promise]
        all_answered = self._targets.keys() <= self._answers.keys() | self._silent or now >= self._asked_at + _ANSWER_S
        if self._is_quorum(willing):
            if not all_answered and now < self._asked_at + _OTHERS_S:
                return []
            if (problem := self._later_record()) is not None:
                return self._end_with(problem, _REST_S)
            return self._quorum_would_promise(willing, now)
        return self._too_few(now) if all_answered else []

    def _quorum_would_promise(self, willing: list[Position], now: float) -> list[Command]:
        torn_until = self._began + self._rules.silence_s
        if self._own.dropped_torn_tail and now < torn_until and not self._targets.keys() <= {each.node for each in willing}:
            return self._wait(torn_until, now)
        return self._stand_back(now) if self._should_stand_back(self._countable(willing)) else self._promise_self()

    def _should_stand_back(self, candidates: list[Position]) -> bool:
        """Once, for a better candidate that stands by itself: it may be unable to, and then this one takes its tail."""
        if self._stood_back or self._loss or self._order.sent_by is not SentBy.NOBODY:
            return False
        if self._found is not None and (self._found.record.paused or not self._rules.automatic):
            return False
        return min(candidates, key=lambda each: each.preference).node != self._own.node

    def _stand_back(self, now: float) -> list[Command]:
        self._stood_back, self._until = True, now + _STAND_BACK_S
        return self._go(Attempt.STANDING_BACK)

    def _too_few(self, now: float) -> list[Command]:
        """No quorum would promise, and no more answers come."""
        silent = tuple(sorted(self._targets.keys() - self._answers.keys()))
        refusing = tuple(sorted(node for node, each in self._answers.items() if not each.would_promise))
        if (problem := self._later_record()) is not None:
            return self._end_with(problem, _REST_S)
        if refusing:
            return self._end(ElectionReasonKind.REFUSED, refusing, retry=_RACE_S)
        if self._order.allow_data_loss:
            return self._go_on_with_loss(DataLoss(DataLossKind.OPERATOR_ALLOWED, silent))
        if self._found is None:
            answering = str(len(self._answers) + 1)
            return self._end(ElectionReasonKind.TOO_FEW_TO_CREATE, silent, ours=answering, theirs=str(self._rules.replicas_expected + 1))
        if self._every_uuid_answers(self._found.record):
            return self._wait_or_go_on(DataLoss(DataLossKind.REPLICAS_CHANGED), _ALL_CAME_S, now)
        if self._rules.allow_data_loss and not self._is_quorum_without_own(self._found.record):
            return self._wait_or_go_on(DataLoss(DataLossKind.SETTING_ALLOWED, silent), self._rules.isolation_s, now)
        if not is_member(self._found.record, self._own):
            return self._end(ElectionReasonKind.NOT_MEMBER)
        return self._end(ElectionReasonKind.TOO_FEW, silent or tuple(sorted(self._targets)))

    def _wait_or_go_on(self, loss: DataLoss, timeout_s: float, now: float) -> list[Command]:
        if now < self._began + timeout_s:
            return self._wait(self._began + timeout_s, now)
        return self._stand_back(now) if self._should_stand_back(self._seen()) else self._go_on_with_loss(loss)

    def _wait(self, until: float, now: float) -> list[Command]:
        self._until = min(until, now + _ASK_AGAIN_S)
        return self._go(Attempt.WAITING)

    def _go_on_with_loss(self, loss: DataLoss) -> list[Command]:
        self._loss = loss
        return self._promise_self()

    # Promising

    def _promise_self(self) -> list[Command]:
        seen = [self._own, *(each.position for each in self._answers.values())]
        self._epoch = Epoch(1 + max(self._epoch_of(self._found), *(max(each.promised, each.adopted) for each in seen)))
        return self._go(Attempt.PROMISING_SELF, PromiseSelf(self._epoch, self._birth))

    def _ask_promises(self, own: Position, now: float) -> list[Command]:
        """Its own promise is durable: ask those that would promise."""
        self._own = own
        if own.promised != self._epoch:
            return self._overtaken([own])
        self._targets = {node: each for node, each in self._targets.items() if self._would_promise_by(node)}
        self._silent, self._asked_at = set(), now
        self._state = Attempt.PROMISING
        asked = [AskPromises(self._epoch, self._birth, tuple(self._targets.values()), self._order.sent_by)] if self._targets else []
        return [*asked, *self._weigh_promises(now)]

    def _would_promise_by(self, node: str) -> bool:
        """Whether it would promise by this record: a replica of another birth is as good as silent."""
        said = self._answers.get(node)
        return said is not None and said.would_promise and self._is_of_birth(said.position)

    def _weigh_promises(self, now: float) -> list[Command]:
        """Go on when an election quorum has promised and the others had their time."""
        promised = self._promised()
        all_answered = self._targets.keys() <= self._promises.keys() | self._silent or now >= self._asked_at + _ANSWER_S
        if self._is_quorum(promised) and (all_answered or now >= self._asked_at + _OTHERS_S):
            return self._elect()
        if not all_answered:
            return []
        refusing = [each.position for each in self._promises.values() if not each.is_promised]
        if any(each.promised >= self._epoch for each in refusing):
            return self._overtaken(refusing)
        if refusing:
            return self._end(ElectionReasonKind.REFUSED, tuple(sorted(each.node for each in refusing)), retry=_RACE_S)
        if self._loss and self._order.allow_data_loss:
            return self._elect()
        return self._end(ElectionReasonKind.TOO_FEW, tuple(sorted(self._targets.keys() - self._promises.keys())), retry=_RACE_S)

    def _overtaken(self, positions: Iterable[Position]) -> list[Command]:
        promised = max(each.promised for each in positions)
        return self._end(ElectionReasonKind.OVERTAKEN, ours=str(self._epoch), theirs=str(promised), retry=_RACE_S)

    def _elect(self) -> list[Command]:
        """Enough have promised: the best log of all that did wins, unless a replica knows more to be confirmed."""
        winner = self._winner()
        knows_most = max(self._seen(), key=lambda each: each.confirmed)
        if knows_most.confirmed > winner.masters_end and not self._order.allow_data_loss:
            ends, known = f"{winner.log_end:,}", f"{knows_most.confirmed:,}"
            return self._end(ElectionReasonKind.CONFIRMED_MISSING, (knows_most.node,), ours=ends, theirs=known)
        if winner is self._own:
            return self._write_record()
        return self._go(Attempt.TAKING_TAIL, TakeTail(winner))

    def _winner(self) -> Position:
        return winner_of([self._own, *self._countable(self._promised())], self._own)

    def _tail_taken(self, own: Position) -> list[Command]:
        winner, self._own = self._winner(), own
        if own.promised != self._epoch:
            return self._overtaken([own])
        if own.log_rank != winner.log_rank:
            held = f"this log ends at {own.log_end:,} in epoch {own.adopted}, not at {winner.log_end:,} in {winner.adopted}"
            return self._end(ElectionReasonKind.LOG_TAIL_NOT_FETCHED, (winner.node,), ours=held)
        return self._write_record()

    # Writing

    def _write_record(self) -> list[Command]:
        own, found = self._own, self._found
        myself = Member(own.node, own.replica, own.address)
        if found is None:
            revision = 1 + max(each.revision for each in self._seen())
            self._proposal = GroupRecord(
                self._fresh_birth, self._epoch, revision, own.replica, (myself,), self._rules.copies, write=self._write
            )
        elif self._loss:
            self._proposal = found.record.next(self._write, epoch=self._epoch, master=own.replica, members=(myself,))
        else:
            members = in_order(replace(each, address=own.address) if each.replica == own.replica else each for each in found.record.members)
            self._proposal = found.record.next(self._write, epoch=self._epoch, master=own.replica, members=members)
        return self._go(Attempt.WRITING, WriteRecord(self._proposal, found))

    def _write_ended(self, outcome: WriteOutcome, now: float) -> list[Command]:
        assert self._proposal is not None
        match outcome:
            case Written(version):
                return self._become_master(Versioned(self._proposal, version), now)
            case Conflict():
                return self._go(Attempt.CHECKING, ReadRecord())
            case WriteUnknown():
                return self._retry_unknown(now)
            case _:
                assert_never(outcome)

    def _check(self, found: Versioned | None, now: float) -> list[Command]:
        """Whether the record names this replica, by its own write. The old version proves nothing: the write may still arrive."""
        assert self._proposal is not None
        if found is not None and self._is_own_epoch(found.record):
            return self._become_master(found, now)
        return self._retry_unknown(now) if found == self._found else self._end(ElectionReasonKind.CONFLICT, retry=_RACE_S)

    def _is_own_epoch(self, record: GroupRecord) -> bool:
        """Whether only this election can have led to the record; an operator may have paused it since."""
        assert self._proposal is not None
        ours = self._proposal
        return (record.birth, record.epoch, record.master) == (ours.birth, ours.epoch, ours.master)

    def _retry_unknown(self, now: float) -> list[Command]:
        self._unknown_since = now if self._unknown_since is None else self._unknown_since
        self._until = now + _SEND_AGAIN_S
        return self._go(Attempt.IN_DOUBT)

    def _send_again(self, now: float) -> list[Command]:
        """The same write. After `silence_s` it ends, and claims nothing: if the write arrives, the recorded master stands again."""
        assert self._proposal is not None
        assert self._unknown_since is not None
        if now >= self._unknown_since + self._rules.silence_s:
            return self._end(ElectionReasonKind.STORE_SILENT, ours="the outcome of the write is unknown")
        return self._go(Attempt.RESENT, WriteRecord(self._proposal, self._found))

    def _store_silent(self, problem: str, now: float) -> list[Command]:
        if self._unknown_since is not None or self._state is Attempt.CHECKING:
            return self._retry_unknown(now)
        return self._end(ElectionReasonKind.STORE_SILENT, ours=problem)

    def _become_master(self, found: Versioned, now: float) -> list[Command]:
        promising = {each.replica for each in self._promised()}
        before = self._found.record.members if self._found is not None else ()
        silent = tuple(each.node for each in before if each.replica not in promising | {self._own.replica})
        known = max(each.confirmed for each in (self._own, *self._promised()))
        confirmed = min(known, self._own.log_end)
        elected = Elected(found.record, found.version, confirmed, self._own.log_end, self._loss, silent, now - self._began)
        return self._go(Attempt.ELECTED, BecomeMaster(elected))

    # What it knows

    @property
    def _birth(self) -> str:
        """Birth of the record that is to be written; "": one of its own, so that every replica leaves the birth that it knows."""
        return self._found.record.birth if self._found is not None else ""

    def _epoch_of(self, found: Versioned | None) -> Epoch:
        return found.record.epoch if found is not None else NO_EPOCH

    def _promised(self) -> list[Position]:
        return [each.position for each in self._promises.values() if each.is_promised]

    def _seen(self) -> list[Position]:
        """Its own position and the latest of each other replica. Those of another birth say nothing about this group."""
        others = {node: each.position for node, each in self._answers.items()}
        others |= {node: each.position for node, each in self._promises.items()}
        return [self._own, *filter(self._is_of_birth, others.values())]

    def _is_of_birth(self, position: Position) -> bool:
        """Whether it may obey the record; without one every replica leaves its birth."""
        return self._found is None or position.birth in ("", self._birth)

    def _countable(self, positions: Iterable[Position]) -> list[Position]:
        """Those whose logs count, and this replica: members, or all where there is no record or data loss is allowed."""
        record = self._found.record if self._found is not None else None
        return [self._own, *(each for each in positions if record is None or self._loss or is_member(record, each))]

    def _is_quorum(self, others: Iterable[Position]) -> bool:
        """Whether these, with this replica, decide: an election quorum, or all replicas of the group where there is no record."""
        counted = self._countable(others)
        ids = {each.replica for each in counted}
        if self._loss:
            return self._targets.keys() <= {each.node for each in counted}
        if self._found is None:
            return len(ids) >= self._rules.replicas_expected + 1
        return is_member(self._found.record, self._own) and self._found.record.is_quorum(ids)

    def _is_quorum_without_own(self, record: GroupRecord) -> bool:
        """Whether the others are enough: then one of them is to lead, and this replica, which is no member, is not."""
        return record.is_quorum([each.position.replica for each in self._answers.values() if is_member(record, each.position)])

    def _every_uuid_answers(self, record: GroupRecord) -> bool:
        here = {(each.node, each.replica.uuid) for each in self._seen()}
        return all((member.node, member.replica.uuid) in here for member in record.members) and not self._is_quorum_without_own(record)

    def _later_record(self) -> ElectionReason | None:
        """A replica has read a later record than this one: the store was restored, or the record has moved since."""
        if self._found is None:
            return None
        record = self._found.record
        knows = max(self._seen(), key=lambda each: each.revision if each.birth == record.birth else 0)
        if knows.birth != record.birth or knows.revision <= record.revision:
            return None
        return ElectionReason(ElectionReasonKind.STORE_RESTORED, (knows.node,), ours=str(knows.revision), theirs=str(record.revision))

    # How it moves

    def _go(self, state: Attempt, *commands: Command) -> list[Command]:
        self._state = state
        return list(commands)

    def _end(
        self,
        kind: ElectionReasonKind,
        nodes: tuple[str, ...] = (),
        *,
        ours: str = "",
        theirs: str = "",
        retry: tuple[float, float] = _REST_S,
    ) -> list[Command]:
        return self._end_with(ElectionReason(kind, nodes, ours, theirs), retry)

    def _end_with(self, reason: ElectionReason, retry: tuple[float, float]) -> list[Command]:
        after_s, spread_s = retry
        return self._go(Attempt.ENDED, EndElection(reason, after_s, spread_s))
