"""Queues that RocketMQ began anew: it counts the messages of a topic from 0 again after it deleted it, or after we did.

What was said of the messages before then, that they are deleted or dropped, does not hold for those behind. A minimum that is not
higher than the number of messages that the queue had had speaks of those before; whoever deletes the topic later says a higher one.
"""

from dataclasses import replace

from dittomq.commitlog import log_start_state
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.queues.index_checkpoint import QueueBound


def persist(storage: Storage, index: QueueIndex) -> None:
    """Durably take back what was said of the queues that have begun anew since this was last called. Nobody dispatches meanwhile."""
    fresh = {key: queue for key, queue in index.queues.items() if queue.reset_at >= 0}
    if not fresh:
        return
    minimums = index_checkpoint.load_minimums(storage)
    kept = dict(minimums)
    for key, queue in fresh.items():
        if key not in kept or kept[key].low <= queue.outlived:
            kept[key] = QueueBound(queue.outlived, queue.reset_at, is_reset=True)
    if kept != minimums:
        index_checkpoint.save_minimums(storage, kept)
    dropped = log_start_state.load(storage)
    if fresh.keys() & dropped.first_offsets.keys():
        log_start_state.save(
            storage, replace(dropped, first_offsets={key: low for key, low in dropped.first_offsets.items() if key not in fresh})
        )
    for queue in fresh.values():
        queue.reset_at = -1


def apply_minimums(storage: Storage, index: QueueIndex, end: int) -> None:
    """Hide what deleted topics held; what was said of records that are now cut must not hide their successors."""
    persist(storage, index)
    minimums = index_checkpoint.load_minimums(storage)
    kept = {}
    for key, minimum in minimums.items():
        queue = index.queue(*key)
        if minimum.is_reset and minimum.end < end:
            kept[key] = minimum
            queue.outlived = max(queue.outlived, minimum.low)
        elif not minimum.is_reset:
            kept[key] = minimum if minimum.end <= end else QueueBound(min(minimum.low, queue.next), end)
            index.raise_minimum(queue, kept[key].low)
    if kept != minimums:
        index_checkpoint.save_minimums(storage, kept)
