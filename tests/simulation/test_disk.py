import random

import pytest

from dittomq.commitlog.disk.storage import read_file
from dittomq.errors import StorageFailure
from tests.simulation.disk import PAGE, SECTOR, Disk
from tests.simulation.simulated_process import Life, SimCrashed
from tests.simulation.storage import Faults, SimulatedStorage

OLD, NEW = b"o", b"n"


class Machine:
    """A disk and the process that uses it."""

    def __init__(self, seed: int = 0, capacity_bytes: int = 1 << 40, *, syncs_take_time: bool = False) -> None:
        self.syncs_take_time = syncs_take_time
        self.disk = Disk(random.Random(seed), capacity_bytes)
        self.faults = Faults()
        self.boots()

    def boots(self) -> None:
        self.life = Life("m")
        self.storage = SimulatedStorage(self.disk, self.life, self.faults, self.dies, syncs_take_time=self.syncs_take_time)

    def dies(self) -> None:
        self.life.end()

    def loses_power(self) -> None:
        self.dies()
        self.faults.operations_to_live = None
        self.disk.lose_power()
        self.boots()

    def put(self, path: str, content: bytes, offset: int = 0) -> None:
        self.storage.open(path, create=True).pwrite(content, offset)

    def content(self, path: str) -> bytes:
        return read_file(self.storage, path)


def machines(count: int = 60) -> list[Machine]:
    return [Machine(seed) for seed in range(count)]


