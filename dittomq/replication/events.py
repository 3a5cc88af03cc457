"""The vocabulary of a replication session: what is heard (past tense) and what is to be done (imperative).

Master and slave agree on these values; `dittomq.wire.replication` turns them into frames and back.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dittomq.epoch_history import EpochEntry, EpochHistory, newest_epoch
from dittomq.group_record import ReplicaId
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.routes import DataVersion

PROTOCOL_VERSION = 1
MAX_MISSING_RANGES: Final = 64

MissingRanges = tuple[tuple[PhysicalOffset, PhysicalOffset], ...]
"""Ranges [start, end) in order; MAX_MISSING_RANGES at most."""
_LEAF_SIZES: Final = (1024 * 1024, 4_096, 16, 1)


class SyncAction(StrEnum):
    """What a master tells a slave to do."""

    STREAM = "stream"
    TRUNCATE = "truncate"
    RESYNC = "resync"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class RangeDigest:
    """Chain digest of [start, end), which lies in one segment; its leaves are counted from `start`."""

    start: PhysicalOffset
    end: PhysicalOffset
    digest: bytes


@dataclass(frozen=True, slots=True)
class Handshake:
    """Who a slave is and what it holds. `confirmed` is what it knows to be confirmed of its own bytes.

    `birth` is that of the group record that it knows, "" for none. `adopted` is the epoch of the last master whose log it matches and
    holds up to where that epoch begins, `promised` the highest that it has promised; 0 for none. `verified_with` is the replica uuid of
    the master that `verified_offset` speaks of. `missing_ranges`: ranges of its log that it knows not to hold whole; None where it does not
    tell.
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
    epoch_history: EpochHistory
    digests: tuple[RangeDigest, ...]
    verified_offset: PhysicalOffset
    replication_address: str
    segment_bytes: int
    incarnation: str = ""
    birth: str = ""
    adopted: Epoch = NO_EPOCH
    promised: Epoch = NO_EPOCH
    verified_with: str = ""
    missing_ranges: MissingRanges | None = ()

    @property
    def replica(self) -> ReplicaId:
        """Which replica the slave is."""
        return ReplicaId(self.replica_uuid, self.incarnation)

    @property
    def newest_epoch(self) -> Epoch:
        """The newest epoch that it has promised, or has bytes of."""
        return max(self.promised, newest_epoch(self.epoch_history))

    @property
    def node(self) -> str:
        """ "broker/id", by configured id."""
        return f"{self.broker}/{self.broker_id}"


@dataclass(frozen=True, slots=True)
class HandshakeResult:
    """The master's answer to a handshake; `replica_uuid` is that of its store.

    `end`, of its log, goes with RESYNC only: how much there is to copy. `birth` is that of the group record under which it leads, "" where
    there is none. `counts`: whether the slave is a member of the in-sync set, or may become one.
    """

    action: SyncAction
    start: PhysicalOffset
    reason: str
    epoch: Epoch
    epoch_history: EpochHistory
    heartbeat_ms: int
    end: PhysicalOffset | None = None
    replica_uuid: str = ""
    birth: str = ""
    counts: bool = True


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
class MissingRange:
    """The master does not hold [start, end) whole, which lies in one segment and one epoch: the slave goes on behind it."""

    epoch: Epoch
    start: PhysicalOffset
    end: PhysicalOffset
    confirmed: PhysicalOffset
    log_end: PhysicalOffset


ReplicationSlots = tuple[tuple[str, PhysicalOffset], ...]
"""Slaves by node name, and from where on the master keeps its log for each; MAX_REPLICATION_SLOTS at most."""

MAX_REPLICATION_SLOTS = 64


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Sent from time to time, whatever else is. `topics` is the version of the master's topics, None when it is not told.

    `slots`: for whom it keeps its log; None: it does not say, as a session does not know it and its driver adds it. So it does `silent_s`:
    for so long the master has heard from nobody who keeps others from leading, seconds; None: it cannot tell.
    """

    epoch: Epoch
    end: PhysicalOffset
    confirmed: PhysicalOffset
    digest: RangeDigest | None
    topics: DataVersion | None
    slots: ReplicationSlots | None = None
    silent_s: float | None = None


@dataclass(frozen=True, slots=True)
class SlaveAck:
    """What a slave holds: record ends. `digest` answers a heartbeat that carried one: empty, when this copy does not hold it whole.

    `begin` is its first byte, None when that is not told. From `reverify_from` on it found damage: what lies behind is to be compared
    again. `adopted` is the epoch that it has adopted, durably: the ack counts for what is confirmed if that is the session's.
    `missing_now`: all that it knows not to hold whole below `received`; None: it says what it said last. Its driver adds it.
    """

    epoch: Epoch
    received: PhysicalOffset
    flushed: PhysicalOffset
    applied: PhysicalOffset
    digest: RangeDigest | None = None
    begin: PhysicalOffset | None = None
    reverify_from: PhysicalOffset | None = None
    adopted: Epoch = NO_EPOCH
    missing_now: MissingRanges | None = None


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The slave stops in order: its master need not wait for it, and hears nothing more."""


@dataclass(frozen=True, slots=True)
class LeafProbe:
    """Asks for the leaves of a range whose digests differ. A probe of one leaf asks for finer ones, of single bytes in the end."""

    start: PhysicalOffset
    end: PhysicalOffset

    @property
    def leaf_bytes(self) -> int:
        """Size of its leaves: 1 MiB, and in smaller ranges the largest of 4 KiB, 16 and 1 that is smaller than the range."""
        return next((size for size in _LEAF_SIZES if size < self.end - self.start), 1)

    @property
    def leaves(self) -> int:
        """How many leaves it asks for."""
        return -(-(self.end - self.start) // self.leaf_bytes)


@dataclass(frozen=True, slots=True)
class LeafDigests:
    """Digests of the leaves of a range, which are as large as a probe of it says."""

    start: PhysicalOffset
    end: PhysicalOffset
    digests: tuple[bytes, ...]

    @property
    def leaf_bytes(self) -> int:
        """Size of the leaves."""
        return LeafProbe(self.start, self.end).leaf_bytes


@dataclass(frozen=True, slots=True)
class RangePiece:
    """Whole records that were fetched, with their CRC-32, of the epoch entry with this `epoch` and `incarnation`; 0 before the
    first.

    `damaged_end`: [offset, damaged_end) is not whole there, which lies in one segment, and there is no data; None: there is.
    """

    offset: PhysicalOffset
    crc: int
    data: bytes
    epoch: Epoch
    incarnation: int
    damaged_end: PhysicalOffset | None = None

    def is_of(self, entry: EpochEntry | None) -> bool:
        """Whether its first byte was written under that master; None: before the first of ours."""
        return (self.epoch, self.incarnation) == ((0, 0) if entry is None else (entry.epoch, entry.incarnation))
