"""Everything that can be refused or fail, as one tree. An error carries data and reads as one sentence that says what to change.

DittoError
  Refused         nothing of it happened; crosses the wire (`dittomq.rpc.status` maps each to a gRPC code and back)
  StorageFailure     a write or sync failed: the node stops, what was in flight is unknown; crosses the wire too
  StartError      this process cannot start: configuration, store, port
  Unavailable      nobody answers at an address, or not in time
    ConnectionRefused  its machine says at once that nothing listens there
    FencedEpoch     a newer epoch was opened: what was in flight is unknown; crosses the wire
  NotStored, AckLevelNotReached, OutcomeUnknown
                  what publishing raises; a caller has one question: may I send it again?
"""

from dittomq.errors.publishing import AckLevelNotReached, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.errors.refused import (
    CorruptRecord,
    DiskFull,
    DuplicateBrokerId,
    GroupExists,
    GroupNotFound,
    InvalidField,
    KeyNotFound,
    LimitReached,
    LogTruncated,
    MessageNotFound,
    MessageTooLarge,
    NeedsOperator,
    NotEnoughReplicas,
    NotMaster,
    NotReady,
    OffsetOutOfRange,
    OutOfOrderSequence,
    PermissionDenied,
    PreconditionFailed,
    QueueNotFound,
    Refused,
    SessionExpired,
    StaleCopy,
    StaleEpoch,
    StreamReset,
    TopicExists,
    TopicNotFound,
    Unauthenticated,
    UnknownProducerId,
    UnreadableRecord,
    VersionConflict,
    WrongCluster,
)
from dittomq.errors.root import ConnectionRefused, DittoError, FencedEpoch, StorageFailure, Unavailable, first_of, leaves
from dittomq.errors.starting import CannotListen, ConfigError, PortInUse, StartError, StoreLocked, StoreOpenFailed, not_bound

__all__ = [
    "AckLevelNotReached",
    "CannotListen",
    "ConfigError",
    "ConnectionRefused",
    "CorruptRecord",
    "DiskFull",
    "DittoError",
    "DuplicateBrokerId",
    "FencedEpoch",
    "GroupExists",
    "GroupNotFound",
    "InvalidField",
    "KeyNotFound",
    "LimitReached",
    "LogTruncated",
    "MessageNotFound",
    "MessageTooLarge",
    "NeedsOperator",
    "NotEnoughReplicas",
    "NotMaster",
    "NotReady",
    "NotStored",
    "OffsetOutOfRange",
    "OutOfOrderSequence",
    "OutcomeHandle",
    "OutcomeUnknown",
    "PermissionDenied",
    "PortInUse",
    "PreconditionFailed",
    "QueueNotFound",
    "Refused",
    "SessionExpired",
    "StaleCopy",
    "StaleEpoch",
    "StartError",
    "StorageFailure",
    "StoreLocked",
    "StoreOpenFailed",
    "StreamReset",
    "TopicExists",
    "TopicNotFound",
    "Unauthenticated",
    "Unavailable",
    "UnknownProducerId",
    "UnreadableRecord",
    "VersionConflict",
    "WrongCluster",
    "first_of",
    "leaves",
    "not_bound",
]
