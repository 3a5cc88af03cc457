"""Harm to the bytes of records on a disk, and what a store says and serves behind it."""

from collections.abc import Callable

from dittomq.commitlog.records.format import scan
from dittomq.commitlog.store import Store
from dittomq.errors import CorruptRecord
from tests.support.stores import SMALL, Machine, filled, whole_log

SECTOR, PAGE = 512, 4_096
Harm = Callable[[bytearray, int, int], None]


def flips(field: int, bit: int) -> Harm:
    def harm(log: bytearray, start: int, _: int) -> None:
        log[start + field] ^= 1 << bit

    return harm


def loses(at: int, size: int) -> Harm:
    """A write that the disk called done and never did."""

    def harm(log: bytearray, start: int, end: int) -> None:
        low = start + at
        log[low : min(low + size, end)] = bytes(min(size, end - low))

    return harm


def misdirects(log: bytearray, start: int, end: int) -> None:
    """Another record's bytes, whole and with their checksum, where this one was."""
    size = end - start
    other = bytes(log).find(log[start : start + 8], end)
    log[start:end] = log[other : other + size]


HARMS = {
    "size, lowest bit": flips(3, 0),
    "size, sign": flips(0, 7),
    "size, huge": flips(1, 6),
    "magic": flips(5, 3),
    "body checksum": flips(9, 2),
    "queue": flips(15, 0),
    "queue offset": flips(27, 4),
    "position": flips(35, 1),
    "body length": flips(86, 1),
    "body": flips(300, 5),
    "a lost sector": loses(SECTOR // 2, SECTOR),
    "a lost record": loses(0, PAGE),
    "a misdirected record": misdirects,
}


def entries(log: bytes) -> list[tuple[int, int]]:
    """Where each record begins and ends."""
    found = []
    for base in range(0, len(log), SMALL.segment_bytes):
        seen = scan(log[base : base + SMALL.segment_bytes], base, base + SMALL.segment_bytes)
        found += [(entry.start, entry.end) for entry in seen.entries if entry.queue >= 0]
    return found


def harmed(machine: Machine, harm: Harm) -> tuple[bytes, tuple[int, int]]:
    """A store whose fifth large record behind the checkpoint is harmed on the disk; its log as it was, and where the harm is."""
    store = filled(machine)
    log, applied = whole_log(store), store.applied
    start, end = [each for each in entries(log) if each[0] >= applied and each[1] - each[0] > 900][4]
    bad = bytearray(log)
    harm(bad, start, end)
    machine.kill()
    for base in range(0, len(log), SMALL.segment_bytes):
        inode = machine.disk.names.files[f"commitlog/{base:020d}"]
        inode.write(memoryview(bad[base : base + SMALL.segment_bytes]), 0, machine.chance)
        inode.sync()
    return log, (start, end)


def served(store: Store) -> tuple[list[bytes], int]:
    """All bodies that the queues give, and how many messages they say are damaged."""
    bodies, damaged = [], 0
    for topic, queue in store.queues():
        at, stop = map(int, store.queue_range(topic, queue))
        while at < stop:
            try:
                part = store.read_queue(topic, queue, at, 1, 10_000)
            except CorruptRecord:
                damaged, at = damaged + 1, at + 1
            else:
                bodies += [message.body for message in part.messages]
                at = part.next_offset
    return bodies, damaged
