"""Refusals: nothing of what was asked happened. Each crosses the wire; `dittomq.rpc.status` maps it to a gRPC code and back."""

from dataclasses import dataclass
from typing import ClassVar

from dittomq.errors.root import DittoError


class Refused(DittoError):
    """Nothing of what was asked happened."""


@dataclass(eq=False)
class InvalidField(Refused):
    """A field breaks its stated limits."""

    reason: ClassVar[str] = "INVALID_FIELD"
    sentence: ClassVar[str] = "{0.field}: {0.problem}"
    field: str
    problem: str


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
class KeyNotFound(Refused):
    """A nameserver keeps no value under this key of the namespace."""

    reason: ClassVar[str] = "KEY_NOT_FOUND"
    sentence: ClassVar[str] = 'namespace "{0.namespace}" has no key "{0.key}"; list the keys it has'
    namespace: str
    key: str


@dataclass(eq=False)
class TopicExists(Refused):
    """The topic exists with another value of `field`."""

    reason: ClassVar[str] = "TOPIC_EXISTS"
    sentence: ClassVar[str] = 'topic "{0.topic}" exists with {0.field} {0.existing}, not {0.asked}; delete it first or ask for what it has'
    topic: str
    field: str
    existing: str
    asked: str


@dataclass(eq=False)
class GroupNotFound(Refused):
    """`similar` is the nearest known name, empty for none; `where` names the cluster or the node that was asked."""

    reason: ClassVar[str] = "GROUP_NOT_FOUND"
    group: str
    where: str
    similar: str = ""

    def __str__(self) -> str:
        hint = f'; did you mean "{self.similar}"' if self.similar else ""
        end = "? Create it" if hint else ". Create it"
        return f'consumer group "{self.group}" does not exist in {self.where}{hint}{end}: dittomq group create {self.group}'


@dataclass(eq=False)
class GroupExists(Refused):
    """The consumer group exists with another value of `field`."""

    reason: ClassVar[str] = "GROUP_EXISTS"
    sentence: ClassVar[str] = (
        'consumer group "{0.group}" exists with {0.field} {0.existing}, not {0.asked}; update it or ask for what it has'
    )
    group: str
    field: str
    existing: str
    asked: str


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
class MessageNotFound(Refused):
    """No message that can be read has this id, or it was undone, or dropped with its segment."""

    reason: ClassVar[str] = "MESSAGE_NOT_FOUND"
    sentence: ClassVar[str] = '{0.node} holds no message "{0.id}" that can be read; it may never have been stored, or be dropped by now'
    node: str
    id: str


@dataclass(eq=False)
class MessageTooLarge(Refused):
    """Sizes in bytes."""

    reason: ClassVar[str] = "MESSAGE_TOO_LARGE"
    what: str
    size: int
    limit: int

    def __str__(self) -> str:
        return (
            f"{self.what} has {self.size:,} bytes, the limit is {self.limit:,}; send less or keep the data elsewhere and send where it is"
        )


@dataclass(eq=False)
class OffsetOutOfRange(Refused):
    """`asked` is outside [start, end]; `unit` is "queue offset" or "byte"."""

    reason: ClassVar[str] = "OFFSET_OUT_OF_RANGE"
    sentence: ClassVar[str] = "{0.unit} {0.asked:,} is outside [{0.start:,}, {0.end:,}]; start from one of these"
    unit: str
    asked: int
    start: int
    end: int


@dataclass(eq=False)
class LogTruncated(Refused):
    """What was read of a queue below `asked` is lost, at the earliest from `end` on, and others lie in its place. Queue offsets.

    Kafka's LogTruncationException.
    """

    reason: ClassVar[str] = "LOG_TRUNCATED"
    sentence: ClassVar[str] = (
        "of what was read of {0.topic} {0.queue} up to queue offset {0.asked:,} some is lost: a master was elected without it, "
        "and other messages lie there; read again from {0.end:,}"
    )
    topic: str
    queue: int
    asked: int
    end: int


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
    sentence: ClassVar[str] = "{0.node} is not ready: {0.why}"
    node: str
    why: str


@dataclass(eq=False)
class StaleCopy(Refused):
    """This copy may lack more than the reader allows. Milliseconds; `age_ms` -1: the node cannot tell how old its copy is."""

    reason: ClassVar[str] = "STALE_COPY"
    node: str
    age_ms: int
    allowed_ms: int

    def __str__(self) -> str:
        age = "may be of any age: it does not hear a master that leads" if self.age_ms < 0 else f"may be {self.age_ms:,} ms old"
        return f"the copy of {self.node} {age}, and max_staleness allows {self.allowed_ms:,} ms; ask another node"


@dataclass(eq=False)
class NotEnoughReplicas(Refused):
    """Copies count the master."""

    reason: ClassVar[str] = "NOT_ENOUGH_REPLICAS"
    node: str
    in_sync: int
    demanded: int

    def __str__(self) -> str:
        copies = "1 copy" if self.in_sync == 1 else f"{self.in_sync} copies"
        return f"{self.node} has {copies} in sync and min_in_sync_replicas demands {self.demanded}; bring slaves back or lower it"


@dataclass(eq=False)
class DiskFull(Refused):
    """Sizes in bytes."""

    reason: ClassVar[str] = "DISK_FULL"
    node: str
    free: int
    needed: int

    def __str__(self) -> str:
        room = f"the disk of {self.node} has {self.free:,} bytes left, and {self.needed:,} must be free"
        return f"{room}; make room, writes resume by themselves"


