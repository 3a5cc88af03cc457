"""Everything that can be refused or fail, as one tree. An error carries data and reads as one sentence that says what to change.

DittoError
  Refused         nothing of it happened; crosses the wire (`dittomq.rpc.status` maps each to a gRPC code and back)
  StoreFailed     a write or sync failed: the node stops, what was in flight is unknown; crosses the wire too
  StartError      this process cannot start: configuration, store, port
  OutOfReach      nobody answers at an address, or not in time
  NotStored, LevelNotReached, OutcomeUnknown
                  what publishing raises; a caller has one question: may I send it again?
"""

from dataclasses import dataclass
from typing import ClassVar

from dittomq.message import Receipt


class DittoError(Exception):
    """Root of the tree. `reason` is a name of ditto.error.v1.ErrorReason, or our own where it never crosses the wire."""

    reason: ClassVar[str] = "UNSPECIFIED"


class Refused(DittoError):
    """Nothing of what was asked happened."""


@dataclass(eq=False)
class InvalidField(Refused):
    """A field breaks its stated limits."""

    reason: ClassVar[str] = "INVALID_FIELD"
    field: str
    problem: str

    def __str__(self) -> str:
        return f"{self.field}: {self.problem}"


@dataclass(eq=False)
class TopicNotFound(Refused):
    """`similar` is the nearest known name, empty for none; `where` names the cluster or the node that was asked."""

    reason: ClassVar[str] = "TOPIC_NOT_FOUND"
    topic: str
    where: str
    similar: str = ""

    def __str__(self) -> str:
        hint = f'; did you mean "{self.similar}"' if self.similar else ""
        end = "? Create it" if hint else ". Create it"
        return f'topic "{self.topic}" does not exist in {self.where}{hint}{end}: dittomq topic create {self.topic}'


@dataclass(eq=False)
class TopicExists(Refused):
    """The topic exists with another value of `field`."""

    reason: ClassVar[str] = "TOPIC_EXISTS"
    topic: str
    field: str
    existing: str
    asked: str

    def __str__(self) -> str:
        return f'topic "{self.topic}" exists with {self.field} {self.existing}, not {self.asked}; delete it first or ask for what it has'


@dataclass(eq=False)
class QueueNotFound(Refused):
    """The topic has queues [0, queues)."""

    reason: ClassVar[str] = "QUEUE_NOT_FOUND"
    topic: str
    queue: int
    queues: int

    def __str__(self) -> str:
        return f'topic "{self.topic}" has queues 0 to {self.queues - 1}, not {self.queue}'


@dataclass(eq=False)
class MessageTooLarge(Refused):
    """Sizes in bytes."""

    reason: ClassVar[str] = "MESSAGE_TOO_LARGE"
    what: str
    size: int
    limit: int

    def __str__(self) -> str:
        return f"{self.what} has {self.size:,} bytes, the limit is {self.limit:,}; send less or keep the data elsewhere and send where it is"


@dataclass(eq=False)
class OffsetOutOfRange(Refused):
    """`asked` is outside [start, end]; `unit` is "queue offset" or "byte"."""

    reason: ClassVar[str] = "OFFSET_OUT_OF_RANGE"
    unit: str
    asked: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.unit} {self.asked:,} is outside [{self.start:,}, {self.end:,}]; start from one of these"


@dataclass(eq=False)
class NotMaster(Refused):
    """`master` is the client address of the node that takes writes, empty when unknown."""

    reason: ClassVar[str] = "NOT_MASTER"
    node: str
    master: str

    def __str__(self) -> str:
        where = f"send it to the master at {self.master}" if self.master else "its master is not known now"
        return f"{self.node} is a slave and takes no writes; {where}"


@dataclass(eq=False)
class NotReady(Refused):
    """`why` says what the node waits for."""

    reason: ClassVar[str] = "NOT_READY"
    node: str
    why: str

    def __str__(self) -> str:
        return f"{self.node} is not ready: {self.why}"


@dataclass(eq=False)
class TooFewCopies(Refused):
    """Copies count the master."""

    reason: ClassVar[str] = "TOO_FEW_COPIES"
    node: str
    in_sync: int
    demanded: int

    def __str__(self) -> str:
        return f"{self.node} has {self.in_sync} copies in sync and min_in_sync_replicas demands {self.demanded}; bring slaves back or lower it"


@dataclass(eq=False)
class DiskFull(Refused):
    """Sizes in bytes."""

    reason: ClassVar[str] = "DISK_FULL"
    node: str
    free: int
    needed: int

    def __str__(self) -> str:
        return f"the disk of {self.node} has {self.free:,} bytes left and the append keeps {self.needed:,} free; make room, writes resume by themselves"


@dataclass(eq=False)
class QueueFull(Refused):
    """A bounded queue is full."""

    reason: ClassVar[str] = "QUEUE_FULL"
    what: str
    limit: int

    def __str__(self) -> str:
        return f"{self.what} is full ({self.limit:,}); send slower or retry later"


@dataclass(eq=False)
class NotPermitted(Refused):
    """The topic's or the broker's permission forbids it."""

    reason: ClassVar[str] = "NOT_PERMITTED"
    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(eq=False)
class SequenceGap(Refused):
    """The node expected `expected` next from this producer."""

    reason: ClassVar[str] = "SEQUENCE_GAP"
    producer_id: str
    expected: int
    got: int

    def __str__(self) -> str:
        return f"producer {self.producer_id} sent sequence {self.got:,} and {self.expected:,} is next; send the missing ones first"


