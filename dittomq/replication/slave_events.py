"""⑤ What a slave's session hears, and what it has its driver do.

What the master itself says (Verdict, Chunk, Hole, Heartbeat, LeafProbe, DegradedRanges) is in `dittomq.replication.events`.
"""

from dataclasses import dataclass

from dittomq.lineage import Lineage
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.degraded import Degraded
from dittomq.replication.events import Chunk, DegradedRanges, Heartbeat, Hole, LeafProbe, RangeDigest, SlaveAck, SlaveHolds, Verdict
from dittomq.routes import DataVersion


@dataclass(frozen=True, slots=True)
class SlaveLog:
    """What a slave's hello says of its log: lineage, first byte held, what is stored, and the newest epoch that was heard of."""

    lineage: Lineage
    begin: PhysicalOffset
    stored: "Stored"
    heard: Epoch


# Events: what the driver reports.
@dataclass(frozen=True, slots=True)
class Stored:
    """Record ends that are written, synced, and in the consume queues, and the first byte that is held.

    `incarnation` is that of the newest entry of the lineage, as it is on disk; None without one.
    """

    received: PhysicalOffset
    flushed: PhysicalOffset
    applied: PhysicalOffset
    begin: PhysicalOffset
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class CutDone:
    """The log was cut as told, durably; `stored` is what it holds now, and the next hello is known."""

    stored: Stored


@dataclass(frozen=True, slots=True)
class DigestReady:
    """Our digest of the range that a heartbeat named; None while this copy does not hold it whole."""

    theirs: RangeDigest
    ours: RangeDigest | None


@dataclass(frozen=True, slots=True)
class Doubted:
    """Damage was found here, `start` is where it begins: what lies behind counts as equal no more until it is compared again."""

    start: PhysicalOffset


@dataclass(frozen=True, slots=True)
class DamageFound:
    """What AnswerProbe asked for is damaged here, first in [start, end); that is noted."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class EpochHeard:
    """Nameservers, or the node that is about to open it, told of this epoch; maybe they know who opened it."""

    epoch: Epoch
    opener_id: int | None


Event = (
    Verdict
    | Chunk
    | Hole
    | Heartbeat
    | LeafProbe
    | DegradedRanges
    | CutDone
    | Stored
    | DigestReady
    | Doubted
    | DamageFound
    | Tick
    | EpochHeard
)


# Commands: what the driver does.
@dataclass(frozen=True, slots=True)
class SayHello:
    """Describe the log as it is now and send it."""


@dataclass(frozen=True, slots=True)
class HearEpoch:
    """Write down, durably before any later command is obeyed, that there is this epoch: no older master is obeyed any more."""

    epoch: Epoch
    opener_id: int | None


@dataclass(frozen=True, slots=True)
class ObeyMaster:
    """Write down, durably before any later command is obeyed, that this node is bound to the master of this epoch now.

    That one has learned of all that the hello named of other nodes. Where more has been noted since, the stream is to end instead.
    """

    epoch: Epoch
    opener_id: int | None


@dataclass(frozen=True, slots=True)
class CutLog:
    """Cut the log to `to`, saving what is cut, and report CutDone.

    `gives_up`: this copy may have acknowledged what goes, for it is of epochs that the master has there as well.
    """

    to: PhysicalOffset
    reason: str
    gives_up: bool = False


@dataclass(frozen=True, slots=True)
class BeginLog:
    """Let the log, which holds nothing, begin at `at`, durably, before any later command is obeyed."""

    at: PhysicalOffset


@dataclass(frozen=True, slots=True)
class AdoptLineage:
    """Make this the log's lineage, durably: when all that was to be written before is durable, and before anything later is written."""

    lineage: Lineage


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write these bytes at the end of the log, sync, and report Stored."""

    offset: PhysicalOffset
    data: bytes


@dataclass(frozen=True, slots=True)
class LeaveHole:
    """Note [start, end), which begins where the log ends, as missing, durably, go on behind it, and report Stored."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LearnConfirmed:
    """The group's confirmed end, and the master's end, as the master tells them."""

    confirmed: PhysicalOffset
    master_end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LearnHolds:
    """The master keeps its log for these slaves: so does this copy."""

    holds: SlaveHolds


@dataclass(frozen=True, slots=True)
class LearnTopics:
    """The version of the master's topics."""

    version: DataVersion


@dataclass(frozen=True, slots=True)
class LearnDegraded:
    """Write down, durably before any later command is obeyed, which ranges the master calls degraded; its term began at `term_start`."""

    ranges: Degraded
    term_start: PhysicalOffset


@dataclass(frozen=True, slots=True)
class SendAck:
    """Send it."""

    ack: SlaveAck


@dataclass(frozen=True, slots=True)
class DigestRange:
    """Digest the same range of our log while all else goes on, and report DigestReady; only the newest that was asked for counts."""

    theirs: RangeDigest


@dataclass(frozen=True, slots=True)
class AnswerProbe:
    """Verify our records there; digest the leaves and send them, or report DamageFound."""

    probe: LeafProbe


@dataclass(frozen=True, slots=True)
class NoteCompared:
    """Our log and that of the master with this replica uuid digest alike in [start, end), or do not."""

    start: PhysicalOffset
    end: PhysicalOffset
    equal: bool
    master: str


@dataclass(frozen=True, slots=True)
class CopyAnew:
    """Copy the master's log, [start, end) and what comes behind, into a second store; this one goes on serving until that is complete.

    This session is over. The stream is not: its next hello is the copy's. Up to `agreed` this log is what the master's was, and confirmed:
    nothing else is ever dropped.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    agreed: PhysicalOffset
    reason: str


@dataclass(frozen=True, slots=True)
class Reconnect:
    """End the stream and dial again after a pause."""

    reason: str


Command = (
    SayHello
    | HearEpoch
    | ObeyMaster
    | CutLog
    | BeginLog
    | AdoptLineage
    | WriteChunk
    | LeaveHole
    | LearnConfirmed
    | LearnTopics
    | LearnHolds
    | LearnDegraded
    | SendAck
    | DigestRange
    | AnswerProbe
    | NoteCompared
    | CopyAnew
    | Reconnect
)
