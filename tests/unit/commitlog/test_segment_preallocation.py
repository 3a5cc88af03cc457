"""The segment that is made ahead of need: what a roll then costs, and that nobody takes it for a part of the log."""

import itertools
import math
import random
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.commitlog.disk.segment_maker import SegmentMaker
from dittomq.commitlog.disk.storage import File, OsStorage
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.chance import os_chance
from dittomq.errors import StorageFailure
from dittomq.offsets import PhysicalOffset
from tests.support.failing_storage import Crashed, CrashingStorage, Harm
from tests.support.stores import SMALL, Machine, frame, led, open_epoch, queues_of, whole_log

SPARE = "dittomq/tmp-segment"
SIZE = SMALL.segment_bytes
STEP = 512


def segment(number: int) -> str:
    return f"commitlog/{number * SIZE:020d}"


@pytest.fixture
def door(machine: Machine) -> CrashingStorage:
    return CrashingStorage(machine.storage())


@pytest.fixture
def store(door: CrashingStorage) -> Store:
    """It lacks a few hundred bytes to the end of its first segment, and all of it is synced."""
    opened = led(door, SMALL, chance=random.Random(1), wall_ms=1_000)
    opened.append([frame(b"x" * 15_500)], 1_000)
    opened.sync()
    return opened


def roll(store: Store) -> None:
    """Append what fits into the next segment only, and nearly fills it."""
    store.append([frame(b"y" * 15_500)], 1_000)


def test_a_roll_costs_one_rename_and_the_next_sync_makes_the_name_durable(store: Store, door: CrashingStorage) -> None:
    store.ahead.prepare_segment()
    door.heard.clear()

    roll(store)
    rolled = door.heard[:]
    store.sync()

    assert rolled == [f"write {segment(0)}", f"rename to {segment(1)}", f"write {segment(1)}"]
    assert door.heard[3:] == ["fsync commitlog", f"fdatasync {segment(0)}", f"fdatasync {segment(1)}"]


def test_a_roll_without_a_prepared_segment_makes_one(store: Store, door: CrashingStorage) -> None:
    door.heard.clear()

    roll(store)

    made = [f"unlink {SPARE}", f"open {SPARE}", f"truncate {SPARE}", f"fdatasync {SPARE}"]
    assert door.heard == [f"write {segment(0)}", *made, f"rename to {segment(1)}", f"write {segment(1)}"]


def test_a_second_roll_first_makes_the_name_of_the_first_durable(store: Store, door: CrashingStorage) -> None:
    roll(store)
    store.ahead.prepare_segment()
    door.heard.clear()

    roll(store)

    assert door.heard == [f"write {segment(1)}", "fsync commitlog", f"rename to {segment(2)}", f"write {segment(2)}"]


def test_one_segment_is_prepared_and_no_second(store: Store, door: CrashingStorage) -> None:
    assert store.ahead.wants_segment
    assert store.ahead.prepare_segment()
    assert not store.ahead.wants_segment
    door.heard.clear()

    assert not store.ahead.prepare_segment()

    assert door.heard == []


def test_zeros_go_on_in_the_prepared_segment_and_count_when_it_is_used(store: Store, machine: Machine) -> None:
    zeros(store)
    store.ahead.prepare_segment()

    first_end, ahead = store.end, zeros(store)
    assert machine.disk.names.files[SPARE].dirty == {}, "they are on the disk"
    store.append([frame(b"y" * 1_000)], 1_000)
    behind = zeros(store)

    assert ahead == math.ceil((first_end + SMALL.zero_window_bytes - SIZE) / STEP)
    assert behind == math.ceil((store.end - first_end) / STEP)


def zeros(store: Store) -> int:
    """Write zeros until it is enough; in how many steps."""
    steps = 0
    while store.ahead.zero(STEP):
        steps += 1
    return steps


def test_what_is_prepared_is_no_part_of_the_log(store: Store, machine: Machine) -> None:
    store.ahead.prepare_segment()
    before = machine.files()

    seen = open_on_disk(machine.storage(), "here")
    report = verify(seen)

    assert (seen.stop, report.end) == (SIZE, store.end)
    assert report.whole
    assert len(before[SPARE]) == SIZE
    assert machine.files() == before


def test_it_outlives_a_truncation(store: Store, door: CrashingStorage) -> None:
    roll(store)
    store.ahead.prepare_segment()

    store.truncate(0)
    open_epoch(store)
    roll(store)
    door.heard.clear()
    roll(store)

    assert f"rename to {segment(1)}" in door.heard
    assert f"open {SPARE}" not in door.heard
    assert sum(map(len, queues_of(whole_log(store), SIZE).values())) == 2


def test_a_truncation_right_behind_a_roll_can_be_finished_wherever_power_is_lost() -> None:
    for call in itertools.count(1):
        machine = Machine(random.Random(call))
        door = CrashingStorage(machine.storage())
        store = led(door, SMALL, chance=random.Random(1), wall_ms=1_000)
        store.append([frame(b"x" * 15_500), frame(b"y" * 1_000)], 1_000)
        to = store.end
        store.append([frame(b"z" * 1_000)], 1_000)
        assert to > SIZE
        door.strike_in(call, Harm.CRASH)
        try:
            store.truncate(to)
        except Crashed:
            machine.lose_power(all_unsynced=True)
        else:
            break

        assert machine.open().end in {0, SIZE, to}, f"power was lost before {door.struck}"
    assert call > 20


