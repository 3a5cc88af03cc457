"""A segment whose file somebody removes or cuts short while the node runs: what was in it is lost as on a bad disk, and fetched again."""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import TypeVar, cast

import pytest

from dittomq.broker.repair import RepairSource
from dittomq.broker.retention import RetentionLoop, RetentionLoopParts
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.retention import RetentionFloor, RetentionRules
from dittomq.commitlog.store import Store
from dittomq.doors.clock import OsClock
from dittomq.errors import CorruptRecord, NotReady, StorageFailure
from dittomq.offsets import PhysicalOffset
from tests.simulation.simulated_process import SimCrashed
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dispatched, frame, open_epoch, whole_log
from tests.unit.broker.repair_sources import copy_of, repair_damage, serving
from tests.unit.commitlog.bad_pages import BadPages, PagedFile
from tests.unit.commitlog.repaired_stores import SEGMENT, assert_whole
from tests.unit.commitlog.segment_files import path_of, remove

Door = TypeVar("Door", bound=BadPages)
Loss = Callable[[Machine, int], None]
OPTIONS = replace(SMALL, open_files=1, refills=True)


def in_use() -> tuple[Machine, Store, bytes, Store]:
    """A store of three segments that keeps one file open, its log, and another copy of it."""
    machine = Machine(random.Random(1), OPTIONS)
    store = dispatched(machine)
    return machine, store, whole_log(store), copy_of(store, Machine(random.Random(2)))


def move_away(machine: Machine, number: int) -> None:
    storage = machine.beside()
    storage.rename(path_of(number), "moved")
    storage.sync_folder("commitlog")


def replace_file(machine: Machine, number: int, data: bytes = b"") -> None:
    """Put another file in its place, of a segment's size."""
    remove(machine, number)
    storage = machine.beside()
    with closing(storage.open(path_of(number), create=True)) as file:
        file.truncate(SEGMENT)
        file.pwrite(data, 0)
        file.fdatasync()
    storage.sync_folder("commitlog")


LOSSES = pytest.mark.parametrize("lose", [remove, move_away, replace_file])


def test_removed_segment_is_all_damage_and_comes_from_another_replica() -> None:
    """It shows when one message of it is to be repaired."""
    machine, store, log, other = in_use()
    remove(machine, 1)
    with pytest.raises(CorruptRecord, match="No such file or directory"):
        store.read_records(SEGMENT, 2 * SEGMENT, 1_000)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)

    [first] = repair_damage(store, [RepairSource("a/2", serving(other))])

    assert (first.source, "was removed" in first.problem) == ("", True)
    assert store.damaged == [(SEGMENT, 2 * SEGMENT)]
    assert store.take_reverify_from() == SEGMENT
    [second] = repair_damage(store, [RepairSource("a/2", serving(other))])
    assert second.source == "a/2"
    assert_whole(store, log)
    machine.lose_power(all_unsynced=True)
    assert_whole(machine.open(), log)


def test_a_file_that_is_still_open_is_not_repaired_where_nobody_finds_it_again() -> None:
    machine, store, log, other = in_use()
    inode = machine.disk.names.files[path_of(1)]
    inode.write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    remove(machine, 1)

    for _ in range(2):
        repair_damage(store, [RepairSource("a/2", serving(other))])

    assert_whole(store, log)
    assert path_of(1) in machine.disk.names.files


def test_wherever_the_node_dies_meanwhile_the_next_start_knows_what_is_gone() -> None:
    done, operations = False, 0
    while not done:
        machine, store, log, _ = in_use()
        remove(machine, 1)
        store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
        machine.faults.operations_to_live = operations
        try:
            store.salvage(store.damaged[0].start)
        except CorruptRecord:
            done = True
        except SimCrashed:
            pass
        machine.lose_power()

        again = machine.open()

        assert again.damaged == [(SEGMENT, 2 * SEGMENT)], f"dead after {operations} operations"
        for start, end in again.damaged:
            again.repair(start, log[start:end])
        again.file_repaired()
        assert_whole(again, log)
        operations += 1
    assert operations > 5


