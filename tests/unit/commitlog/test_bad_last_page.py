"""The page in which the log ends, when the disk does not give it: a node that appends there ends, and its next start goes on."""

import random
from typing import cast

import pytest

from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import StorageFailure, StoreOpenFailed
from tests.simulation.disk import BOUNDLESS
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dies, dispatched, frame, open_epoch, places, whole_log
from tests.unit.broker.repair_sources import copy_of, serving
from tests.unit.commitlog.bad_pages import PAGE, BadPages
from tests.unit.commitlog.piecewise_repair import RecordByRecord, mended_by


def last_page_of(log: bytes) -> tuple[str, int]:
    base = len(log) - len(log) % SMALL.segment_bytes
    return f"commitlog/{base:020d}", (len(log) - base) // PAGE


def hidden_by(log: bytes) -> int:
    """Where the first record begins that has a byte in the page in which the log ends."""
    return next(start for start, end in entries(log) if end > len(log) - len(log) % PAGE)


def again(door: BadPages) -> Store:
    """The store in a new process on the same disk."""
    machine = door.machine
    door.renew()
    return Store.open(cast("Storage", door), machine.options, chance=machine.chance, wall_ms=9_000)


def bad_at_the_end(stop: str) -> tuple[BadPages, bytes, Store]:
    """A store that has stopped so, whose last page the disk does not give any more; its log; and another copy of that."""
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    log, other = whole_log(store), copy_of(store, Machine(random.Random(2)))
    if stop == "clean":
        store.close(clean=True)
    else:
        machine.lose_power() if stop == "power lost" else machine.kill()
    door = BadPages(machine)
    path, page = last_page_of(log)
    door.bad[path] = {page}
    assert len(log) % PAGE
    return door, log, other


@pytest.mark.parametrize("stop", ["clean", "killed", "power lost"])
def test_a_start_notes_what_the_page_hides_and_the_log_goes_on_behind_it(stop: str) -> None:
    door, log, other = bad_at_the_end(stop)

    store = again(door)

    hidden = (hidden_by(log), len(log))
    assert (store.end, store.damaged) == (len(log), [hidden])
    assert store.unread.ranges == (() if stop == "clean" else (hidden,))
    assert store.stopped is {"clean": StopKind.CLEAN, "killed": StopKind.FAILED_SYNC, "power lost": StopKind.POWER_LOSS}[stop]
    [outcome] = mended_by(store, RecordByRecord(serving(other), log, len(log)))
    assert (outcome.source, store.damaged, whole_log(store)) == ("a/2", [], log)
    store.append([frame(b"next")], 9_000)
    store.sync()
    assert whole_log(store).startswith(log)


def test_a_slave_goes_on_copying_behind_it_before_it_is_repaired() -> None:
    door, log, other = bad_at_the_end("clean")
    other.append([frame(b"next")], 9_000)
    store = again(door)

    store.write_chunk(len(log), other.read(len(log), 1 << 20))
    store.sync()

    assert (store.end, store.damaged) == (other.end, [(hidden_by(log), len(log))])
    [outcome] = mended_by(store, RecordByRecord(serving(other), whole_log(other), other.end))
    assert (outcome.source, whole_log(store)) == ("a/2", whole_log(other))


def test_append_to_a_bad_last_page_ends_the_node() -> None:
    """If told to, its next start leads on without the page."""
    machine = Machine(random.Random(1))
    door = BadPages(machine)
    store = again(door)
    open_epoch(store)
    store.append([frame(b"x" * 3_000), frame(b"y" * 3_000)], 1)
    store.sync()
    store.persist_recovery_point(store.end, 0)
    log = whole_log(store)
    door.bad[last_page_of(log)[0]] = {last_page_of(log)[1]}
    with pytest.raises(StorageFailure, match=r"write of .*check its disk and start it again"):
        store.append([frame(b"next")], 2)
    store.clear_boot_stamp()
    store.close(clean=False)

    store = again(door)

    assert (store.end, store.damaged, store.stopped) == (len(log), [(hidden_by(log), len(log))], StopKind.FAILED_SYNC)
    store.reserve_offsets((), 0)
    [placed] = places(store.append([frame(b"next")], 3).placed[0])
    assert placed.physical_offset == len(log)
    store.sync()
    store.persist_recovery_point(store.end, 0)
    store.close(clean=False)
    assert again(door).end == placed.end


def test_a_truncation_into_a_bad_page_is_done_and_what_is_left_of_it_is_damage() -> None:
    door, log, other = bad_at_the_end("clean")
    path, page = last_page_of(log)
    door.bad.clear()
    store = again(door)
    to = next(start for start, _ in entries(log) if start > len(log) - len(log) % PAGE)
    door.bad[path] = {page}

    report = store.truncate(to)

    assert (report.to, store.end) == (to, to)
    assert store.damaged == [(hidden_by(log), to)]
    [outcome] = mended_by(store, RecordByRecord(serving(other), log, len(log)))
    assert (outcome.source, whole_log(store)) == ("a/2", log[:to])


@pytest.mark.tier("test")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_page_that_a_dying_truncation_wrote_is_noted_by_the_next_start(power: bool) -> None:
    was_cut, done, operations = set(), False, 0
    while not done:
        door, log, _ = bad_at_the_end("clean")
        path, page = last_page_of(log)
        door.bad.clear()
        store, machine = again(door), door.machine
        to = next(start for start, _ in entries(log) if start > len(log) - len(log) % PAGE)
        machine.faults.operations_to_live = operations
        done = dies(lambda store=store, to=to: store.truncate(to))  # type: ignore[misc]
        machine.lose_power() if power else machine.kill()
        door.bad[path] = {page}

        found = again(door)

        assert found.end in {to, len(log)}
        assert found.damaged == [(hidden_by(log), found.end)], f"dead after {operations} operations"
        was_cut.add(found.end == to)
        operations += 1
    assert was_cut == {True, False}


def test_a_start_on_a_full_disk_writes_nothing_over_what_it_cannot_note() -> None:
    door, log, _ = bad_at_the_end("clean")
    disk = door.machine.disk
    disk.capacity_bytes = disk.used_bytes() + 40_000

    with pytest.raises(StoreOpenFailed, match=r"must be free to note what is damaged where the log ends; make room"):
        again(door)

    door.bad.clear()
    store = again(door)
    assert (whole_log(store), store.damaged) == (log, [])


def test_start_on_a_full_disk_that_truncates_nothing_is_not_refused() -> None:
    door, log, _ = bad_at_the_end("clean")
    door.bad.clear()
    path, _ = last_page_of(log)
    inode, disk = door.machine.disk.names.files[path], door.machine.disk
    inode.flip((len(log) - 5) % SMALL.segment_bytes, 1)
    disk.capacity_bytes = disk.used_bytes() + 40_000

    assert again(door).end == len(log)
    disk.capacity_bytes = BOUNDLESS
    assert again(door).damaged == [(entries(log)[-1][0], len(log))]