def test_a_log_that_begins_elsewhere_goes_on_in_it(machine: Machine) -> None:
    store = machine.open()
    store.ahead.prepare_segment()

    store.set_log_start(LogStart(PhysicalOffset(5 * SIZE)))
    open_epoch(store)
    roll(store)

    assert (store.min_offset, SPARE in machine.files(), len(machine.files()[segment(5)])) == (5 * SIZE, False, SIZE)


@pytest.mark.parametrize("ending", ["clean stop", "kill", "power loss"])
def test_no_stop_leaves_it_to_the_next_process(store: Store, machine: Machine, ending: str) -> None:
    store.ahead.prepare_segment()
    if ending == "clean stop":
        store.close(clean=True)
        assert SPARE not in machine.files()
    elif ending == "kill":
        machine.kill()
    else:
        machine.lose_power()

    machine.open()

    assert SPARE not in machine.files()


def test_a_store_that_is_closed_prepares_nothing(store: Store, machine: Machine) -> None:
    store.close(clean=True)

    store.ahead.prepare_segment()

    assert SPARE not in machine.files()


def test_one_of_another_size_is_not_used(machine: Machine) -> None:
    machine.open().ahead.prepare_segment()
    machine.kill()
    machine.options = replace(SMALL, segment_bytes=2 * SIZE)

    store = machine.lead()
    roll(store)

    assert len(machine.files()[segment(0)]) == 2 * SIZE


def test_one_that_somebody_removed_is_made_again(store: Store, machine: Machine) -> None:
    store.ahead.prepare_segment()
    machine.disk.names.files.pop(SPARE)

    roll(store)

    assert store.end > SIZE


def test_nothing_is_prepared_from_the_reserve(store: Store, door: CrashingStorage) -> None:
    door.free = SMALL.min_free_bytes + SMALL.zero_window_bytes
    door.heard.clear()

    assert not store.ahead.prepare_segment()
    assert not store.ahead.zero()

    assert door.heard == []
    assert store.ahead.wants_segment


def test_a_prepared_segment_that_gives_its_room_is_gone_and_made_again(machine: Machine, store: Store) -> None:
    store.ahead.prepare_segment()
    store.ahead.zero()

    store.ahead.give_room()

    assert SPARE not in machine.files()
    store.ahead.give_room()
    assert store.ahead.prepare_segment()
    roll(store)
    assert store.end > SIZE


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_segment_that_cannot_be_made_ahead_is_made_when_it_is_needed(store: Store, door: CrashingStorage, call: int) -> None:
    door.heard.clear()
    door.strike_in(call, Harm.ERROR)

    assert not store.ahead.prepare_segment()
    roll(store)
    store.sync()

    assert door.struck == [f"unlink {SPARE}", f"open {SPARE}", f"truncate {SPARE}"][call - 1]
    assert store.flushed == store.end > SIZE


def test_a_write_of_zeros_that_fails_costs_nothing(store: Store, door: CrashingStorage) -> None:
    zeros(store)
    store.ahead.prepare_segment()
    door.strike_in(1, Harm.ERROR)

    assert not store.ahead.zero()
    roll(store)

    assert door.struck == f"write {SPARE}"
    assert store.sync() == store.end


@pytest.mark.parametrize("deed", ["prepare", "zero"])
def test_a_sync_that_fails_ahead_of_need_is_final(store: Store, door: CrashingStorage, deed: str) -> None:
    if deed == "zero":
        zeros(store)
        store.ahead.prepare_segment()
    door.failing = "fdatasync"

    with pytest.raises(StorageFailure, match="fdatasync"):
        store.ahead.prepare_segment() if deed == "prepare" else store.ahead.zero()

    door.failing = ""
    with pytest.raises(StorageFailure, match="fdatasync"):
        roll(store)


class SlowFile:
    """A file whose syncs wait until they may."""

    def __init__(self, file: File, storage: "SlowStorage") -> None:
        self._file = file
        self._storage = storage
        self.truncate = file.truncate
        self.close = file.close

    def fdatasync(self) -> None:
        self._storage.syncing.set()
        assert self._storage.may_sync.wait(10)
        self._file.fdatasync()


class SlowStorage(OsStorage):
    """Counts the files that are made."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.syncing = threading.Event()
        self.may_sync = threading.Event()
        self.made = 0

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        self.made += create
        return SlowFile(super().open(path, create=create, readonly=readonly), self)  # type: ignore[return-value]


def test_a_roll_in_the_middle_of_the_preparation_takes_what_is_prepared(tmp_path: Path) -> None:
    storage = SlowStorage(tmp_path)
    for folder in ("dittomq", "commitlog"):
        storage.make_folder(folder)
    maker = SegmentMaker(storage, SIZE)
    prepares = threading.Thread(target=maker.prepare)
    prepares.start()
    assert storage.syncing.wait(10)

    rolls = threading.Thread(target=maker.roll, args=(0,))
    rolls.start()
    storage.may_sync.set()
    prepares.join(10)
    rolls.join(10)

    assert storage.made == 1
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    assert maker.is_wanted


def test_on_a_real_disk_a_prepared_segment_takes_no_room_and_becomes_the_next_one(tmp_path: Path) -> None:
    store = led(OsStorage(tmp_path), SMALL, chance=os_chance(), wall_ms=1_000)
    roll(store)
    store.ahead.prepare_segment()
    prepared = (tmp_path / SPARE).stat()

    roll(store)
    store.sync()

    assert (prepared.st_size, prepared.st_blocks) == (SIZE, 0)
    assert (tmp_path / segment(1)).stat().st_ino == prepared.st_ino
    assert not (tmp_path / SPARE).exists()
    store.close(clean=True)
