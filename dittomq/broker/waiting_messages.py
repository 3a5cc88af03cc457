"""What retention must leave: messages that wait for their delivery or their transaction's end, as each replica sees them in its own log.

A delayed message that was not delivered for a day cannot be: its topic is gone. A half message whose transaction did not end in an hour has
no transaction any more: its master puts it aside after some 13 minutes. Both are said of the time in which a master wrote the log, and
count from the first record of the newest master: while nobody leads, nothing is delivered, and a new master begins with what waits.
"""

from typing import Final

from dittomq.commitlog.retention import RetentionFloor
from dittomq.commitlog.store import Store
from dittomq.delays import DELAY_QUEUES, OP_TOPIC, system_producer
from dittomq.errors import Refused
from dittomq.message import StoredMessage
from dittomq.offsets import PhysicalOffset
from dittomq.reads import MAX_LONG
from dittomq.transactions import HALF_TOPIC

_DELAYED: Final = "delayed messages"
_HALVES: Final = "transactions"
_OVERDUE_MS: Final = 86_400_000
_UNENDED_MS: Final = 3_600_000


def waiting_floors(store: Store) -> list[RetentionFloor]:
    """The first message of each queue that waits to be delivered, and the first half message that may. Blocks."""
    began_ms = _began_ms(store)
    found: list[RetentionFloor] = []
    for topic, queue, delay_ms in DELAY_QUEUES:
        if topic == OP_TOPIC or not store.has_queue(topic, queue):  # what a transaction's end delivers is the half message
            continue
        low, high = store.queue_range(topic, queue)
        last = store.last_delivered(system_producer(topic, queue))
        first = max(low, 0 if last is None else last + 1)
        if first >= high:
            continue
        message = _message(store, topic, queue, first)
        if message is None or store.newest_ms < max(message.store_ms + delay_ms, began_ms) + _OVERDUE_MS:
            found.append(_floor(store, _DELAYED, message))
    return found + _of_halves(store, began_ms)


def _of_halves(store: Store, began_ms: int) -> list[RetentionFloor]:
    """Of those that were stored in the last hour; while the master is younger than that, of the last hour before it too."""
    if not store.has_queue(HALF_TOPIC, 0):
        return []
    since_ms = store.newest_ms - _UNENDED_MS
    if since_ms < began_ms:
        low, end = store.queue_range_below(HALF_TOPIC, 0, store.epoch_history[-1].start if store.epoch_history else 0)
        if end > low:
            before = _message(store, HALF_TOPIC, 0, end - 1)
            since_ms = min(since_ms, 0 if before is None else before.store_ms - _UNENDED_MS)
    first = store.offset_at(HALF_TOPIC, 0, since_ms, MAX_LONG)
    if first is None or first >= store.queue_range(HALF_TOPIC, 0)[1]:
        return []
    return [_floor(store, _HALVES, _message(store, HALF_TOPIC, 0, first))]


def _began_ms(store: Store) -> int:
    """When the newest master stored its first record; now, by the log's own time, while it has stored none."""
    start = store.epoch_history[-1].start if store.epoch_history else PhysicalOffset(0)
    if start >= store.end:
        return store.newest_ms
    return (store.stored_ms_at(start) or 0) if start >= store.min_offset else 0


def _message(store: Store, topic: str, queue: int, offset: int) -> StoredMessage | None:
    """None where it is damaged, or dropped meanwhile."""
    try:
        return next(iter(store.read_queue(topic, queue, offset, 1, 1).messages), None)
    except Refused:
        return None


def _floor(store: Store, name: str, message: StoredMessage | None) -> RetentionFloor:
    return RetentionFloor(name, store.min_offset if message is None else message.physical_offset)
