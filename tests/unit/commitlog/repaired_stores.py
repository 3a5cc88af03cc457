"""Stores whose bytes rot, and what they hold once they are repaired."""

from dittomq.commitlog.store import Store
from dittomq.epoch_history import EpochEntry
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.record_damage import Harm, entries, served
from tests.support.stores import SMALL, Machine, queues_of, whole_log

SEGMENT = SMALL.segment_bytes


def follow(store: Store) -> Store:
    store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
    return store


def rot(machine: Machine, log: bytes, harm: Harm, start: int, *, end: int) -> None:
    """Change what the disk holds of a record, durably."""
    bad = bytearray(log)
    harm(bad, start, end)
    base = start - start % SEGMENT
    inode = machine.disk.names.files[f"commitlog/{base:020d}"]
    inode.write(memoryview(bad[base : base + SEGMENT]), 0, machine.chance)
    inode.sync()


def copy(store: Store, log: bytes, holes: list[tuple[int, int]], start: int = 0) -> None:
    """What a slave receives: the log in chunks of whole records, without the missing ranges."""
    at = start
    while at < len(log):
        over = next((end for low, end in holes if low == at), None)
        if over is not None:
            store.skip_range(at, over)
            at = over
            continue
        borders = [each for pair in entries(log) for each in pair if each > at]
        stop = min([low for low, _ in holes if low > at] + [at - at % SEGMENT + SEGMENT] + borders[8:9] + [len(log)])
        store.write_chunk(at, log[at:stop])
        at = stop


def expected(log: bytes) -> dict[tuple[str, int], int]:
    return {key: len(units) for key, units in queues_of(log, SEGMENT).items()}


def assert_whole(store: Store, log: bytes) -> None:
    """The log is what it was, every message is served from its place, and every sequence is known."""
    assert store.damaged == []
    assert whole_log(store) == log
    store.dispatch(store.end)
    bodies, damaged = served(store)
    assert (len(bodies), damaged) == (sum(expected(log).values()), 0)
    assert {key: store.queue_range(*key)[1] for key in store.queues()} == expected(log)
