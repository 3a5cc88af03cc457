"""What became of a batch, without its messages: kept as long as the caller keeps the receipts, so it is small."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from dittomq.client.outbox_events import SettleNotStored, SettleStored, SettleUnknown
from dittomq.errors import DittoError, LevelNotReached, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.message import PutStatus, Receipt
from dittomq.receipts import FrameReceipt

Failure = NotStored | OutcomeUnknown | LevelNotReached


@dataclass(frozen=True, slots=True)
class Stored:
    """In the log; the message at `position` of the batch lies at `places[position]` of the frame."""

    receipt: FrameReceipt
    places: Sequence[int]

    def item(self, position: int, index: int) -> Receipt:
        """The receipt of one message."""
        return self.receipt.receipt(self.places[position])

    @property
    def weak(self) -> bool:
        """Stored, but the level asked was not reached."""
        return self.receipt.status is not PutStatus.PUT_OK


@dataclass(frozen=True, slots=True)
class Absent:
    """Surely not stored. The message at `culprit` caused it, where one did."""

    topics: Sequence[str]
    cause: DittoError
    culprit: int = 0

    def item(self, position: int, index: int) -> NotStored:
        """The error of one message; `index` is its place in what was published together."""
        return NotStored(self.topics[position], self.cause, index)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stored or not."""

    broker: str
    producer_id: str
    sequences: Sequence[int]
    topics: Sequence[str]
    queues: Sequence[int]
    problem: DittoError

    def item(self, position: int, index: int) -> OutcomeUnknown:
        """The error of one message."""
        handle = OutcomeHandle(self.broker, self.producer_id, self.sequences[position], self.topics[position], self.queues[position])
        return OutcomeUnknown(handle, str(self.problem))


Outcome = Stored | Absent | Unknown


def outcome_of(settled: SettleStored | SettleNotStored | SettleUnknown, broker: str) -> Outcome:
    """Keep what is needed of a settled batch."""
    match settled:
        case SettleStored(_, receipt, places):
            return Stored(receipt, places if isinstance(places, range) else array("H", places))
        case SettleNotStored(batch, cause, culprit):
            return Absent(_topics(message.topic for message in batch.messages), cause, culprit)
        case SettleUnknown(batch, producer_id, sequences, problem):
            topics = _topics(message.topic for message in batch.messages)
            return Unknown(broker, producer_id, array("q", sequences), topics, array("i", batch.queues), problem)
        case _:
            assert_never(settled)


def _topics(topics: Iterable[str]) -> tuple[str, ...]:
    return tuple(topics)
