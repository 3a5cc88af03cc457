"""④ What a master's session hears of one slave, and what it has its driver do.

What the slave itself says (Handshake, SlaveAck, LeafDigests) is in `dittomq.replication.events`.
"""

from dataclasses import dataclass

from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import (
    Handshake,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    MissingRange,
    MissingRanges,
    RangeDigest,
    SlaveAck,
    Tick,
)
from dittomq.routes import DataVersion


# Events: what the driver reports.
@dataclass(frozen=True, slots=True)
class LogMoved:
    """The log grew, confirmed moved, or the topics have another version."""

    end: PhysicalOffset
    confirmed: PhysicalOffset
    topics: DataVersion | None


@dataclass(frozen=True, slots=True)
class ChunkSent:
    """A chunk asked for by SendChunk left, up to `end`; the driver may have sent less than asked."""

    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class BytesDamaged:
    """The bytes that SendChunk asked for cannot be had from `start` on, up to `end`, where a record begins that can; that is noted."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class DigestsCompared:
    """The slave's digests against our own: up to where all is verified without a gap, and the first range that differs."""

    equal_end: PhysicalOffset
    differs: RangeDigest | None


@dataclass(frozen=True, slots=True)
class LeafDiffers:
    """The first leaf that differs, [start, end), when it is larger than a byte and our records there are whole."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LeavesCompared:
    """Where the record begins that holds the first byte that differs, None when none does; `ours_whole`: our records there are."""

    truncate_to: PhysicalOffset | None
    ours_whole: bool


@dataclass(frozen=True, slots=True)
class HeartbeatReady:
    """Our digest that PrepareHeartbeat asked for, None when there is none, and where our log begins now."""

    digest: RangeDigest | None
    begin: PhysicalOffset


Event = (
    Handshake
    | SlaveAck
    | LeafDigests
    | LogMoved
    | ChunkSent
    | BytesDamaged
    | DigestsCompared
    | LeafDiffers
    | LeavesCompared
    | HeartbeatReady
    | Tick
)


# Commands: what the driver does.
@dataclass(frozen=True, slots=True)
class SendHandshakeResult:
    """Send it."""

    handshake_result: HandshakeResult


@dataclass(frozen=True, slots=True)
class CompareDigests:
    """Digest the same ranges of our log and report DigestsCompared; `verified` is the end of what both hold and was verified before."""

    digests: tuple[RangeDigest, ...]
    verified: PhysicalOffset


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Send it."""

    probe: LeafProbe


@dataclass(frozen=True, slots=True)
class CompareLeaves:
    """Digest the same leaves of our log and report LeavesCompared."""

    leaves: LeafDigests


@dataclass(frozen=True, slots=True)
class SendChunk:
    """Send whole records from `start` on, up to `limit` at most, now or when the rate allows, then report ChunkSent.

    start == limit: only confirmed moved; that is sent at once, and not reported.
    """

    epoch: Epoch
    start: PhysicalOffset
    limit: PhysicalOffset
    confirmed: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class SendMissingRange:
    """Send it, then report ChunkSent up to its end."""

    missing_range: MissingRange


@dataclass(frozen=True, slots=True)
class PrepareHeartbeat:
    """Digest what this log has of [start, end) while all else goes on, and report HeartbeatReady; nothing when that is not whole."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send it."""

    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True)
class RecordAck:
    """Tell ConfirmedOffset what this slave holds; `applied` None: not said yet. `adopted`: it has adopted this master's epoch."""

    received: PhysicalOffset
    flushed: PhysicalOffset
    applied: PhysicalOffset | None
    adopted: bool
    missing_now: MissingRanges | None = None


@dataclass(frozen=True, slots=True)
class RecordVerified:
    """Both copies digest alike up to `end`."""

    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class PromisedAbove:
    """The slave has promised an epoch above this master's: it acknowledges nothing more in this one, and another node may lead."""

    epoch: Epoch
    node: str


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """The slave must copy this log anew, and is a member of the group record: remove it first. Its next handshake settles the rest."""

    node: str


@dataclass(frozen=True, slots=True)
class EndSlaveStream:
    """End the stream; what is wrong the next one settles."""

    reason: str


@dataclass(frozen=True, slots=True)
class RejectSlave:
    """End the stream; the next one would end alike, until somebody changes what is configured or started."""

    why: str


Command = (
    SendHandshakeResult
    | CompareDigests
    | SendProbe
    | CompareLeaves
    | SendChunk
    | SendMissingRange
    | PrepareHeartbeat
    | SendHeartbeat
    | RecordAck
    | RecordVerified
    | PromisedAbove
    | RemoveMember
    | EndSlaveStream
    | RejectSlave
)