def test_power_loss_keeps_any_of_the_unsynced_sectors_and_all_of_the_synced_ones() -> None:
    kept, lost, torn = 0, 0, 0
    for machine in machines():
        file = machine.storage.open("f", create=True)
        file.pwrite(OLD * 2 * PAGE, 0)
        file.fdatasync()
        machine.storage.sync_folder("")
        file.pwrite(NEW * PAGE, 0)
        machine.loses_power()

        content = machine.content("f")
        sectors = [content[at : at + SECTOR] for at in range(0, 2 * PAGE, SECTOR)]
        assert all(sector in (OLD * SECTOR, NEW * SECTOR) for sector in sectors)
        assert set(sectors[PAGE // SECTOR :]) == {OLD * SECTOR}
        found = set(sectors[: PAGE // SECTOR])
        kept += found == {NEW * SECTOR}
        lost += found == {OLD * SECTOR}
        torn += len(found) == 2
    assert kept
    assert lost
    assert torn


def test_growth_that_was_not_synced_may_be_lost_and_reads_as_zeros_in_part() -> None:
    sizes = set()
    for machine in machines():
        file = machine.storage.open("f", create=True)
        file.pwrite(OLD * 100, 0)
        file.fdatasync()
        machine.storage.sync_folder("")
        file.pwrite(NEW * 3 * PAGE, 100)
        machine.loses_power()

        content = machine.content("f")
        sizes.add(len(content))
        assert content[:100] == OLD * 100
        assert set(content[100:]) <= {0, ord(NEW)}
    assert sizes == {100, 100 + 3 * PAGE}


def test_a_truncation_that_was_not_synced_may_be_undone() -> None:
    sizes = set()
    for machine in machines():
        file = machine.storage.open("f", create=True)
        file.pwrite(OLD * 3 * PAGE, 0)
        file.fdatasync()
        machine.storage.sync_folder("")
        file.truncate(PAGE + 7)
        machine.loses_power()
        content = machine.content("f")
        sizes.add(len(content))
        assert content[: PAGE + 7] == OLD * (PAGE + 7)
    assert sizes == {PAGE + 7, 3 * PAGE}


def test_unsynced_rename_into_another_folder_leaves_either_name_both_or_none() -> None:
    found = set()
    for machine in machines():
        for folder in ("a", "b"):
            machine.storage.make_folder(folder)
        machine.storage.sync_folder("")
        machine.storage.open("a/old", create=True)
        machine.storage.sync_folder("a")
        machine.storage.rename("a/old", "b/new")
        machine.loses_power()
        found.add((machine.storage.exists("a/old"), machine.storage.exists("b/new")))
    assert found == {(True, False), (True, True), (False, True), (False, False)}


def test_after_a_failed_sync_a_later_one_succeeds_and_the_bytes_are_still_in_danger() -> None:
    lost = 0
    for machine in machines():
        file = machine.storage.open("f", create=True)
        file.pwrite(OLD * PAGE, 0)
        file.fdatasync()
        machine.storage.sync_folder("")
        file.pwrite(NEW * PAGE, 0)
        machine.faults.failing_syncs = 1
        with pytest.raises(StorageFailure, match="Input/output error"):
            file.fdatasync()
        file.fdatasync()
        machine.loses_power()
        lost += OLD in machine.content("f")
    assert lost


def test_after_a_failed_sync_even_a_restart_may_show_the_old_bytes() -> None:
    lost = 0
    for machine in machines():
        machine.put("f", NEW * PAGE)
        machine.faults.failing_syncs = 1
        with pytest.raises(StorageFailure):
            machine.storage.open("f").fdatasync()
        assert machine.content("f") == NEW * PAGE
        machine.dies()
        machine.disk.drop_cache()
        machine.boots()
        lost += machine.content("f") != NEW * PAGE
    assert lost


def test_a_name_survives_power_loss_only_after_its_folder_was_synced() -> None:
    found = []
    for machine in machines():
        machine.storage.make_folder("a")
        machine.storage.sync_folder("")
        machine.put("a/synced", b"")
        machine.storage.sync_folder("a")
        machine.put("a/not", b"")
        machine.loses_power()
        found.append(machine.storage.list_folder("a"))
    assert all("synced" in names for names in found)
    assert any("not" in names for names in found)
    assert any("not" not in names for names in found)


def test_a_synced_folder_is_lost_with_all_in_it_when_its_own_name_was_not_synced() -> None:
    survived = []
    for machine in machines():
        machine.storage.make_folder("a")
        machine.put("a/f", b"")
        machine.storage.sync_folder("a")
        machine.loses_power()
        survived.append(machine.storage.exists("a/f"))
        assert machine.storage.exists("a") == machine.storage.exists("a/f")
    assert True in survived
    assert False in survived


def test_a_removal_that_was_not_synced_may_be_undone() -> None:
    found = []
    for machine in machines():
        machine.put("f", OLD)
        machine.storage.open("f").fdatasync()
        machine.storage.sync_folder("")
        machine.storage.unlink("f")
        machine.loses_power()
        found.append(machine.storage.exists("f"))
    assert True in found
    assert False in found


def test_power_that_is_lost_while_a_sync_runs_may_take_what_it_was_to_save() -> None:
    lost = 0
    for seed in range(60):
        machine = Machine(seed, syncs_take_time=True)
        file = machine.storage.open("f", create=True)
        file.pwrite(OLD * PAGE, 0)
        machine.storage.sync_folder("")
        file.fdatasync()
        file.pwrite(NEW * PAGE, 0)
        file.fdatasync()
        machine.loses_power()
        lost += OLD in machine.content("f")
    assert lost


def test_whoever_gives_a_file_a_name_has_waited_for_the_end_of_its_sync() -> None:
    for seed in range(30):
        machine = Machine(seed, syncs_take_time=True)
        file = machine.storage.open("f", create=True)
        file.pwrite(NEW * PAGE, 0)
        file.fdatasync()
        ended = machine.storage.take_effect()  # another lane goes on meanwhile
        machine.storage.rename("f", "g")
        machine.storage.sync_folder("")
        machine.storage.finish()

        machine.loses_power()
        ended()

        assert machine.content("g") == NEW * PAGE


def test_a_dead_process_cannot_touch_the_disk() -> None:
    machine = Machine()
    storage, file = machine.storage, machine.storage.open("f", create=True)

    machine.dies()

    with pytest.raises(SimCrashed):
        file.pwrite(b"x", 0)
    with pytest.raises(SimCrashed):
        storage.exists("f")


def test_bad_page_fails_partial_reads_and_writes_until_written_whole() -> None:
    machine = Machine()
    file = machine.storage.open("f", create=True)
    file.pwrite(b"x" * 3 * PAGE, 0)
    file.fdatasync()

    assert machine.disk.names.files["f"].fail(PAGE + 5)
    with pytest.raises(OSError, match="Input/output error"):
        file.pread(10, 2 * PAGE - 5)
    with pytest.raises(StorageFailure):
        file.pwrite(b"y", PAGE)
    with pytest.raises(StorageFailure):
        file.truncate(PAGE + 1)
    assert (file.pread(PAGE, 0), file.pread(PAGE, 2 * PAGE)) == (b"x" * PAGE, b"x" * PAGE)
    file.pwrite(b"y" * PAGE, PAGE)
    assert file.pread(PAGE, PAGE) == b"y" * PAGE