def damaged_on(kind: type[Door]) -> tuple[Door, Store, bytes]:
    """The store in use on such a disk, with a damaged message in its second segment; and its log as it was."""
    machine, store, log, _ = in_use()
    machine.disk.names.files[path_of(1)].write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    store.close(clean=True)
    door = kind(machine)
    return door, Store.open(cast("Storage", door), OPTIONS, chance=machine.chance, wall_ms=9_000), log


class Blind(BadPages):
    """A disk whose names cannot be looked up while there is a `problem`."""

    problem = 0

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return cast("File", BlindFile(super().open(path, create=create, readonly=readonly), path, self))


class BlindFile(PagedFile):
    def is_named(self) -> bool:
        if problem := cast("Blind", self._door).problem:
            raise OSError(problem, os.strerror(problem), self._path)
        return self._file.is_named()


@pytest.mark.parametrize("problem", [errno.ENOMEM, errno.EIO])
def test_a_file_whose_name_cannot_be_looked_up_is_not_taken_for_removed(problem: int) -> None:
    door, store, log = damaged_on(Blind)
    [(start, end)] = before = store.damaged
    door.problem = problem

    with pytest.raises(NotReady, match=os.strerror(problem)):
        store.salvage(start)
    with pytest.raises(NotReady, match=os.strerror(problem)):
        store.repair(start, log[start:end])

    door.problem = 0
    assert (store.damaged, store.salvage(start)) == (before, False)
    store.repair(start, log[start:end])
    assert_whole(store, log)


class Interrupted(BadPages):
    """Lets something happen during the next sync."""

    meanwhile: Callable[[], object] | None = None

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        return cast("File", InterruptedFile(super().open(path, create=create, readonly=readonly), path, self))


class InterruptedFile(PagedFile):
    def fdatasync(self) -> None:
        door = cast("Interrupted", self._door)
        happens, door.meanwhile = door.meanwhile, None
        if happens is not None:
            happens()
        self._file.fdatasync()


def test_whoever_finds_that_damage_is_still_there_waits_for_no_sync() -> None:
    door, store, _ = damaged_on(Interrupted)
    open_epoch(store)
    store.append([frame(b"next")], 9_000)
    looks = threading.Thread(target=store.salvage, args=(store.damaged[0].start,))
    waited = []

    def look() -> None:
        looks.start()
        looks.join(10)
        waited.append(looks.is_alive())

    door.meanwhile = look
    store.sync()

    assert waited == [False]


def test_retention_looks_at_it_without_ending_the_node() -> None:
    machine, store, _, _ = in_use()
    remove(machine, 0)

    assert store.survey(0).disk_bytes == 0


def test_retention_counts_its_blocks_again_when_it_is_fetched_again() -> None:
    machine, store, _, other = in_use()
    clock, lane = OsClock(), InlineLane()
    pins = Pins(PinParts("a/1", machine.beside(), store, lane, clock, machine.chance))
    hold = RetentionFloor("a/1", PhysicalOffset(0))
    retaining = RetentionLoop(RetentionLoopParts("a/1", store, lane, clock, pins), RetentionRules(max_used_percent=1), 1.0, lambda: [hold])
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 1_000_000
    remove(machine, 0)
    asyncio.run(retaining.step())
    before = retaining.retained_bytes["a/1"]

    store.verify(0, 1)
    for _ in range(2):
        repair_damage(store, [RepairSource("a/2", serving(other))])
        asyncio.run(retaining.step())

    assert retaining.retained_bytes["a/1"] == before + SEGMENT


@LOSSES
def test_nothing_that_is_appended_to_a_file_that_lost_its_name_is_called_durable(lose: Loss) -> None:
    machine, store, log, _ = in_use()
    lose(machine, 2)
    store.append([frame(b"next")], 9_000)

    with pytest.raises(StorageFailure, match="it was removed"):
        store.sync()

    assert store.flushed == len(log)


def test_a_start_after_the_file_was_removed_that_was_written_knows_what_is_gone() -> None:
    machine, store, log, _ = in_use()
    remove(machine, 2)
    store.append([frame(b"next")], 9_000)
    with pytest.raises(StorageFailure):
        store.sync()

    store.clear_boot_stamp()
    store.close(clean=False)
    again = machine.open()
    assert (again.end, again.damaged) == (len(log), [(2 * SEGMENT, len(log))])


