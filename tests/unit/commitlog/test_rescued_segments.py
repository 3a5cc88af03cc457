"""A segment's file that was removed while it is open: what it still gives is kept, whether or not another copy has it."""

import errno
import random
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from dittomq.commitlog.disk.storage import File, Storage
from dittomq.commitlog.store import Store
from dittomq.errors import DiskFull, NotReady, StorageFailure
from tests.simulation.disk import BOUNDLESS
from tests.simulation.simulated_process import SimCrashed
from tests.support.failing_storage import CrashingFile, CrashingStorage, Harm
from tests.support.stores import SMALL, Machine, dispatched, whole_log
from tests.unit.broker.repair_sources import repair_damage
from tests.unit.commitlog.repaired_stores import SEGMENT, assert_whole
from tests.unit.commitlog.segment_files import path_of, remove

AT = SEGMENT + 5_000


def removed(machine: Machine | None = None) -> tuple[Machine, Store, bytes, CrashingStorage]:
    """A store of which one message is damaged in a segment whose file was removed and is open; its log as it was; and its disk."""
    machine = machine or Machine(random.Random(1), replace(SMALL, refills=True))
    dispatched(machine).close(clean=True)
    door = CrashingStorage(machine.storage())
    store = Store.open(door, machine.options, chance=machine.chance, wall_ms=9_000)
    log = whole_log(store)
    machine.disk.names.files[path_of(1)].write(memoryview(bytes(10)), 5_000, machine.chance)
    store.verify(AT, AT + 1)
    store.read(SEGMENT, 1)
    remove(machine, 1)
    return machine, store, log, door


def repaired(store: Store, log: bytes) -> None:
    """Its one damaged message, where all else is whole, comes back."""
    [(start, end)] = store.damaged
    assert start <= AT < end < start + 2_000
    store.repair(start, log[start:end])
    store.file_repaired()
    assert_whole(store, log)


def test_the_only_copy_keeps_all_of_it_but_what_was_damaged() -> None:
    machine, store, log, _ = removed()

    [outcome] = repair_damage(store, [])

    assert outcome.problem == "no other copy answers now"
    machine.lose_power(all_unsynced=True)
    repaired(machine.open(), log)


def test_wherever_the_node_dies_meanwhile_no_half_of_it_is_taken_for_the_whole() -> None:
    done, operations, kept = False, 0, []
    while not done:
        machine, store, log, _ = removed()
        machine.faults.operations_to_live = operations
        try:
            store.rescue(AT)
            done = True
        except SimCrashed:
            pass
        machine.lose_power()

        again = machine.open()

        kept.append(again.damaged != [(SEGMENT, 2 * SEGMENT)])
        if kept[-1]:
            repaired(again, log)
        operations += 1
    assert not kept[0]
    assert kept[-1]


def test_a_full_disk_gives_nothing_of_it_up() -> None:
    machine, store, log, _ = removed(Machine(random.Random(1), replace(SMALL, refills=True, min_free_bytes=2_000)))
    machine.disk.capacity_bytes = machine.disk.used_bytes() + SEGMENT

    with pytest.raises(DiskFull):
        store.rescue(AT)
    [outcome] = repair_damage(store, [])

    assert "must be free" in outcome.problem
    machine.disk.capacity_bytes = BOUNDLESS
    repair_damage(store, [])
    repaired(store, log)


@pytest.mark.parametrize(("call", "error"), [(2, NotReady), (3, NotReady), (4, StorageFailure)], ids=["size", "write", "sync"])
def test_a_write_of_it_that_fails_ends_no_node_and_a_sync_does(call: int, error: type[Exception]) -> None:
    machine, store, log, door = removed()
    door.strike_in(call, Harm.ERROR)

    with pytest.raises(error):
        store.rescue(AT)

    if error is NotReady:
        assert "dittomq/tmp-saved-segment" not in machine.files()
        repair_damage(store, [])
        repaired(store, log)
    else:
        with pytest.raises(StorageFailure):
            store.sync()


class Interrupted(CrashingStorage):
    """A door that does something else before a write to what is saved, once; the file `full_from` it cannot open once it has its name."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.meanwhile: Callable[[], None] | None = None
        self.full_from = ""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if self.full_from and f"rename to {self.full_from}" in self.heard and path == self.full_from:
            self.full_from = ""
            raise OSError(errno.EMFILE, "Too many open files", path)
        file = super().open(path, create=create, readonly=readonly)
        return cast("File", InterruptedFile(file, path, self)) if path == "dittomq/tmp-saved-segment" else file


class InterruptedFile(CrashingFile):
    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        door = cast("Interrupted", self._storage)
        meanwhile, door.meanwhile = door.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().pwrite(data, offset)


def removed_twice() -> tuple[Machine, Store, bytes, Interrupted]:
    """A store that has two segments open whose files were removed; its log; and its disk."""
    machine = Machine(random.Random(1), replace(SMALL, refills=True))
    dispatched(machine).close(clean=True)
    door = Interrupted(machine.storage())
    store = Store.open(door, machine.options, chance=machine.chance, wall_ms=9_000)
    log = whole_log(store)
    remove(machine, 0)
    remove(machine, 1)
    return machine, store, log, door


def test_while_one_is_copied_for_a_caller_that_gave_up_no_other_copy_is_begun() -> None:
    machine, store, log, door = removed_twice()
    refused: list[NotReady] = []

    def again() -> None:
        for position in (AT, 0):
            with pytest.raises(NotReady) as problem:
                store.rescue(position)
            refused.append(problem.value)

    door.meanwhile = again
    store.rescue(0)
    store.rescue(AT)

    assert ["is copied" in str(each) for each in refused] == [True, True]
    machine.kill()
    assert machine.open().damaged == []
    assert machine.files()[path_of(0)] + machine.files()[path_of(1)] == log[: 2 * SEGMENT]


def test_a_process_without_descriptors_for_the_copy_goes_on_and_has_it_later() -> None:
    _, store, log, door = removed_twice()
    door.full_from = path_of(1)

    with pytest.raises(NotReady, match="Too many open files"):
        store.rescue(AT)

    store.rescue(0)
    store.sync()
    assert whole_log(store) == log
