"""What became of a whole batch of messages: one short value, from which the receipt of each message is made when somebody looks at it."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from dittomq.message import Ack, Copy, PutStatus, Receipt
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.tokens import encode_token


class ReceiptRun(NamedTuple):
    """Neighbouring messages of one queue. `ends[i]` is where record i begins, `ends[i + 1]` where it ends, from the run's first byte.

    `epoch` is that of the master which stored them, and `incarnation` the one of its opening, None where the broker does not tell it;
    `duplicate`: an earlier try did.
    """

    first_index: int
    topic: str
    queue: int
    first_queue_offset: QueueOffset
    first_physical_offset: PhysicalOffset
    ends: "array[int]"
    store_ms: int
    epoch: Epoch
    duplicate: bool
    incarnation: int | None = None


@dataclass(frozen=True, slots=True)
class BatchReceipt:
    """A batch that is in the log. The runs cover its messages without a hole, in order."""

    status: PutStatus
    asked: Ack
    levels_reached: frozenset[Ack]
    copies: tuple[Copy, ...]
    broker: str
    runs: tuple[ReceiptRun, ...]

    def __len__(self) -> int:
        """Messages in the batch."""
        return self.runs[-1].first_index + len(self.runs[-1].ends) - 1 if self.runs else 0

    def receipt(self, index: int) -> Receipt:
        """The receipt of the message at `index` of the batch."""
        runs = self.runs
        if index < 0 or not runs:
            raise IndexError(index)
        run = runs[0] if len(runs) == 1 else runs[bisect_left(runs, (index + 1,)) - 1]  # by `first_index`, which comes first
        place = index - run.first_index
        if place >= len(run.ends) - 1:
            raise IndexError(index)
        start, end = run.ends[place], run.ends[place + 1]
        return Receipt(
            status=self.status,
            asked=self.asked,
            levels_reached=self.levels_reached,
            copies=self.copies,
            epoch=run.epoch,
            broker=self.broker,
            topic=run.topic,
            queue=run.queue,
            queue_offset=QueueOffset(run.first_queue_offset + place),
            physical_offset=PhysicalOffset(run.first_physical_offset + start),
            record_bytes=end - start,
            store_ms=run.store_ms,
            token=encode_token(self.broker, run.epoch, PhysicalOffset(run.first_physical_offset + end), run.incarnation, size=end - start),
            duplicate=run.duplicate,
        )


def record_ends(record_bytes: Iterable[int]) -> "array[int]":
    """Sizes as a run keeps them."""
    return array("q", accumulate(record_bytes, initial=0))
