"""Bodies full of what looks like the beginning of a record: no store calls itself damaged for them, or reads itself for hours."""

import random
import struct
from dataclasses import replace

import pytest

from dittomq.commitlog.disk.storage import File
from dittomq.commitlog.offline.inspect import open_on_disk
from dittomq.commitlog.offline.verifying import Kind, verify
from dittomq.commitlog.records.format import MAGIC_1, MAX_RECORD_BYTES
from dittomq.commitlog.store import Store
from tests.store.test_bad_sectors import BadSectors
from tests.support.stores import SMALL, Machine, frame, open_epoch

OPTIONS = replace(SMALL, segment_bytes=16 * 1024 * 1024)
LOG = f"commitlog/{0:020d}"
_BODY_AT = 88


class CountedReads(BadSectors):
    """A door to a disk that counts what is read of the log."""

    read_bytes = 0

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        file = self._storage.open(path, create=create, readonly=readonly)
        return CountedFile(self, file) if path == LOG else file  # type: ignore[return-value]


class CountedFile:
    def __init__(self, door: CountedReads, file: File) -> None:
        self._door = door
        self._file = file

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def pread(self, length: int, offset: int) -> bytes:
        found = self._file.pread(length, offset)
        self._door.read_bytes += len(found)
        return found


def headers(start: int, size: int, claimed: int = 100) -> bytes:
    """Bytes from `start` on full of headers, each of which names the very place where it lies."""
    found = bytearray(size)
    for at in range(0, size - 36, 36):
        struct.pack_into(">iI", found, at, claimed, MAGIC_1)
        struct.pack_into(">q", found, at + 28, start + at)
    return bytes(found)


def opened(machine: Machine) -> tuple[CountedReads, Store]:
    door = CountedReads(machine)
    return door, Store.open(door, OPTIONS, chance=random.Random(1), wall_ms=1_000)  # type: ignore[arg-type]


def filled(machine: Machine, *, behind: int, claimed: int = 100) -> tuple[CountedReads, Store, int, int]:
    """A store with such a message and `behind` bytes of others; where the message lies."""
    door, store = opened(machine)
    open_epoch(store)
    store.append([frame(b"hello")], 1)
    receipt = store.append([frame(headers(store.end + _BODY_AT, 64 * 1024, claimed))], 2)
    while store.end < receipt.end + behind:
        store.append([frame(bytes(60_000))], 3)
    store.sync()
    store.dispatch(store.end)
    store.persist_watermark(store.end, store.end)
    return door, store, receipt.start, receipt.end


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(1), OPTIONS)


def test_a_search_that_begins_in_such_a_body_notes_no_damage_and_reads_the_log_a_few_times(machine: Machine) -> None:
    door, store, start, end = filled(machine, behind=6 << 20)
    position = (start + end) // 2 + MAX_RECORD_BYTES
    door.read_bytes = 0

    store.verify(position, position + 1)

    assert store.damaged == []
    assert door.read_bytes < 8 * store.end


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


@pytest.mark.parametrize("claimed", [100, MAX_RECORD_BYTES], ids=["short", "long"])
def test_such_a_message_that_is_damaged_costs_a_few_readings(machine: Machine, claimed: int) -> None:
    door, store, start, end = filled(machine, behind=6 << 20, claimed=claimed)
    machine.disk.names.files[LOG].write(memoryview(b"\xee"), start + _BODY_AT + 20, machine.chance)
    door.read_bytes = 0

    store.verify(start, end)

    assert store.damaged == [(start, end)]
    assert door.read_bytes < 8 * store.end
    store.close(clean=False)
    report = verify(open_on_disk(machine.storage(), "here"))
    assert {each.position for each in report.findings if each.kind is Kind.DAMAGED} >= {start}


def test_a_start_reads_such_a_damaged_message_a_few_times(machine: Machine) -> None:
    _, store, start, end = filled(machine, behind=1 << 20)
    store.close(clean=False)
    machine.disk.names.files[LOG].write(memoryview(b"\xee"), start + _BODY_AT + 20, machine.chance)

    door, again = opened(machine)

    assert again.damaged == [(start, end)]
    assert door.read_bytes < 2 * OPTIONS.segment_bytes
