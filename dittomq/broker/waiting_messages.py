"""What retention must leave: messages that wait for their delivery, as each replica sees them in its own log."""

from dittomq.commitlog.retention import RetentionFloor
from dittomq.commitlog.store import Store
from dittomq.delays import DELAY_QUEUES, OP_TOPIC, system_producer
from dittomq.errors import Refused

_NAME = "delayed messages"
_OVERDUE_MS = 86_400_000
"""What was not delivered for so long cannot be: its topic is gone."""


def waiting_floors(store: Store) -> list[RetentionFloor]:
    """The first message of each queue that waits to be delivered. Blocks."""
    found: list[RetentionFloor] = []
    for topic, queue, delay_ms in DELAY_QUEUES:
        if topic == OP_TOPIC or not store.has_queue(topic, queue):  # what ends a transaction is dealt with at once
            continue
        low, high = store.queue_range(topic, queue)
        last = store.last_delivered(system_producer(topic, queue))
        first = max(low, 0 if last is None else last + 1)
        if first >= high:
            continue
        try:
            messages = store.read_queue(topic, queue, first, 1, 1).messages
        except Refused:  # damaged here
            found.append(RetentionFloor(_NAME, store.min_offset))
            continue
        found += [RetentionFloor(_NAME, each.physical_offset, until_ms=each.store_ms + delay_ms + _OVERDUE_MS) for each in messages]
    return found
