"""What an election takes and returns: where replicas stand, events, commands, and why one came to nothing."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from dittomq.doors.coordination import Versioned, WriteOutcome
from dittomq.epoch_history import EpochHistory, last_own_end
from dittomq.group_record import GroupRecord, ReplicaId
from dittomq.ha_status import DataLossKind
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.routes import DataVersion


class SentBy(Enum):
    """Who has a replica stand for election. NOBODY: it found its master silent, or is the record's master and does not lead."""

    NOBODY = "nobody"
    MASTER = "master"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where one replica stands. Its log is written and synced up to `log_end`.

    `birth` "": it knows no group record. `confirmed` is what it knows to be confirmed of its own bytes, `revision` the greatest revision of
    the record that it has read. `tables` are versions, in the order of `KINDS`. `slots`: for which slaves its master keeps its log, as it
    was told last. `master` is the node that it hears as its master, for its own decisions: it is not sent to others.
    """

    node: str
    replica: ReplicaId
    birth: str
    adopted: Epoch
    log_end: PhysicalOffset
    log_start: PhysicalOffset = PhysicalOffset(0)
    promised: Epoch
    confirmed: PhysicalOffset
    revision: int = 0
    damaged_bytes: int = 0
    priority: int = 0
    sees_master: bool = False
    leads: bool = False
    dropped_torn_tail: bool = False
    address: str = ""
    tables: tuple[DataVersion, ...] = ()
    slots: tuple[tuple[str, PhysicalOffset], ...] = ()
    epoch_history: EpochHistory = ()
    master: str = ""

    @property
    def masters_end(self) -> PhysicalOffset:
        """One past the last byte that a master wrote: what RocketMQ appended to one disk makes no log win."""
        return last_own_end(self.epoch_history, self.log_end)

    @property
    def log_rank(self) -> tuple[Epoch, PhysicalOffset]:
        """Of all that promise, the one whose rank is the greatest has the log that wins."""
        return self.adopted, self.masters_end

    @property
    def preference(self) -> tuple[int, int, bool, int, str]:
        """Of several candidates, the one with the least of these is the best: by its log, then undamaged, then priority, then name."""
        return -self.adopted, -self.masters_end, self.damaged_bytes > 0, -self.priority, self.node


@dataclass(frozen=True, slots=True)
class Target:
    """Where a node of the group serves replication, as "host:port"."""

    node: str
    address: str


@dataclass(frozen=True, slots=True)
class ElectionRules:
    """Settings of this node. `automatic`: it stands when its master is silent. `copies`: what a record that it creates asks for.

    `allow_data_loss`: without an election quorum it leads after `isolation_s` all the same.
    """

    node: str
    replicas_expected: int
    copies: int
    automatic: bool
    allow_data_loss: bool
    silence_s: float = 3.0
    isolation_s: float = 3.0


@dataclass(frozen=True, slots=True)
class StandOrder:
    """Who has this replica stand, and whether acknowledged bytes may be lost by that, which only an operator allows."""

    sent_by: SentBy
    allow_data_loss: bool = False


_LOSSES: Final = {
    DataLossKind.OPERATOR_ALLOWED: "an operator allowed it, and {silent} did not answer",
    DataLossKind.SETTING_ALLOWED: "failover.allow_data_loss is set, and {silent} did not answer",
    DataLossKind.REPLICAS_CHANGED: "every member answers, and too few are who they were",
}


@dataclass(frozen=True, slots=True)
class DataLoss:
    """Messages that only replicas without a voice hold may be lost. `silent`: nodes that did not answer."""

    kind: DataLossKind
    silent: tuple[str, ...] = ()

    def __str__(self) -> str:
        why = _LOSSES[self.kind].format(silent=", ".join(self.silent) or "too few members")
        return f"{why}: messages that only others hold may be lost"


@dataclass(frozen=True, slots=True)
class Elected:
    """The record names this replica, by its own write.

    `log_end` is where its log ends, all of it synced. `confirmed` is the greatest confirmed offset that a replica knew which promised.
    `data_loss` says what may be lost, None where nothing is. `silent` are nodes of members that gave no promise. The
    election took `took_s` seconds.
    """

    record: GroupRecord
    version: str
    confirmed: PhysicalOffset
    log_end: PhysicalOffset
    data_loss: DataLoss | None = None
    silent: tuple[str, ...] = ()
    took_s: float = 0.0


class ElectionReasonKind(StrEnum):
    """Why a replica does not stand, or its election came to nothing."""

    LEADS = "leads"
    OTHER_BIRTH = "other_birth"
    STORE_RESTORED = "store_restored"
    NOT_MEMBER = "not_member"
    MANUAL = "manual"
    PAUSED = "paused"
    SEES_MASTER = "sees_master"
    STORE_SILENT = "store_silent"
    REFUSED = "refused"
    TOO_FEW = "too_few"
    TOO_FEW_TO_CREATE = "too_few_to_create"
    OVERTAKEN = "overtaken"
    CONFLICT = "conflict"
    LOG_TAIL_NOT_FETCHED = "log_tail_not_fetched"
    CONFIRMED_MISSING = "confirmed_missing"


_SENTENCES: Final = {
    ElectionReasonKind.LEADS: "it leads already",
    ElectionReasonKind.OTHER_BIRTH: (
        "the group record has birth {0.theirs} and this replica knows {0.ours}: they are of two groups; "
        "if this node is to join the recorded one, empty its data directory"
    ),
    ElectionReasonKind.STORE_RESTORED: (
        "the group record has revision {0.theirs}, and {0.names} has read {0.ours}; "
        "if the coordination store was restored from a backup, delete the record"
    ),
    ElectionReasonKind.NOT_MEMBER: "this replica is not a member of its group; if no member can lead, an operator may allow data loss",
    ElectionReasonKind.MANUAL: "failover.mode is manual: {0.names}, the recorded master, or an operator's choice stands",
    ElectionReasonKind.PAUSED: "failover is paused: {0.names}, the recorded master, or an operator's choice stands",
    ElectionReasonKind.SEES_MASTER: "this replica hears its master {0.names}",
    ElectionReasonKind.STORE_SILENT: "the coordination store did not answer: {0.ours}",
    ElectionReasonKind.REFUSED: "{0.names} refused: a replica that hears its master, or is one, promises nothing",
    ElectionReasonKind.TOO_FEW: "too few members answer: {0.names} did not; start them, or allow data loss",
    ElectionReasonKind.TOO_FEW_TO_CREATE: (
        "there is no group record, and {0.ours} of {0.theirs} replicas answer to create it; start the others, or allow data loss"
    ),
    ElectionReasonKind.OVERTAKEN: "a higher epoch than {0.ours} was promised: {0.theirs}",
    ElectionReasonKind.CONFLICT: "the group record was changed first",
    ElectionReasonKind.LOG_TAIL_NOT_FETCHED: "the tail of {0.names} was not fetched: {0.ours}",
    ElectionReasonKind.CONFIRMED_MISSING: (
        "{0.names} knows {0.theirs} bytes to be confirmed, and the best log has {0.ours}: a disk was copied or restored; "
        "an operator may allow data loss"
    ),
}


@dataclass(frozen=True, slots=True)
class ElectionReason:
    """`nodes` are those that the reason is about. `ours` and `theirs` are the two values that differ: epochs, revisions, births or ends."""

    kind: ElectionReasonKind
    nodes: tuple[str, ...] = ()
    ours: str = ""
    theirs: str = ""

    @property
    def names(self) -> str:
        """The nodes, to be read."""
        return ", ".join(self.nodes)

    def __str__(self) -> str:
        return _SENTENCES[self.kind].format(self)


# Events


@dataclass(frozen=True, slots=True)
class RecordRead:
    """The store answered. None: there is no record."""

    found: Versioned | None


@dataclass(frozen=True, slots=True)
class StoreSilent:
    """The store was not read, or nothing was sent to it."""

    problem: str


@dataclass(frozen=True, slots=True)
class Answered:
    """A replica said where it stands, and whether it would promise."""

    position: Position
    would_promise: bool


@dataclass(frozen=True, slots=True)
class Unanswered:
    """That node did not say where it stands."""

    node: str


@dataclass(frozen=True, slots=True)
class PromiseAnswered:
    """A replica promised, durably, or refused; where it stands behind whatever it took before."""

    position: Position
    is_promised: bool


@dataclass(frozen=True, slots=True)
class PromiseUnanswered:
    """That node did not answer; it may have promised."""

    node: str


@dataclass(frozen=True, slots=True)
class SelfPromised:
    """The candidate's own promise is durable, and so is all that its older stream brought."""

    position: Position


