"""ditto.messaging.v1 ↔ values: a broker's side of publishing. Batches of messages in, receipts out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Self

from google.protobuf.duration_pb2 import Duration

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.delays import MAX_WAITING_PROPERTIES_BYTES
from dittomq.epoch_history import EpochEntry
from dittomq.errors import InvalidField, MessageTooLarge
from dittomq.message import MAX_BATCH_MESSAGES, Ack, Copy, Draft, PutStatus
from dittomq.offsets import Epoch
from dittomq.places import AppendResult
from dittomq.tokens import encode_token
from dittomq.transactions import half_of
from dittomq.wire.drafts import Topics, drafts_of, drafts_of_runs
from dittomq.wire.messaging import ACK_FROM_PB, ACK_TO_PB, COPY_FROM_PB, PUT_STATUS_FROM_PB
from dittomq.wire.times import timestamp_to_pb

_STATUS_TO_PB = {status: number for number, status in PUT_STATUS_FROM_PB.items()}
_COPY_TO_PB = {state: number for number, state in COPY_FROM_PB.items()}
MAX_PRODUCER_ID = 64
_PRODUCER_ID_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


@dataclass(frozen=True, slots=True)
class PublishOrder:
    """How a batch is to be stored and answered. `timeout_s` None: the broker's default; `ack` None: the broker's default.

    `size` is the bytes of all bodies and properties. No try of the batch can lie below `sent_since`; None: the caller does not say.
    """

    drafts: Sequence[Draft]
    size: int
    producer_id: str
    first_sequence: int
    ack: Ack | None
    timeout_s: float | None
    sent_since: int | None

    @classmethod
    def of_broker(cls, drafts: Sequence[Draft], timeout_s: float | None = None) -> Self:
        """Records of the broker's own: of no producer, for the default level."""
        size = sum(len(draft.body) + len(draft.properties) for draft in drafts)
        return cls(drafts, size, "", -1, ack=None, timeout_s=timeout_s, sent_since=None)

    def resent(self) -> "ResentOrder":
        """As a try of something that may be stored already."""
        sequences = range(self.first_sequence, self.first_sequence + len(self.drafts))
        return ResentOrder(self.producer_id, sequences, self.ack, self.timeout_s)


@dataclass(frozen=True, slots=True)
class ResentOrder:
    """A batch without its messages. An empty `producer_id`: nobody can know whether an earlier try of it is stored."""

    producer_id: str
    sequences: range
    ack: Ack | None
    timeout_s: float | None


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that is in the log. `entries[i]` of the epoch history covers the run `placed[i]`; None: no master of ours wrote that."""

    status: PutStatus
    asked: Ack
    levels_reached: tuple[Ack, ...]
    copies: tuple[Copy, ...]
    entries: Sequence[EpochEntry | None]
    broker: str
    placed: Sequence[AppendResult]
    duplicate: bool


class SendOutcome(Enum):
    """What is known of a message whose answer was lost."""

    STORED = pb.OUTCOME_STORED
    NOT_STORED = pb.OUTCOME_NOT_STORED
    UNKNOWN = pb.OUTCOME_UNKNOWN


@dataclass(frozen=True, slots=True)
class OutcomeOrder:
    """Which message, and what to wait for; None: the broker's default. No try of it can lie below `sent_since`."""

    producer_id: str
    sequence: int
    ack: Ack | None
    timeout_s: float | None
    sent_since: int | None


def ack_from_pb(level: int) -> Ack | None:
    """None for the broker's default; InvalidField for a level this version does not know."""
    if level == pb.ACK_LEVEL_UNSPECIFIED:
        return None
    for number, ack in ACK_FROM_PB.items():
        if number == level:
            return ack
    raise InvalidField("ack", f"{level} is not an AckLevel of this version")


def publish_request(request: pb.PublishRequest, topics: Topics) -> PublishOrder:
    """A batch of one; Refused, or MessageRefused for what it holds."""
    return _order(request, _sequence_of_one(request), topics)


def publish_batch(request: pb.PublishStreamRequest, topics: Topics) -> PublishOrder:
    """Check every limit before anything is kept; Refused for the batch, MessageRefused for one message of it."""
    count = _count(request)
    if not 1 <= count <= MAX_BATCH_MESSAGES:
        raise InvalidField("messages", f"a frame has 1 to {MAX_BATCH_MESSAGES:,} messages, not {count:,}")
    return _order(request, _first_sequence(request), topics)