@dataclass(eq=False)
class ProducerExpired(Refused):
    """What this sequence became is not remembered any more."""

    reason: ClassVar[str] = "PRODUCER_EXPIRED"
    producer_id: str
    sequence: int

    def __str__(self) -> str:
        return f"sequence {self.sequence:,} of producer {self.producer_id} is no longer remembered; look for the message before you send it under a new producer id"


@dataclass(eq=False)
class CorruptRecord(Refused):
    """A record fails its checksum. `position` is its first byte in the log."""

    reason: ClassVar[str] = "CORRUPT_RECORD"
    node: str
    position: int
    problem: str

    def __str__(self) -> str:
        return f"the copy of {self.node} is damaged at byte {self.position:,} ({self.problem}); read from another copy"


@dataclass(eq=False)
class WrongCluster(Refused):
    """The caller's `field` (cluster or broker group) is not this node's."""

    reason: ClassVar[str] = "WRONG_CLUSTER"
    field: str
    asked: str
    actual: str

    def __str__(self) -> str:
        return f'{self.field} is "{self.actual}" here, not "{self.asked}"; check the configuration and the address'


@dataclass(eq=False)
class NodeIdTaken(Refused):
    """A living replica holds the id."""

    reason: ClassVar[str] = "NODE_ID_TAKEN"
    node: str
    holder: str

    def __str__(self) -> str:
        return f"{self.node} is held by the replica at {self.holder}, which is alive; stop it or choose another broker_id"


@dataclass(eq=False)
class SessionEnded(Refused):
    """`superseded`: another replica has taken the node id, and this one must stop."""

    reason: ClassVar[str] = "SESSION_ENDED"
    what: str
    superseded: bool = False

    def __str__(self) -> str:
        return f"{self.what} has ended" + ("; another replica took its place" if self.superseded else "; open a new one")


@dataclass(eq=False)
class VersionChanged(Refused):
    """The table moved on between two pages."""

    reason: ClassVar[str] = "VERSION_CHANGED"
    table: str

    def __str__(self) -> str:
        return f"{self.table} changed while it was read; start again from the first page"


@dataclass(eq=False)
class StaleEpoch(Refused):
    """The caller speaks for an epoch that is over."""

    reason: ClassVar[str] = "STALE_EPOCH"
    epoch: int
    newest: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} is over, {self.newest} is the newest"


@dataclass(eq=False)
class NeedsOperator(Refused):
    """Going on would lose confirmed data; a person must decide."""

    reason: ClassVar[str] = "NEEDS_OPERATOR"
    node: str
    why: str

    def __str__(self) -> str:
        return f"{self.node} needs an operator: {self.why}"


@dataclass(eq=False)
class StoreFailed(DittoError):
    """A write or sync failed. It is never repeated: the node stops and what was in flight is unknown."""

    reason: ClassVar[str] = "STORE_FAILED"
    operation: str
    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.operation} of {self.path} failed: {self.problem}; the node stops, check its disk and start it again"


class StartError(DittoError):
    """This process cannot start."""


@dataclass(eq=False)
class ConfigError(StartError):
    """`where` names the file and line, variable or flag."""

    reason: ClassVar[str] = "CONFIG"
    where: str
    problem: str

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}"


@dataclass(eq=False)
class StoreLocked(StartError):
    """Another process holds the store."""

    reason: ClassVar[str] = "STORE_LOCKED"
    path: str

    def __str__(self) -> str:
        return f"the store {self.path} is held by another process; stop it or use another data_dir"


@dataclass(eq=False)
class UnreadableStore(StartError):
    """The store cannot be opened; nothing in it was changed."""

    reason: ClassVar[str] = "UNREADABLE_STORE"
    path: str
    problem: str

    def __str__(self) -> str:
        return f"the store {self.path} cannot be opened: {self.problem}"


@dataclass(eq=False)
class PortInUse(StartError):
    """The address cannot be bound."""

    reason: ClassVar[str] = "PORT_IN_USE"
    setting: str
    address: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.address} is in use; stop what holds it or choose another port"


@dataclass(eq=False)
class OutOfReach(DittoError):
    """Nobody answers, or not in time."""

    reason: ClassVar[str] = "OUT_OF_REACH"
    who: str
    problem: str

    def __str__(self) -> str:
        return f"{self.who} does not answer: {self.problem}"


@dataclass(eq=False)
class NotStored(DittoError):
    """Surely not in any log. `index` is the message's place in what was published together, `cause` what refused it."""

    reason: ClassVar[str] = "NOT_STORED"
    topic: str
    cause: DittoError
    index: int = 0

    def __str__(self) -> str:
        return f"not stored: {self.cause}"


@dataclass(eq=False)
class LevelNotReached(DittoError):
    """Stored, on fewer or less safe copies than asked; the receipt names them."""

    reason: ClassVar[str] = "LEVEL_NOT_REACHED"
    receipt: Receipt

    def __str__(self) -> str:
        copies = ", ".join(map(str, self.receipt.copies)) or "no copy known"
        return f"stored weaker than {self.receipt.asked}: {self.receipt.status}, {copies}; do not send it again"


@dataclass(frozen=True, slots=True)
class OutcomeHandle:
    """Names a message whose answer was lost, for `resolve`."""

    broker: str
    producer_id: str
    sequence: int
    topic: str
    queue: int


@dataclass(eq=False)
class OutcomeUnknown(DittoError):
    """The answer was lost: in the log or not. Sending again through the same producer, or `resolve`, cannot store it twice."""

    reason: ClassVar[str] = "OUTCOME_UNKNOWN"
    handle: OutcomeHandle
    problem: str

    def __str__(self) -> str:
        return f"outcome unknown: {self.problem}; ask with resolve, or send it again through the same producer"
