"""Elections as tests see them: a group of a/0, its master in epoch 1, and a/1 and a/2; two copies confirm."""

from dataclasses import replace
from typing import Any, TypeVar

from dittomq.doors.coordination import Versioned
from dittomq.group_record import GroupRecord
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.election import Election
from dittomq.replication.election_events import (
    Answered,
    Command,
    ElectionRules,
    EndElection,
    Event,
    Position,
    PromiseAnswered,
    PromiseSelf,
    RecordRead,
    SelfPromised,
    SentBy,
    StandOrder,
    Target,
    Unanswered,
)
from tests.support.confirming_group import record_of, replica_of

THREE = record_of("a/1", "a/2")
ONE_COPY = record_of("a/1", "a/2", copies=1)
BY_ITSELF = StandOrder(SentBy.NOBODY)
SENT = StandOrder(SentBy.OPERATOR)
C = TypeVar("C")


def rules_of(node: str, **changes: Any) -> ElectionRules:
    return replace(ElectionRules(node, replicas_expected=2, copies=2, automatic=True, allow_data_loss=False), **changes)


def position(node: str, *, adopted: int = 1, end: int = 100, promised: int = 1, incarnation: int = 1, **rest: Any) -> Position:
    rest = {"birth": "birth", "confirmed": PhysicalOffset(0), "address": f"{node.replace('/', '-')}:10912", **rest}
    return Position(
        node=node,
        replica=replica_of(node, incarnation),
        adopted=Epoch(adopted),
        log_end=PhysicalOffset(end),
        promised=Epoch(promised),
        **rest,
    )


def versioned(record: GroupRecord | None) -> Versioned | None:
    return None if record is None else Versioned(record, f"v{record.revision}")


class Candidacy:
    """One election of a node, and what it returned last. Time moves by `at` only."""

    def __init__(
        self,
        node: str = "a/1",
        *,
        own: Position | None = None,
        order: StandOrder = BY_ITSELF,
        record: GroupRecord | None = THREE,
        nodes: tuple[str, ...] = (),
        **rules: Any,
    ) -> None:
        self.own = position(node) if own is None else own
        self.now = 0.0
        targets = tuple(Target(each, f"{each.replace('/', '-')}:10912") for each in nodes)
        self.election = Election(rules_of(node, **rules), self.own, order, targets, birth="new birth", write="w", now=0.0)
        self.said: list[Command] = self.election.begin()
        self.take(RecordRead(versioned(record)))

    def take(self, *events: Event, at: float | None = None) -> list[Command]:
        """Hand over events; returns what the last one led to."""
        self.now = self.now if at is None else at
        for event in events:
            self.said = self.election.handle(event, self.now)
        return self.said

    def asked(self, *willing: Position, silent: tuple[str, ...] = (), at: float | None = None) -> list[Command]:
        """These would promise, those do not answer."""
        return self.take(*(Answered(each, True) for each in willing), *(Unanswered(node) for node in silent), at=at)

    def promised_itself(self, **changes: Any) -> list[Command]:
        """Its own promise is durable."""
        epoch = self.must(PromiseSelf).epoch
        self.own = replace(self.own, promised=epoch, **changes)
        return self.take(SelfPromised(self.own))

    def promised(self, *granting: Position) -> list[Command]:
        """Its own promise is durable, and these grant theirs."""
        self.promised_itself()
        return self.take(*(PromiseAnswered(replace(each, promised=self.own.promised), True) for each in granting))

    def must(self, kind: type[C]) -> C:
        """The one command of that kind that it returned last."""
        [found] = [each for each in self.said if isinstance(each, kind)]
        return found

    @property
    def reason(self) -> str:
        """Why it ended; the kind alone."""
        return self.must(EndElection).reason.kind.value
