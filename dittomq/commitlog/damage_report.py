"""Which messages lie in damaged ranges of the log, as far as the queues name them: for who must know what is lost."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from dittomq.commitlog.log_start_state import first_at
from dittomq.commitlog.queues.consume_queue import BLANK_UNIT_BYTES, ConsumeQueue, QueueIndex
from dittomq.commitlog.queues.index_checkpoint import OffsetReservation
from dittomq.copies import MessageSpan
from dittomq.offsets import QueueOffset

MAX_RUNS = 1_000
"""So many are named of a range."""
MAX_RUNS_IN_ALL = 20_000
"""Once so many are named, none is of the ranges behind: an answer has to fit in a message."""
MAX_SEARCHES = 100_000
"""So often a queue is searched for what lies in a range; what lies in the ranges behind is not named."""
_UNITS_AT_ONCE = 1_024


class NamedMessages(NamedTuple):
    """`more`: others may lie there that no unit names, or that are too many."""

    messages: tuple[MessageSpan, ...]
    more: bool


def messages_in(index: QueueIndex, ranges: Sequence[tuple[int, int]]) -> list[NamedMessages]:
    """Of each range of the log. Raises OSError where the disk does not give a queue's units."""
    reservation = index.reservation(0)
    queues = [queue for key, queue in sorted(index.queues.copy().items()) if queue.min < queue.max or key in reservation.nexts]
    searched, left = MAX_SEARCHES // max(1, len(queues)), MAX_RUNS_IN_ALL
    found: list[NamedMessages] = []
    for number, each in enumerate(ranges):
        found.append(_messages_in(index, queues, reservation, each) if number < searched and left > 0 else NamedMessages((), more=True))
        left -= len(found[-1].messages)
    return found


def _messages_in(
    index: QueueIndex, queues: Sequence[ConsumeQueue], reservation: OffsetReservation, damaged: tuple[int, int]
) -> NamedMessages:
    start, end = damaged
    runs: list[MessageSpan] = []
    more = any(low < end and start < high for low, high in reservation.strange)

    def lies_in_it(position: int | None) -> bool | None:
        return None if position is None else start <= position < end

    for queue in queues:
        at, stop = first_at(index, queue, start), first_at(index, queue, end)
        more |= end > reservation.low and stop >= queue.max < reservation.nexts.get(
            (queue.topic, queue.queue), 0
        )  # numbers that it may have there
        for lies_there, neighbours in groupby(_places(index, queue, at, stop), lies_in_it):
            first, at = at, at + sum(1 for _ in neighbours)  # there may be millions
            more |= lies_there is None
            if lies_there:
                runs.append(MessageSpan(queue.topic, queue.queue, QueueOffset(first), QueueOffset(at)))
            if len(runs) > MAX_RUNS:
                return NamedMessages(tuple(runs[:MAX_RUNS]), more=True)
    return NamedMessages(tuple(runs), more)


def _places(index: QueueIndex, queue: ConsumeQueue, at: int, stop: int) -> Iterator[int | None]:
    """Of each number up to `stop`, which may be a hole, where its message lies; None where nobody knows that."""
    while at <= stop:
        units = index.units(queue, at, min(_UNITS_AT_ONCE, stop + 1 - at))
        if not units:
            if at < stop:
                yield None
            return
        yield from (None if size in {0, BLANK_UNIT_BYTES} else position for position, size, _ in units)
        at += len(units)
