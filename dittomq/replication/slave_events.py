"""⑤ What a slave's session hears, and what it has its driver do.

What the master itself says (HandshakeResult, Chunk, MissingRange, Heartbeat, LeafProbe) is in `dittomq.replication.events`.
"""

from dataclasses import dataclass

from dittomq.epoch_history import EpochHistory
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication.events import (
    Chunk,
    HandshakeResult,
    Heartbeat,
    LeafProbe,
    MissingRange,
    RangeDigest,
    ReplicationSlots,
    SlaveAck,
    Tick,
)
from dittomq.routes import DataVersion


@dataclass(frozen=True, slots=True)
class SlaveLog:
    """What a slave's handshake says of its log: epoch history, first byte held, and what is stored.

    `promised` is the highest epoch that the replica has promised, or is about to; `birth` that of the group record it knows, "" for none.
    """

    epoch_history: EpochHistory
    begin: PhysicalOffset
    stored: "LogWritten"
    promised: Epoch
    birth: str


# Events: what the driver reports.
@dataclass(frozen=True, slots=True)
class LogWritten:
    """Record ends that are written, synced, and in the consume queues, and the first byte that is held.

    `incarnation` is that of the newest entry of the epoch history, as it is on disk; None without one. `adopted` is the epoch adopted,
    durably.
    """

    received: PhysicalOffset
    flushed: PhysicalOffset
    applied: PhysicalOffset
    begin: PhysicalOffset
    incarnation: int | None = None
    adopted: Epoch = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Truncated:
    """The log was cut as told, durably; `stored` is what it holds now, and the next handshake is known."""

    stored: LogWritten


@dataclass(frozen=True, slots=True)
class DigestReady:
    """Our digest of the range that a heartbeat named; None while this copy does not hold it whole."""

    theirs: RangeDigest
    ours: RangeDigest | None


@dataclass(frozen=True, slots=True)
class VerifiedEndLowered:
    """Damage was found here, `start` is where it begins: what lies behind counts as equal no more until it is compared again."""

    start: PhysicalOffset


@dataclass(frozen=True, slots=True)
class DamageFound:
    """What AnswerProbe asked for is damaged here, first in [start, end); that is noted."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Promised:
    """This replica gives a promise beside the stream: no ack of a lower epoch leaves after this."""

    epoch: Epoch


Event = (
    HandshakeResult
    | Chunk
    | MissingRange
    | Heartbeat
    | LeafProbe
    | Truncated
    | LogWritten
    | DigestReady
    | VerifiedEndLowered
    | DamageFound
    | Tick
    | Promised
)


# Commands: what the driver does.
@dataclass(frozen=True, slots=True)
class SendHandshake:
    """Describe the log as it is now and send it."""


@dataclass(frozen=True, slots=True)
class BindToMaster:
    """Promise this epoch and keep this birth, both durably before any later command is obeyed; "" for the birth: there is none to keep."""

    epoch: Epoch
    birth: str


@dataclass(frozen=True, slots=True)
class TruncateLog:
    """Cut the log to `to`, saving what is cut, and report Truncated."""

    to: PhysicalOffset
    reason: str


@dataclass(frozen=True, slots=True)
class SetLogStart:
    """Let the log, which holds nothing, begin at `at`, durably, before any later command is obeyed."""

    at: PhysicalOffset


@dataclass(frozen=True, slots=True)
class ReplaceEpochHistory:
    """Make this the log's epoch history, durably: when all that was to be written before is durable, and before anything later is
    written.
    """

    epoch_history: EpochHistory


@dataclass(frozen=True, slots=True)
class AdoptEpoch:
    """Adopt this epoch, durably, and report LogWritten: the log matches its master's, and is flushed, up to where the epoch begins."""

    epoch: Epoch


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """Write these bytes at the end of the log, sync, and report LogWritten."""

    offset: PhysicalOffset
    data: bytes


@dataclass(frozen=True, slots=True)
class SkipRange:
    """Note [start, end), which begins where the log ends, as missing, durably, go on behind it, and report LogWritten."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class UpdateConfirmed:
    """The group's confirmed end, and the master's end, as the master tells them."""

    confirmed: PhysicalOffset
    master_end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class UpdateFreshness:
    """So much was confirmed `silent_s` seconds ago, when the master last heard that nobody else leads."""

    confirmed: PhysicalOffset
    silent_s: float


@dataclass(frozen=True, slots=True)
class UpdateReplicationSlots:
    """The master keeps its log for these slaves: so does this copy."""

    slots: ReplicationSlots


@dataclass(frozen=True, slots=True)
class UpdateTopics:
    """The version of the master's topics."""

    version: DataVersion


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
class RecordCompared:
    """Our log and that of the master with this replica uuid digest alike in [start, end), or do not."""

    start: PhysicalOffset
    end: PhysicalOffset
    equal: bool
    master: str


@dataclass(frozen=True, slots=True)
class StartFullResync:
    """Copy the master's log, [start, end) and what comes behind, into a second store; this one goes on serving until that is complete.

    This session is over. The stream is not: its next handshake is the copy's. Up to `agreed` this log is what the master's was, and
    confirmed: nothing else is ever dropped.
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
    SendHandshake
    | BindToMaster
    | TruncateLog
    | SetLogStart
    | ReplaceEpochHistory
    | AdoptEpoch
    | WriteChunk
    | SkipRange
    | UpdateConfirmed
    | UpdateFreshness
    | UpdateTopics
    | UpdateReplicationSlots
    | SendAck
    | DigestRange
    | AnswerProbe
    | RecordCompared
    | StartFullResync
    | Reconnect
)
