"""Bodies full of what looks like the beginning of a record: no store calls itself damaged for them, or reads itself for hours."""

import random
import struct
from dataclasses import replace

import pytest

from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import StoreFault, verify
from dittomq.commitlog.records.format import MAGIC_1, MAX_RECORD_BYTES
from dittomq.commitlog.store import Store
from tests.support.intercepted_reads import hearing
from tests.support.stores import SMALL, Machine, frame, open_epoch

OPTIONS = replace(SMALL, segment_bytes=16 * 1024 * 1024)
LOG = f"commitlog/{0:020d}"
_BODY_AT = 88


def headers(start: int, size: int, claimed: int = 100) -> bytes:
    """Bytes from `start` on full of headers, each of which names the very place where it lies."""
    found = bytearray(size)
    for at in range(0, size - 36, 36):
        struct.pack_into(">iI", found, at, claimed, MAGIC_1)
        struct.pack_into(">q", found, at + 28, start + at)
    return bytes(found)


def opened(machine: Machine) -> tuple[list[int], Store]:
    """A store, and how many bytes each read of its log takes."""
    reads: list[int] = []
    door = hearing(machine.storage(), lambda path, _, length: reads.append(length if path == LOG else 0))
    return reads, Store.open(door, OPTIONS, chance=random.Random(1), wall_ms=1_000)


def filled(machine: Machine, *, behind: int, claimed: int = 100) -> tuple[list[int], Store, int, int]:
    """A store with such a message and `behind` bytes of others; where the message lies."""
    reads, store = opened(machine)
    open_epoch(store)
    store.append([frame(b"hello")], 1)
    receipt = store.append([frame(headers(store.end + _BODY_AT, 64 * 1024, claimed))], 2)
    while store.end < receipt.end + behind:
        store.append([frame(bytes(60_000))], 3)
    store.sync()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    return reads, store, receipt.start, receipt.end


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(1), OPTIONS)


def test_search_that_starts_in_such_a_body_finds_no_damage(machine: Machine) -> None:
    """It reads the log a few times."""
    reads, store, start, end = filled(machine, behind=6 << 20)
    position = (start + end) // 2 + MAX_RECORD_BYTES
    reads.clear()

    store.verify(position, position + 1)

    assert store.damaged == []
    assert sum(reads) < 8 * store.end


def test_damage_behind_such_a_body_is_noted_where_it_is(machine: Machine) -> None:
    _, store, start, end = filled(machine, behind=6 << 20)
    position = (start + end) // 2 + MAX_RECORD_BYTES
    machine.disk.names.files[LOG].write(memoryview(b"\xee"), position, machine.chance)

    store.verify(position, position + 1)

    [damaged] = store.damaged
    assert damaged.start <= position < damaged.end
    assert damaged.end - damaged.start < 61_000


@pytest.mark.parametrize("behind", [0, 1 << 20])
def test_a_store_with_such_a_message_is_whole(machine: Machine, behind: int) -> None:
    _, store, _, _ = filled(machine, behind=behind)
    store.close(clean=True)

    report = verify(open_on_disk(machine.storage(), "here"))

    assert (report.whole, report.counts) == (True, {})


@pytest.mark.tier("test")
@pytest.mark.parametrize("claimed", [100, MAX_RECORD_BYTES], ids=["short", "long"])
def test_such_a_message_that_is_damaged_costs_a_few_readings(machine: Machine, claimed: int) -> None:
    reads, store, start, end = filled(machine, behind=6 << 20, claimed=claimed)
    machine.disk.names.files[LOG].write(memoryview(b"\xee"), start + _BODY_AT + 20, machine.chance)
    reads.clear()

    store.verify(start, end)

    assert store.damaged == [(start, end)]
    assert sum(reads) < 8 * store.end
    store.close(clean=False)
    report = verify(open_on_disk(machine.storage(), "here"))
    assert {each.position for each in report.findings if each.kind is StoreFault.DAMAGED} >= {start}


def test_a_start_reads_such_a_damaged_message_a_few_times(machine: Machine) -> None:
    _, store, start, end = filled(machine, behind=1 << 20)
    store.close(clean=False)
    machine.disk.names.files[LOG].write(memoryview(b"\xee"), start + _BODY_AT + 20, machine.chance)

    reads, again = opened(machine)

    assert again.damaged == [(start, end)]
    assert sum(reads) < 2 * OPTIONS.segment_bytes