def resent_request(request: pb.PublishRequest) -> ResentOrder:
    """A message that `publish_request` refused, as a try of something that may be stored already."""
    return _resent(request, _sequence_of_one(request), 1)


def resent_batch(request: pb.PublishStreamRequest) -> ResentOrder:
    """A batch that `publish_batch` refused, as a try of something that may be stored already."""
    return _resent(request, _first_sequence(request), _count(request))


def _count(request: pb.PublishStreamRequest) -> int:
    runs = request.runs
    if len(runs) > MAX_BATCH_MESSAGES:
        raise InvalidField("runs", f"a frame has at most {MAX_BATCH_MESSAGES:,} runs, not {len(runs):,}")
    if runs and request.messages:
        raise InvalidField("runs", "a frame has messages or runs, not both")
    return sum(len(run.bodies) for run in runs) if runs else len(request.messages)


def _sequence_of_one(request: pb.PublishRequest) -> int | None:
    return request.sequence if request.HasField("sequence") else None


def _first_sequence(request: pb.PublishStreamRequest) -> int | None:
    return request.first_sequence if request.HasField("first_sequence") else None


def _resent(request: pb.PublishRequest | pb.PublishStreamRequest, sequence: int | None, count: int) -> ResentOrder:
    first = -1 if sequence is None else sequence
    return ResentOrder(request.producer_id, range(first, first + count), ack_from_pb(request.ack), _timeout_s(request))


def _order(request: pb.PublishRequest | pb.PublishStreamRequest, sequence: int | None, topics: Topics) -> PublishOrder:
    producer_id = _producer_id(request.producer_id, sequence)
    first = -1 if sequence is None else sequence
    timeout_s = _timeout_s(request)
    drafts: Sequence[Draft]
    if isinstance(request, pb.PublishRequest):
        drafts, size = drafts_of([request.message], producer_id, first, topics)
        if request.transaction_group:
            drafts = [_half(drafts[0], request)]
    elif request.runs:
        drafts, size = drafts_of_runs(request.runs, producer_id, first, topics)
    else:
        drafts, size = drafts_of(request.messages, producer_id, first, topics)
    return PublishOrder(drafts, size, producer_id, first, ack_from_pb(request.ack), timeout_s, _sent_since(request))


def _half(draft: Draft, request: pb.PublishRequest) -> Draft:
    if request.message.delay_ms or request.message.deliver_ms:
        raise InvalidField("transaction_group", "a message of a transaction cannot be delayed")
    half = half_of(draft, request.transaction_group)
    if len(half.properties) > MAX_WAITING_PROPERTIES_BYTES:
        raise MessageTooLarge("the properties of a message of a transaction", len(half.properties), MAX_WAITING_PROPERTIES_BYTES)
    return half


def _timeout_s(request: pb.PublishRequest | pb.PublishStreamRequest | pb.GetPublishResultRequest) -> float | None:
    return duration_s("timeout", request.timeout) if request.HasField("timeout") else None


def _sent_since(request: pb.PublishRequest | pb.PublishStreamRequest | pb.GetPublishResultRequest) -> int | None:
    if not request.HasField("min_possible_offset"):
        return None
    if request.min_possible_offset < 0:
        raise InvalidField("min_possible_offset", f"{request.min_possible_offset} is negative")
    return request.min_possible_offset


def _producer_id(producer_id: str, sequence: int | None) -> str:
    if bool(producer_id) != (sequence is not None):
        raise InvalidField("producer_id", "producer_id and sequence come together or not at all")
    if len(producer_id) > MAX_PRODUCER_ID or not _PRODUCER_ID_CHARACTERS.issuperset(producer_id):
        raise InvalidField("producer_id", f"1 to {MAX_PRODUCER_ID} characters of [a-zA-Z0-9_-]")
    if sequence is not None and not 0 <= sequence < 1 << 62:
        raise InvalidField("sequence", f"{sequence} is outside [0, 2^62)")
    return producer_id


def duration_s(field: str, duration: Duration) -> float:
    """Seconds; InvalidField unless 0 <= seconds <= 1 h."""
    seconds = float(duration.seconds + duration.nanos / 1e9)
    if not 0 <= seconds <= 3_600:
        raise InvalidField(field, f"{seconds} s is outside [0, 3600]")
    return seconds


