"""What producers hand in and what readers get back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import NamedTuple, overload

from dittomq.offsets import PhysicalOffset, QueueOffset

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_TOPIC_CHARACTERS = 127
MAX_PROPERTIES_BYTES = 32_767
MAX_ORDER_KEY_CHARACTERS = 32_767
MAX_BATCH_MESSAGES = 1_024
MAX_BATCH_BYTES = 8 * 1024 * 1024


class Ack(StrEnum):
    """When a publish is answered. The names are the wire's and the command line's."""

    MASTER_RECEIVED = "MASTER_RECEIVED"
    MASTER_FLUSHED = "MASTER_FLUSHED"
    REPLICA_RECEIVED = "REPLICA_RECEIVED"
    REPLICA_FLUSHED = "REPLICA_FLUSHED"


class PutStatus(StrEnum):
    """RocketMQ's result of a stored message; in every case the message is in the log."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


class CopyState(StrEnum):
    """What one copy holds of a message."""

    RECEIVED = "received"
    FLUSHED = "flushed"


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy in a receipt; `node` is "broker/id" by configured id."""

    node: str
    state: CopyState

    def __str__(self) -> str:
        return f"{self.node} {self.state}"


@dataclass(frozen=True, slots=True)
class Message:
    """A message to publish. `queue` None: by `order_key`, otherwise in turns.

    Nobody can read it before `delay_ms` have passed, or before `deliver_ms` since 1970; 0: at once.
    """

    topic: str
    body: bytes
    queue: int | None = None
    keys: tuple[str, ...] = ()
    tag: str = ""
    order_key: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    born_ms: int = 0
    delay_ms: int = 0
    deliver_ms: int = 0


class PlainSpan(NamedTuple):
    """Neighbouring messages of one queue that have nothing but a body, and a tag in common."""

    topic: str
    queue: int
    tag: str
    bodies: list[bytes]


class Draft(NamedTuple):
    """A checked message on its way into the log: everything but its positions and its store time.

    `properties` is the encoded property field without the record CRC: `name 0x01 value 0x02` repeated.
    `tags_code` is what the consume queue stores: Java's hash of the tag, 0 for none.
    A tuple, because one is made for every message.
    """

    topic: str
    queue: int
    flag: int
    born_ms: int
    body: bytes
    properties: bytes
    tags_code: int


class DraftBatch(NamedTuple):
    """Neighbouring drafts that differ in their bodies and properties only; their flag is 0."""

    topic: str
    queue: int
    born_ms: int
    bodies: Sequence[bytes]
    properties: Sequence[bytes]
    tags_code: int

    def each(self) -> Iterator[Draft]:
        """One after the other."""
        for body, properties in zip(self.bodies, self.properties, strict=True):
            yield Draft(self.topic, self.queue, 0, self.born_ms, body, properties, self.tags_code)


class DraftRuns(Sequence[Draft]):
    """Drafts that are kept as runs; each is made when somebody looks at it."""

    def __init__(self, runs: Sequence[DraftBatch]) -> None:
        self.runs = runs
        self._count = sum(len(run.bodies) for run in runs)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Draft]:
        return chain.from_iterable(run.each() for run in self.runs)

    @overload
    def __getitem__(self, index: int) -> Draft: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Draft]: ...
    def __getitem__(self, index: int | slice) -> Draft | Sequence[Draft]:
        return next(iter(self)) if index == 0 and self.runs else list(self)[index]


class StoredMessage(NamedTuple):
    """A message as it lies in the log. `properties` are those the producer set; ours are left out."""

    topic: str
    queue: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    record_bytes: int
    body: bytes
    keys: tuple[str, ...]
    tag: str
    properties: Mapping[str, str]
    flag: int
    born_ms: int
    store_ms: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a stored message. `token` asks a reader for a copy that holds it."""

    status: PutStatus
    asked: Ack
    levels_reached: frozenset[Ack]
    copies: tuple[Copy, ...]
    epoch: int
    broker: str
    topic: str
    queue: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    record_bytes: int
    store_ms: int
    token: str
    duplicate: bool
