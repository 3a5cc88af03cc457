"""What an outbox is told and what it commands: facts in the past tense, commands in the imperative."""

from collections.abc import Sequence
from dataclasses import dataclass

from dittomq.client.batches import Batch, Frame
from dittomq.errors import DittoError, Refused
from dittomq.receipts import FrameReceipt


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch wants to be sent."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """The master accepted a stream; nothing that it carries will lie below `log_end`."""

    log_end: int


@dataclass(frozen=True, slots=True)
class FrameStored:
    """The broker answered: stored."""

    frame_id: int
    receipt: FrameReceipt


@dataclass(frozen=True, slots=True)
class FrameRefused:
    """The broker answered: nothing of it is in the log. `index` None: it concerns the whole frame."""

    frame_id: int
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
    """Whoever offers a batch in this turn of the loop has done so."""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The stream is over and there will be no other: everything is settled now."""


Event = Appended | StreamOpened | FrameStored | FrameRefused | StreamEnded | Ticked | TurnEnded | Abandoned


@dataclass(frozen=True, slots=True)
class SendFrame:
    """Write the frame to the stream, after those before."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class EndStream:
    """Close the stream, then report StreamEnded with this problem."""

    problem: DittoError


@dataclass(frozen=True, slots=True)
class SettleStored:
    """The batch is in the log; `places` are the indexes of its messages in the receipt."""

    batch: Batch
    receipt: FrameReceipt
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class SettleNotStored:
    """Nothing of the batch is in any log."""

    batch: Batch
    cause: DittoError


@dataclass(frozen=True, slots=True)
class SettleUnknown:
    """The batch is in the log or not; `sequences` are those of its messages under `producer_id`."""

    batch: Batch
    producer_id: str
    sequences: Sequence[int]
    problem: DittoError


@dataclass(frozen=True, slots=True)
class Reroute:
    """The batch is bound to no group and surely not stored: another group may take it.

    If none can, offer it again; with a `problem`, which has lasted for too long, it is not stored.
    """

    batch: Batch
    problem: DittoError | None


Command = SendFrame | EndStream | SettleStored | SettleNotStored | SettleUnknown | Reroute
