"""What a copy says of itself to an auditor or another copy, and how ranges of it are digested. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dittomq.epoch_history import EpochHistory, newest_epoch
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.routes import DataVersion

LEAF_BYTES = 1024 * 1024
"""Ranges are digested in leaves of this size, counted from the start of the range; the last one may be shorter."""

DIGEST_BYTES = 16
MAX_READ_RANGE_BYTES = 64 * 1024 * 1024
MIN_LEASE_S = 10
MAX_LEASE_S = 86_400


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """What a node holds now. `generation` grows whenever bytes of this copy were cut or replaced."""

    node: str
    cluster: str
    replica_uuid: str
    role: str
    epoch_history: EpochHistory
    generation: int
    min_offset: PhysicalOffset
    end: PhysicalOffset
    flushed: PhysicalOffset
    confirmed: PhysicalOffset
    segment_bytes: int
    topic_version: DataVersion
    version: str

    @property
    def epoch(self) -> Epoch:
        """Newest epoch of the copy."""
        return newest_epoch(self.epoch_history)


@dataclass(frozen=True, slots=True)
class LogStart:
    """Where a log and its queues begin, which the bytes of a log that begins late do not tell.

    By (topic, queue): `first_offsets` are the offsets of the first messages that do not lie below `offset`, or that come next;
    `deleted_below` are the minimums of deleted topics, whose records may lie behind `offset`. What is in neither begins at 0.
    `reserved_below`: queues give no offset below these, which messages before `offset` may have that were damaged there.
    """

    offset: PhysicalOffset
    first_offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    deleted_below: Mapping[tuple[str, int], int] = field(default_factory=dict)
    reserved_below: Mapping[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RangeDigests:
    """Digests of [start, end), which lies in one segment; `leaves` is empty unless asked for.

    `unreadable` says why the bytes could not be read, empty when they were; unreadable is never "different".
    """

    start: PhysicalOffset
    end: PhysicalOffset
    root: bytes
    leaves: tuple[bytes, ...] = ()
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class Pin:
    """A node's promise to an audit: retention drops nothing from `start` on while the lease lasts."""

    pin_id: str
    start: PhysicalOffset


@dataclass(frozen=True, slots=True)
class MessageSpan:
    """Neighbouring messages of one queue: queue offsets [first, end)."""

    topic: str
    queue: int
    first: QueueOffset
    end: QueueOffset


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """What became of a damaged range of a log. `source` is whose bytes repaired it, the node itself when its disk held it whole after all.

    Empty: it is not repaired, and `problem` says why not, of each other copy. `messages` are those that the node's queues name in a range
    that is not repaired; `more_messages`: others may lie in it too.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    source: str
    problem: str = ""
    messages: tuple[MessageSpan, ...] = ()
    more_messages: bool = False


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """What a node is to verify of its log, and to repair; None: from where its log begins, up to what is flushed.

    `validate_only`: it is only asked what that would be, and what of it is known to be damaged.
    """

    node: str
    start: PhysicalOffset | None = None
    end: PhysicalOffset | None = None
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Records of [start, end) were verified; `ranges` of them were damaged. Unless it `is_done`, the rest is asked for from `end` on."""

    start: PhysicalOffset
    end: PhysicalOffset
    ranges: tuple[RangeOutcome, ...]
    is_done: bool
