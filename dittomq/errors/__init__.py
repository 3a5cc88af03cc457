"""Everything that can be refused or fail, as one tree. An error carries data and reads as one sentence that says what to change.

DittoError
  Refused         nothing of it happened; crosses the wire (`dittomq.rpc.status` maps each to a gRPC code and back)
  StoreFailed     a write or sync failed: the node stops, what was in flight is unknown; crosses the wire too
  StartError      this process cannot start: configuration, store, port
  OutOfReach      nobody answers at an address, or not in time
    ConnectionRefused  its machine says at once that nothing listens there
    EpochOver     a newer epoch was opened: what was in flight is unknown; crosses the wire
  NotStored, LevelNotReached, OutcomeUnknown
                  what publishing raises; a caller has one question: may I send it again?
"""

from dittomq.errors.publishing import LevelNotReached, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.errors.refused import (
    CorruptRecord,
    DiskFull,
    InvalidField,
    MessageTooLarge,
    NeedsOperator,
    NodeIdTaken,
    NotMaster,
    NotPermitted,
    NotReady,
    OffsetOutOfRange,
    ProducerExpired,
    QueueFull,
    QueueNotFound,
    Refused,
    SequenceGap,
    SessionEnded,
    StaleEpoch,
    StreamDropped,
    TooFewCopies,
    TopicExists,
    TopicNotFound,
    UnreadableRecord,
    VersionChanged,
    WrongCluster,
)
from dittomq.errors.root import ConnectionRefused, DittoError, EpochOver, OutOfReach, StoreFailed, first_of, leaves
from dittomq.errors.starting import CannotListen, ConfigError, PortInUse, StartError, StoreLocked, UnreadableStore, not_bound

__all__ = [
    "CannotListen",
    "ConfigError",
    "ConnectionRefused",
    "CorruptRecord",
    "DiskFull",
    "DittoError",
    "EpochOver",
    "InvalidField",
    "LevelNotReached",
    "MessageTooLarge",
    "NeedsOperator",
    "NodeIdTaken",
    "NotMaster",
    "NotPermitted",
    "NotReady",
    "NotStored",
    "OffsetOutOfRange",
    "OutOfReach",
    "OutcomeHandle",
    "OutcomeUnknown",
    "PortInUse",
    "ProducerExpired",
    "QueueFull",
    "QueueNotFound",
    "Refused",
    "SequenceGap",
    "SessionEnded",
    "StaleEpoch",
    "StartError",
    "StoreFailed",
    "StoreLocked",
    "StreamDropped",
    "TooFewCopies",
    "TopicExists",
    "TopicNotFound",
    "UnreadableRecord",
    "UnreadableStore",
    "VersionChanged",
    "WrongCluster",
    "first_of",
    "leaves",
    "not_bound",
]