@LOSSES
def test_repair_in_a_file_that_loses_its_name_does_not_count(lose: Loss) -> None:
    machine, store, log, other = in_use()
    machine.disk.names.files[path_of(1)].write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    [(start, end)] = store.damaged
    assert not store.salvage(start)
    lose(machine, 1)

    assert store.repair(start, log[start:end]) == start

    assert store.damaged == [(start, end)]
    repair_damage(store, [RepairSource("a/2", serving(other))])
    repair_damage(store, [RepairSource("a/2", serving(other))])
    assert_whole(store, log)
    assert_whole(machine.open(), log)


def test_file_removed_between_a_look_and_a_repair_ends_no_node() -> None:
    """It is not open."""
    machine, store, log, _ = in_use()
    machine.disk.names.files[path_of(1)].write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    [(start, end)] = store.damaged
    assert not store.salvage(start)
    store.read(0, 1)
    remove(machine, 1)

    assert store.repair(start, log[start:end]) == start

    store.append([frame(b"next")], 9_000)
    store.sync()


def test_file_put_in_place_of_a_damaged_one_is_used() -> None:
    """What is not whole in it is damage."""
    machine, store, log, other = in_use()
    machine.disk.names.files[path_of(1)].write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    replaced = bytearray(log[SEGMENT : 2 * SEGMENT])
    replaced[9_000:9_010] = bytes(10)
    replace_file(machine, 1, bytes(replaced))

    [outcome] = repair_damage(store, [])

    assert outcome.source == "a/1"
    assert [(start < SEGMENT + 9_010, SEGMENT + 9_000 < end < SEGMENT + 12_000) for start, end in store.damaged] == [(True, True)]
    repair_damage(store, [RepairSource("a/2", serving(other))])
    assert_whole(store, log)
    assert_whole(machine.open(), log)


def test_file_put_in_place_of_a_damaged_one_is_durable_once_repaired() -> None:
    machine, store, log, _ = in_use()
    storage = machine.beside()
    with closing(storage.open(path_of(1))) as file:
        file.pwrite(bytes(10), 5_000)
        file.fdatasync()
    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)
    storage.unlink(path_of(1))
    with closing(storage.open(path_of(1), create=True)) as file:
        file.pwrite(log[SEGMENT : 2 * SEGMENT], 0)

    [outcome] = repair_damage(store, [])
    machine.lose_power(all_unsynced=True)

    assert outcome.source == "a/1"
    assert_whole(machine.open(), log)


def test_shortened_file_is_damaged_from_its_end_and_is_repaired() -> None:
    """Another replica has the rest."""
    machine, store, log, other = in_use()
    machine.disk.names.files[path_of(1)].truncate(5_000, machine.chance)

    store.verify(SEGMENT + 5_000, SEGMENT + 5_001)

    [(start, end)] = store.damaged
    assert SEGMENT < start <= SEGMENT + 5_000
    assert end == 2 * SEGMENT
    with pytest.raises(CorruptRecord, match="cut short"):
        store.read_records(next(first for first, _ in entries(log) if first > SEGMENT + 5_000), end, 1_000)
    [outcome] = repair_damage(store, [RepairSource("a/2", serving(other))])
    assert outcome.source == "a/2"
    assert_whole(store, log)
    assert_whole(machine.open(), log)


def test_written_file_regains_its_full_size_when_repaired() -> None:
    """A start of a master, and RocketMQ's, refuse a shorter one."""
    machine, store, log, other = in_use()
    machine.disk.names.files[path_of(2)].truncate(4_000, machine.chance)
    store.verify(len(log) - 1, len(log))

    repair_damage(store, [RepairSource("a/2", serving(other))])
    store.close(clean=True)

    machine.options = SMALL
    assert_whole(machine.open(), log)


def test_a_truncation_into_it_ends_no_later_start() -> None:
    machine, store, log, _ = in_use()
    to = store.append([frame(b"next")], 9_000).start
    store.close(clean=True)
    store = machine.open()
    remove(machine, 2)

    store.truncate(to)

    assert machine.open().end == len(log)
