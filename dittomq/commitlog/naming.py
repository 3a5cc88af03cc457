"""Which messages lie in damaged ranges of the log, as far as the queues name them: for who must know what is lost."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from dittomq.commitlog.dropping import first_at
from dittomq.commitlog.queues.checkpoint import Leap
from dittomq.commitlog.queues.queue_index import BLANK_UNIT_BYTES, Queue, QueueIndex
from dittomq.copies import MessageRun
from dittomq.offsets import QueueOffset

MAX_RUNS = 1_000
"""So many are named of a range."""
MAX_SEARCHES = 100_000
"""So often a queue is searched for what lies in a range; what lies in the ranges behind is not named."""
_UNITS_AT_ONCE = 1_024


class Named(NamedTuple):
    """`more`: others may lie there that no unit names, or that are too many."""

    messages: tuple[MessageRun, ...]
    more: bool


def messages_in(index: QueueIndex, ranges: Sequence[tuple[int, int]]) -> list[Named]:
    """Of each range of the log. Raises OSError where the disk does not give a queue's units."""
    leap = index.leapt(0)
    queues = [queue for key, queue in sorted(index.queues.copy().items()) if queue.min < queue.max or key in leap.nexts]
    searched = MAX_SEARCHES // max(1, len(queues))
    return [_messages_in(index, queues, leap, *each) if number < searched else Named((), more=True) for number, each in enumerate(ranges)]


def _messages_in(index: QueueIndex, queues: Sequence[Queue], leap: Leap, start: int, end: int) -> Named:
    runs: list[MessageRun] = []
    more = any(low < end and start < high for low, high in leap.strange)
    for queue in queues:
        at, stop = first_at(index, queue, start), first_at(index, queue, end)
        more |= end > leap.low and stop >= queue.max < leap.nexts.get((queue.topic, queue.queue), 0)  # numbers that it may have there
        found: list[int] = []
        while at <= stop:  # the one behind may be a hole, whose message lies nobody knows where
            units = index.units(queue, at, min(_UNITS_AT_ONCE, stop + 1 - at))
            if not units:
                more |= at < stop
                break
            is_message = [size not in {0, BLANK_UNIT_BYTES} for _, size, _ in units]
            found += [number for number, unit in enumerate(units, at) if is_message[number - at] and start <= unit[0] < end]
            more |= not all(is_message)
            at += len(units)
        for _, neighbours in groupby(enumerate(found), key=lambda each: each[1] - each[0]):
            offsets = [offset for _, offset in neighbours]
            runs.append(MessageRun(queue.topic, queue.queue, QueueOffset(offsets[0]), QueueOffset(offsets[-1] + 1)))
        if len(runs) > MAX_RUNS:
            return Named(tuple(runs[:MAX_RUNS]), more=True)
    return Named(tuple(runs), more)
