"""What became of a send, without its messages: kept as long as the caller keeps the receipts, so it is small."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from dittomq.client.accumulator_events import ResolveNotStored, ResolveStored, ResolveUnknown
from dittomq.client.batches import PendingSend
from dittomq.errors import AckLevelNotReached, DittoError, NotStored, OutcomeHandle, OutcomeUnknown
from dittomq.message import PutStatus, Receipt
from dittomq.receipts import BatchReceipt

Failure = NotStored | OutcomeUnknown | AckLevelNotReached


class Stored(NamedTuple):
    """In the log; the message at `position` of the send lies at `places[position]` of the batch. A tuple: most sends end so."""

    receipt: BatchReceipt
    places: Sequence[int]

    def item(self, position: int, index: int) -> Receipt:
        """The receipt of one message."""
        return self.receipt.receipt(self.places[position])

    @property
    def weak(self) -> bool:
        """Stored, but the level asked was not reached."""
        return self.receipt.status is not PutStatus.PUT_OK


@dataclass(frozen=True, slots=True)
class NotStoredResult:
    """Surely not stored."""

    topics: Sequence[str]
    cause: DittoError

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


@dataclass(frozen=True, slots=True)
class PartlyRefused:
    """Messages at the positions in `refused` were refused by name and are surely not stored; `rest` is what became of the others."""

    refused: Mapping[int, NotStoredResult]
    rest: Stored | NotStoredResult | Unknown

    def item(self, position: int, index: int) -> Receipt | NotStored | OutcomeUnknown:
        """The receipt or the error of one message."""
        refused = self.refused.get(position)
        if refused is not None:
            return refused.item(0, index)
        return self.rest.item(position - sum(place < position for place in self.refused), index)


Outcome = Stored | NotStoredResult | Unknown | PartlyRefused


def outcome_of(resolved: ResolveStored | ResolveNotStored | ResolveUnknown, broker: str) -> Outcome:
    """Keep what is needed of a settled send."""
    rest = _together(resolved, broker)
    refused = resolved.send.refused
    if refused is None:
        return rest
    return PartlyRefused({place: NotStoredResult((message.topic,), cause) for place, (message, cause) in refused.items()}, rest)


def failure_in(outcome: NotStoredResult | Unknown | PartlyRefused) -> NotStored | OutcomeUnknown:
    """The error of the first message that failed."""
    if isinstance(outcome, PartlyRefused):
        first = min(outcome.refused)
        return outcome.refused[first].item(0, first)
    return outcome.item(0, 0)


def _together(resolved: ResolveStored | ResolveNotStored | ResolveUnknown, broker: str) -> Stored | NotStoredResult | Unknown:
    match resolved:
        case ResolveStored(_, receipt, places):
            return Stored(receipt, places if isinstance(places, range) else array("H", places))
        case ResolveNotStored(send, cause):
            return NotStoredResult(_topics(send), cause)
        case ResolveUnknown(send, producer_id, sequences, problem):
            return Unknown(broker, producer_id, array("q", sequences), _topics(send), array("i", send.queues), problem)
        case _:
            assert_never(resolved)


def _topics(send: PendingSend) -> tuple[str, ...]:
    return tuple(message.topic for message in send.messages)
