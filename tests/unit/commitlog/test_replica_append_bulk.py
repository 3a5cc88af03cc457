"""A slave that takes many records at once and one that takes each by itself make the same store."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.records.format import UNIT
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.epoch_history import EpochEntry
from dittomq.message import Draft
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.stores import SMALL, Machine, draft, frame, open_epoch, whole_log

OPTIONS = replace(SMALL, segment_bytes=64 * 1024)
ALL, NONE = 1, 1 << 40
"""From how many records on they are taken at once."""


def master_log(chance: random.Random) -> bytes:
    """A log of two segments: several queues, producers, tags and keys."""
    store = Machine(chance, OPTIONS).open()
    open_epoch(store)
    sequences = dict.fromkeys("pqr", 0)
    for now in range(90):
        producer, queue = chance.choice("pqr"), chance.randrange(3)
        count = chance.randrange(1, 12)
        drafts = [
            with_keys(
                draft(chance.choice(("orders", "a")), queue, chance.randbytes(chance.randrange(120)), tag, identity=(producer, first)),
                chance,
            )
            for first, tag in enumerate(chance.choices(("", "", "blue", "red"), k=count), sequences[producer])
        ]
        if chance.random() < 0.2:
            store.append([AppendBatch([draft("plain", queue, b"x") for _ in range(count)])], now)
        store.append([AppendBatch(drafts, producer, sequences[producer])], now)
        sequences[producer] += count
    return whole_log(store)


def with_keys(message: Draft, chance: random.Random) -> Draft:
    """With keys, now and then, and rarely with so many that they are read again from the log."""
    if chance.random() < 0.9:
        return message
    return message._replace(properties=message.properties + b"KEYS\x01k1 k2" + chance.choice((b"", b" long" * 150)) + b"\x02")


def follow(machine: Machine) -> Store:
    store = machine.open()
    store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
    return store


def lead(chance: random.Random, machine: Machine, log: bytes) -> list[object]:
    """Copy the log in chunks cut anywhere, dispatch to anywhere, checkpoint, be killed, and be cut; tells what was seen on the way."""
    store, seen = follow(machine), list[object]()
    while store.end < len(log):
        at = store.written_raw
        segment_end = store.segment_of(at)[1]
        seen.append(store.write_chunk(at, log[at : min(segment_end, at + chance.randrange(1, 30_000))]))
        seen.append(store.dispatch(chance.randrange(store.end + 1)))
        match chance.randrange(8):
            case 0:
                store.checkpoint()
            case 1 | 2:
                if chance.random() < 0.5:
                    store.sync()
                    store.persist_recovery_point(store.flushed, store.applied)
                machine.kill()
                store = machine.open()
            case 3:
                store.truncate(store.end)
                store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
        seen.append((store.end, store.applied, store.notes, store.damaged, [store.queue_range(*key) for key in store.queues()]))
    store.dispatch(store.end)
    store.close(clean=True)
    return seen


@pytest.mark.tier("test")
@pytest.mark.parametrize("bound", [65_536, 90])
@pytest.mark.parametrize("seed", range(4))
def test_both_ways_see_and_leave_the_same(seed: int, bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.dispatch.MAX_WAITING_UNITS", bound)
    log = master_log(random.Random(seed))
    seen, left = [], []
    for few in (ALL, NONE):
        monkeypatch.setattr("dittomq.commitlog.records.batch_index.FEW", few)
        machine = Machine(random.Random(7), OPTIONS)
        seen.append(lead(random.Random(seed), machine, log))
        left.append(
            {
                path: data
                for path, data in machine.files().items()
                if path.startswith(("commitlog/", "consumequeue/", "index/", "dittomq/producers", "dittomq/checkpoint"))
            }
        )

    assert seen[0] == seen[1], f"seed {seed}"
    assert left[0] == left[1], f"seed {seed}"
    assert any(path.startswith("index/") for path in left[0])
    assert len(left[0]) > 10


def test_what_was_dispatched_no_longer_counts_as_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.dispatch.MAX_WAITING_UNITS", 150)
    master = Machine(random.Random(1), OPTIONS).open()
    open_epoch(master)
    machine = Machine(random.Random(2), OPTIONS)
    slave = follow(machine)
    for now in range(5):
        group = master.append([frame(*[b"m"] * 90)], now)
        slave.write_chunk(group.start, group.pieces[0][1])
        inode = machine.disk.names.files["commitlog/00000000000000000000"]
        inode.write(memoryview(bytes(group.end)), 0, machine.chance)  # who reads the log again finds nothing
        slave.dispatch(slave.end - 1_000)
        slave.dispatch(slave.end)

    queue = b"".join(data for path, data in sorted(machine.files().items()) if path.startswith("consumequeue/orders/0/"))
    sizes = [size for _, size, _ in UNIT.iter_unpack(queue)]
    assert len(sizes) == 450
    assert all(sizes)