@dataclass(frozen=True, slots=True)
class TailTaken:
    """This log is what the winner's is, verified and synced, and the winner's adopted epoch is this replica's."""

    position: Position


@dataclass(frozen=True, slots=True)
class TailFailed:
    """The tail was not fetched whole; the adopted epoch is what it was."""

    problem: str


@dataclass(frozen=True, slots=True)
class WriteEnded:
    """How the write of the record went."""

    outcome: WriteOutcome


@dataclass(frozen=True, slots=True)
class ElectionTick:
    """Time passed; at least every 50 ms."""


Event = (
    RecordRead
    | StoreSilent
    | Answered
    | Unanswered
    | PromiseAnswered
    | PromiseUnanswered
    | SelfPromised
    | TailTaken
    | TailFailed
    | WriteEnded
    | ElectionTick
)

# Commands


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """Read the group record."""


@dataclass(frozen=True, slots=True)
class AskMembers:
    """Ask each of these where it stands."""

    targets: tuple[Target, ...]
    sent_by: SentBy


@dataclass(frozen=True, slots=True)
class PromiseSelf:
    """End the older stream, write and sync what it brought, and promise, durably. `birth` "": leave the birth that is known."""

    epoch: Epoch
    birth: str


@dataclass(frozen=True, slots=True)
class AskPromises:
    """Ask each of these to promise."""

    epoch: Epoch
    birth: str
    targets: tuple[Target, ...]
    sent_by: SentBy


@dataclass(frozen=True, slots=True)
class TakeTail:
    """Make this log what the source's is, verified and synced; then take over its adopted epoch, and newer tables."""

    source: Position


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Put the record in the place of `expected`; None: where there is none."""

    record: GroupRecord
    expected: Versioned | None


@dataclass(frozen=True, slots=True)
class BecomeMaster:
    """Lead, if no higher epoch was promised since."""

    elected: Elected


@dataclass(frozen=True, slots=True)
class EndElection:
    """Nothing came of it. Stand again after `retry_after_s` and a random part of `retry_spread_s`, if that is still due."""

    reason: ElectionReason
    retry_after_s: float
    retry_spread_s: float


Command = ReadRecord | AskMembers | PromiseSelf | AskPromises | TakeTail | WriteRecord | BecomeMaster | EndElection