@dataclass(eq=False)
class LimitReached(Refused):
    """A bounded queue is full."""

    reason: ClassVar[str] = "LIMIT_REACHED"
    sentence: ClassVar[str] = "{0.what} is full ({0.limit:,}); send slower or retry later"
    what: str
    limit: int


@dataclass(eq=False)
class PreconditionFailed(Refused):
    """The state of the group forbids it now; once that has changed, the same call may succeed."""

    reason: ClassVar[str] = "PRECONDITION_FAILED"
    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(eq=False)
class Unauthenticated(Refused):
    """The caller has not shown who he is: no certificate and no token, or a token that is not valid (any more)."""

    reason: ClassVar[str] = "UNAUTHENTICATED"
    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(eq=False)
class PermissionDenied(Refused):
    """The topic's or the broker's permission forbids it, or the access file does."""

    reason: ClassVar[str] = "PERMISSION_DENIED"
    what: str

    def __str__(self) -> str:
        return self.what


@dataclass(eq=False)
class OutOfOrderSequence(Refused):
    """The node expected `expected` next from this producer."""

    reason: ClassVar[str] = "OUT_OF_ORDER_SEQUENCE"
    sentence: ClassVar[str] = "producer {0.producer_id} sent sequence {0.got:,} and {0.expected:,} is next; send the missing ones first"
    producer_id: str
    expected: int
    got: int


@dataclass(eq=False)
class UnknownProducerId(Refused):
    """What this sequence became is not remembered any more. The log has at least the end `log_end`."""

    reason: ClassVar[str] = "UNKNOWN_PRODUCER_ID"
    producer_id: str
    sequence: int
    log_end: int

    def __str__(self) -> str:
        what = f"sequence {self.sequence:,} of producer {self.producer_id} is no longer remembered"
        return f"{what}; look for the message before you send it under a new producer id"


@dataclass(eq=False)
class CorruptRecord(Refused):
    """A record fails its checksum, or its disk does not give it. `position` is its first byte in the log."""

    reason: ClassVar[str] = "CORRUPT_RECORD"
    sentence: ClassVar[str] = "the copy of {0.node} is damaged at byte {0.position:,} ({0.problem}); read from another copy"
    node: str
    position: int
    problem: str


@dataclass(eq=False)
class WrongCluster(Refused):
    """The `field` that the caller is of or means (cluster, broker group or node) is not this node's."""

    reason: ClassVar[str] = "WRONG_CLUSTER"
    sentence: ClassVar[str] = '{0.field} is "{0.actual}" here, not "{0.asked}"; check the configuration and the address'
    field: str
    asked: str
    actual: str


@dataclass(eq=False)
class DuplicateBrokerId(Refused):
    """A living replica holds the id; it was last heard `silent_ms` ago.

    `holder_node` is its configured name, "" where that is unknown. `copied` is the replica's uuid where both have it, else "".
    """

    reason: ClassVar[str] = "DUPLICATE_BROKER_ID"
    node: str
    holder: str
    silent_ms: int = 0
    holder_node: str = ""
    copied: str = ""

    def __str__(self) -> str:
        if self.copied:
            held = f"the replica id {self.copied} of {self.node} is held by the replica at {self.holder}, which is alive"
            return f"{held}: its disk is a copy; give it another identity: dittomq log new-identity STORE"
        if self.is_displaced:
            return f"the id of {self.node} is held by {self.holder_node} at {self.holder}, which was elected: it moves with the record"
        return f"{self.node} is held by the replica at {self.holder}, which is alive; stop it or choose another broker_id"

    @property
    def is_displaced(self) -> bool:
        """Whether the id went to another node of the group, by an election."""
        return not self.copied and self.holder_node not in {"", self.node}


@dataclass(eq=False)
class SessionExpired(Refused):
    """What the session was for goes on under a new one."""

    reason: ClassVar[str] = "SESSION_EXPIRED"
    sentence: ClassVar[str] = "{0.what} has ended; open a new one"
    what: str


@dataclass(eq=False)
class VersionConflict(Refused):
    """The table moved on since the page, or the version to be changed, was read."""

    reason: ClassVar[str] = "VERSION_CONFLICT"
    sentence: ClassVar[str] = "{0.table} changed since that version was read; read again from the first page"
    table: str


@dataclass(eq=False)
class StaleEpoch(Refused):
    """The caller speaks for an epoch that is over."""

    reason: ClassVar[str] = "STALE_EPOCH"
    sentence: ClassVar[str] = "epoch {0.epoch} is over, {0.newest} is the newest"
    epoch: int
    newest: int


@dataclass(eq=False)
class StreamReset(Refused):
    """A master ended a slave's stream. What is wrong is settled by what follows the slave's next handshake, and by nobody's hand."""

    reason: ClassVar[str] = "STREAM_RESET"
    sentence: ClassVar[str] = "{0.node} ended the stream: {0.why}; the slave sends its handshake again"
    node: str
    why: str


@dataclass(eq=False)
class NeedsOperator(Refused):
    """Going on would lose confirmed data; a person must decide."""

    reason: ClassVar[str] = "NEEDS_OPERATOR"
    sentence: ClassVar[str] = "{0.node} needs an operator: {0.why}"
    node: str
    why: str


@dataclass(eq=False)
class UnreadableRecord(Refused):
    """What lies in the coordination store, at `where`, is no group record that this version can obey."""

    reason: ClassVar[str] = "UNREADABLE_RECORD"
    sentence: ClassVar[str] = "the group record in {0.where} cannot be used: {0.problem}; look at it, and delete it if nobody needs it"
    where: str
    problem: str