def stored_batch_to_pb(batch_id: int, batch: StoredBatch) -> pb.PublishStreamResponse:
    """Run by run."""
    return pb.PublishStreamResponse(
        batch_id=batch_id,
        stored=pb.BatchStored(
            status=_STATUS_TO_PB[batch.status],
            asked=ACK_TO_PB[batch.asked],
            levels_reached=[ACK_TO_PB[level] for level in batch.levels_reached],
            copies=[pb.Copy(node=copy.node, state=_COPY_TO_PB[copy.state]) for copy in batch.copies],
            epoch=_epoch(batch.entries[-1]),
            incarnation=_incarnation(batch.entries[-1]),
            broker=batch.broker,
            runs=_runs(batch),
            duplicate=batch.duplicate,
        ),
    )


def _runs(batch: StoredBatch) -> Iterator[pb.ReceiptRun]:
    index, last = 0, batch.entries[-1]
    for (topic, queue, queue_offset, physical_offset, sizes, store_ms, duplicate), entry in zip(batch.placed, batch.entries, strict=True):
        yield pb.ReceiptRun(
            first_index=index,
            topic=topic,
            queue=queue,
            first_queue_offset=queue_offset,
            first_physical_offset=physical_offset,
            record_bytes=sizes,
            store_ms=store_ms,
            epoch=None if entry == last else _epoch(entry),
            incarnation=None if entry == last else _incarnation(entry),
            duplicate=duplicate,
        )
        index += len(sizes)


def _epoch(entry: EpochEntry | None) -> Epoch:
    return Epoch(0) if entry is None else entry.epoch


def _incarnation(entry: EpochEntry | None) -> int | None:
    return None if entry is None else entry.incarnation


def outcome_order(request: pb.GetPublishResultRequest) -> OutcomeOrder:
    """Checked like the publish it asks about."""
    sequence = request.sequence if request.HasField("sequence") else None
    producer_id = _producer_id(request.producer_id, sequence)
    if sequence is None:
        raise InvalidField("producer_id", "producer_id and sequence name the message; both are missing")
    return OutcomeOrder(producer_id, sequence, ack_from_pb(request.ack), _timeout_s(request), _sent_since(request))


def outcome_to_pb(outcome: SendOutcome, batch: StoredBatch | None) -> pb.GetPublishResultResponse:
    """With the receipt of a message that is stored."""
    return pb.GetPublishResultResponse(outcome=outcome.value, receipt=_receipt(batch) if batch is not None else None)


def stored_message_to_pb(batch: StoredBatch) -> pb.PublishResponse:
    """The receipt of a batch of one."""
    return pb.PublishResponse(receipt=_receipt(batch))


def _receipt(batch: StoredBatch) -> pb.Receipt:
    message, entry = batch.placed[0], batch.entries[0]
    epoch = _epoch(entry)
    return pb.Receipt(
        status=_STATUS_TO_PB[batch.status],
        asked=ACK_TO_PB[batch.asked],
        levels_reached=[ACK_TO_PB[level] for level in batch.levels_reached],
        copies=[pb.Copy(node=copy.node, state=_COPY_TO_PB[copy.state]) for copy in batch.copies],
        epoch=epoch,
        topic=message.topic,
        broker=batch.broker,
        queue=message.queue,
        queue_offset=message.queue_offset,
        physical_offset=message.physical_offset,
        record_bytes=message.size,
        token=encode_token(batch.broker, epoch, message.end, _incarnation(entry), size=message.size),
        duplicate=batch.duplicate,
        store_time=timestamp_to_pb(message.store_ms),
    )


def batch_refused_to_pb(batch_id: int, refusal: "Refusal") -> pb.PublishStreamResponse:
    """Nothing of the batch is in the log."""
    return pb.PublishStreamResponse(
        batch_id=batch_id,
        refused=pb.BatchRefused(
            code=refusal.code, reason=refusal.reason, message=refusal.message, metadata=refusal.metadata, index=refusal.index
        ),
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """A typed error as it crosses the wire inside a stream; made by `dittomq.rpc.status`."""

    code: int
    reason: str
    message: str
    metadata: Mapping[str, str]
    index: int | None
