"""The vocabulary of a replication session: what is heard (past tense) and what is to be done (imperative).

Master and slave agree on these values; `dittomq.wire.replication` turns them into frames and back.
"""

from dataclasses import dataclass
from enum import StrEnum

from dittomq.lineage import Lineage, newest_epoch
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.degraded import Degraded
from dittomq.routes import DataVersion

PROTOCOL_VERSION = 1
NO_EPOCH = Epoch(0)


class VerdictAction(StrEnum):
    """What a master tells a slave to do."""

    STREAM = "stream"
    TRUNCATE = "truncate"
    RESYNC = "resync"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Chain digest of [start, end), which lies in one segment and starts where that segment (or the log) does."""

    start: PhysicalOffset
    end: PhysicalOffset
    digest: bytes


@dataclass(frozen=True, slots=True)
class Hello:
    """Who a slave is and what it holds. `confirmed` is what it knows to be confirmed of its own bytes.

    `heard` is the newest epoch in which a master took it, 0 for none: its lineage may not have come so far. `verified_with` is the replica
    uuid of the master that `verified_equal` speaks of.
    """

    cluster: str
    broker: str
    broker_id: int
    replica_uuid: str
    protocol_version: int
    min_offset: PhysicalOffset
    end: PhysicalOffset
    flushed: PhysicalOffset
    confirmed: PhysicalOffset
    lineage: Lineage
    digests: tuple[RangeDigest, ...]
    verified_equal: PhysicalOffset
    replication_address: str
    segment_bytes: int
    heard: Epoch = NO_EPOCH
    verified_with: str = ""

    @property
    def newest_epoch(self) -> Epoch:
        """The newest epoch that this slave knows of."""
        return max(self.heard, newest_epoch(self.lineage))

    @property
    def node(self) -> str:
        """ "broker/id", by configured id."""
        return f"{self.broker}/{self.broker_id}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The master's answer to a hello; `replica_uuid` is that of its store.

    `end`, of its log, goes with RESYNC only: how much there is to copy.
    """

    action: VerdictAction
    start: PhysicalOffset
    reason: str
    epoch: Epoch
    lineage: Lineage
    heartbeat_ms: int
    end: PhysicalOffset | None = None
    replica_uuid: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes of the log, as they travel."""

    epoch: Epoch
    offset: PhysicalOffset
    crc: int
    data: bytes
    confirmed: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Hole:
    """The master does not hold [start, end) whole, which lies in one segment and one epoch: the slave goes on behind it."""

    epoch: Epoch
    start: PhysicalOffset
    end: PhysicalOffset
    confirmed: PhysicalOffset
    log_end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent from time to time, whatever else is. `topics` is the version of the master's topics, None when it is not told."""

    epoch: Epoch
    end: PhysicalOffset
    confirmed: PhysicalOffset
    digest: RangeDigest | None
    topics: DataVersion | None


@dataclass(frozen=True, slots=True)
class DegradedRanges:
    """All that the master knows of ranges that fewer copies confirmed than asked; said before anything new in them is called confirmed."""

    epoch: Epoch
    ranges: Degraded


@dataclass(frozen=True, slots=True)
class SlaveAck:
    """What a slave holds: record ends. `digest` answers a heartbeat that carried one."""

    epoch: Epoch
    received: PhysicalOffset
    flushed: PhysicalOffset
    applied: PhysicalOffset
    digest: RangeDigest | None = None


@dataclass(frozen=True, slots=True)
class LeafProbe:
    """Asks for the leaves of a range whose digests differ."""

    start: PhysicalOffset
    end: PhysicalOffset


@dataclass(frozen=True, slots=True)
class LeafDigests:
    """Digests of the 1 MiB leaves of a range."""

    start: PhysicalOffset
    end: PhysicalOffset
    digests: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class RangePiece:
    """Whole records that were fetched, with their CRC-32, of the lineage entry with this `epoch` and `incarnation`; 0 before the first."""

    offset: PhysicalOffset
    crc: int
    data: bytes
    epoch: Epoch
    incarnation: int
