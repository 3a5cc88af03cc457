"""Logs whose first segments are dropped."""

from dittomq.commitlog.store import Store
from tests.support.stores import SMALL, Machine, filled, frame, queues_of

SEGMENT = SMALL.segment_bytes


def settled(machine: Machine, frames: int = 60) -> Store:
    """A store of several segments, all of it confirmed and in the queues; one queue has messages in the first segment only."""
    store = machine.lead()
    store.append([frame(b"early", topic="early")], 0)
    store.close(clean=True)
    store = filled(machine, frames)
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    return store


def read_all(store: Store) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Offset and position of every message that the queues hold."""
    found = {}
    for topic, queue in store.queues():
        at, high = store.queue_range(topic, queue)
        seen = []
        while at < high:
            part = store.read_queue(topic, queue, at, 7, 10_000)
            seen += [(int(message.queue_offset), int(message.physical_offset)) for message in part.messages]
            at = part.next_offset
        found[topic, queue] = seen
    return found


def left_of(log: bytes, begin: int) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """The same, as the whole log says, without what lies below `begin`."""
    return {key: [each for each in entries if each[1] >= begin] for key, entries in queues_of(log, SEGMENT).items()}


def log_from(store: Store, begin: int) -> bytes:
    parts, at = [], begin
    while at < store.end:
        parts.append(store.read(at, 1 << 20))
        at += len(parts[-1])
    return b"".join(parts)
