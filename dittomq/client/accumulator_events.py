"""What an accumulator is told and what it commands: facts in the past tense, commands in the imperative."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dittomq.client.batches import PendingSend, ProducerBatch
from dittomq.errors import DittoError, Refused
from dittomq.receipts import BatchReceipt


@dataclass(frozen=True, slots=True)
class Appended:
    """Sends want to be sent: all that were offered in one turn, in that order."""

    sends: Sequence[PendingSend]


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The master accepted a stream; nothing that it carries will lie below `log_end`."""

    log_end: int


@dataclass(frozen=True, slots=True)
class BatchStored:
    """The broker answered: stored."""

    batch_id: int
    receipt: BatchReceipt


@dataclass(frozen=True, slots=True)
class BatchRefused:
    """The broker answered: nothing of it is in the log. `index` None: it concerns the whole batch."""

    batch_id: int
    error: Refused
    index: int | None


@dataclass(frozen=True, slots=True)
class StreamEnded:
    """The stream is over, or could not be opened. No answer of it will come any more."""

    problem: DittoError


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """Whoever offers a send in this turn of the loop has done so."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The stream is over and there will be no other: everything is settled now."""


Event = Appended | StreamOpened | BatchStored | BatchRefused | StreamEnded | Ticked | TurnEnded | Abandoned


@dataclass(frozen=True, slots=True)
class SendBatch:
    """Write the batch to the stream, after those before."""

    batch: ProducerBatch


@dataclass(frozen=True, slots=True)
class EndStream:
    """Close the stream, then report StreamEnded with this problem."""

    problem: DittoError


class ResolveStored(NamedTuple):
    """The send is in the log; `places` are the indexes of its messages in the receipt. A tuple: most sends end so."""

    send: PendingSend
    receipt: BatchReceipt
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class ResolveNotStored:
    """Nothing of the send is in any log."""

    send: PendingSend
    cause: DittoError


@dataclass(frozen=True, slots=True)
class ResolveUnknown:
    """The send is in the log or not; `sequences` are those of its messages under `producer_id`."""

    send: PendingSend
    producer_id: str
    sequences: Sequence[int]
    problem: DittoError


@dataclass(frozen=True, slots=True)
class Reroute:
    """The send is bound to no group and surely not stored: another group may take it.

    If none can, offer it again; with a `problem`, which has lasted for too long, it is not stored.
    """

    send: PendingSend
    problem: DittoError | None


Command = SendBatch | EndStream | ResolveStored | ResolveNotStored | ResolveUnknown | Reroute
