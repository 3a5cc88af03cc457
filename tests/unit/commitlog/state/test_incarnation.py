"""Which starts draw a new incarnation: those that cannot show that the log holds all that this id acknowledged, and no others."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import StorageFailure
from tests.simulation.disk import Disk, Inode
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dies, filled, frame, whole_log

UNSYNCED = replace(SMALL, acks_unsynced=True)


def is_stranger(before: Store, after: Store) -> bool:
    assert before.replica.uuid == after.replica.uuid
    return before.replica.incarnation != after.replica.incarnation


def segment(machine: Machine, number: int = 0) -> Inode:
    return machine.disk.names.files[f"commitlog/{number * SMALL.segment_bytes:020d}"]


def flip(machine: Machine, at: int) -> None:
    file = segment(machine, at // SMALL.segment_bytes)
    place = at % SMALL.segment_bytes
    file.write(memoryview(bytes([file.read(1, place)[0] ^ 0x40])), place, machine.chance)
    file.sync()


def above_the_recovery_point(machine: Machine, *, synced: bool = True) -> tuple[Store, list[tuple[int, int]]]:
    """A store with a recovery point behind its first two records, and ten more behind those; where each lies."""
    store = machine.lead()
    store.append([frame(b"a" * 300)], 1)
    store.append([frame(b"b" * 300)], 1)
    store.sync()
    store.persist_recovery_point(store.flushed, store.flushed)
    for at in range(10):
        store.append([frame(b"%d" % at * 300)], 1)
    if synced:
        store.sync()
    return store, entries(whole_log(store))


def test_a_kill_makes_no_stranger(machine: Machine) -> None:
    store = filled(machine)
    store.append([frame(b"not synced")], 99)
    machine.kill()

    assert not is_stranger(store, machine.open())


@pytest.mark.parametrize("clean", [False, True])
def test_a_reboot_makes_no_stranger_of_who_acknowledges_what_is_synced(machine: Machine, *, clean: bool) -> None:
    store = filled(machine)
    if clean:
        store.close(clean=True)
    machine.lose_power()

    assert not is_stranger(store, machine.open())


def test_a_power_loss_makes_a_stranger_of_who_acknowledges_what_is_not_synced() -> None:
    machine = Machine(random.Random(1), UNSYNCED)
    store = filled(machine)
    machine.lose_power()

    assert is_stranger(store, machine.open())


@pytest.mark.parametrize("clean", [False, True])
def test_a_kill_and_a_reboot_after_a_clean_stop_make_no_stranger_of_it(*, clean: bool) -> None:
    machine = Machine(random.Random(1), UNSYNCED)
    store = filled(machine)
    if clean:
        store.close(clean=True)
        machine.lose_power()
    else:
        machine.kill()

    assert not is_stranger(store, machine.open())


def test_unsynced_acks_before_the_last_start_make_no_stranger() -> None:
    """After a power loss."""
    machine = Machine(random.Random(1), UNSYNCED)
    filled(machine)
    machine.kill()
    machine.options = SMALL
    store = machine.open()
    machine.lose_power()

    assert not is_stranger(store, machine.open())


def test_killed_starts_keep_a_stranger_a_stranger_after_a_power_loss() -> None:
    """They make none; a power loss behind them makes one of what was one before."""
    for operations in count():
        machine = Machine(random.Random(operations), UNSYNCED)
        store = filled(machine)
        store.append([frame(b"acknowledged")], 99)
        machine.kill()
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        done = dies(lambda storage=storage: Store.open(storage, UNSYNCED, chance=random.Random(1), wall_ms=0))  # type: ignore[misc]
        machine.kill()
        if operations % 2:
            assert not is_stranger(store, machine.open()), f"dead after {operations} operations"
        else:
            machine.lose_power()
            again = machine.open()
            assert again.end > store.flushed or is_stranger(store, again), f"dead after {operations} operations"
        if done:
            break
    assert operations > 10


def test_the_mark_of_a_failed_sync_makes_a_stranger(machine: Machine) -> None:
    store = filled(machine)
    machine.faults.failing_syncs = 1
    store.append([frame(b"x")], 99)
    with pytest.raises(StorageFailure):
        store.sync()
    store.clear_boot_stamp()
    machine.kill()

    again = machine.open()

    assert is_stranger(store, again)
    assert again.stopped is StopKind.FAILED_SYNC


def test_a_stranger_is_the_same_one_at_the_next_start(machine: Machine) -> None:
    filled(machine).clear_boot_stamp()
    machine.kill()
    stranger = machine.open()
    machine.kill()

    assert not is_stranger(stranger, machine.open())


@pytest.mark.parametrize("harm", ["gone", "damaged"])
def test_a_store_whose_stamp_does_not_tell_how_it_was_left_is_a_stranger(machine: Machine, harm: str) -> None:
    store = filled(machine)
    machine.kill()
    if harm == "gone":
        del machine.disk.names.files["dittomq/boot"]
    else:
        machine.disk.names.files["dittomq/boot"].truncate(5, machine.chance)

    assert is_stranger(store, machine.open())


@pytest.mark.parametrize("clean", [False, True])
def test_a_store_whose_recovery_point_cannot_be_read_is_a_stranger(machine: Machine, *, clean: bool) -> None:
    store = filled(machine)
    store.close(clean=clean)
    machine.kill()
    file = machine.disk.names.files["dittomq/watermark"]
    file.write(memoryview(bytes(file.size)), 0, machine.chance)

    assert is_stranger(store, machine.open())


@pytest.mark.parametrize("byte", range(8))
@pytest.mark.parametrize("stop", [Machine.kill, Machine.lose_power])
def test_one_changed_byte_above_the_recovery_point_makes_a_stranger(machine: Machine, byte: int, stop: Callable[[Machine], None]) -> None:
    """The size field as well, which may say that all behind it belongs to one torn record."""
    store, records = above_the_recovery_point(machine)
    stop(machine)
    start, _ = records[5]
    flip(machine, start + byte)

    again = machine.open()

    assert again.end == start
    assert again.recovery_truncation is not None
    assert again.recovery_truncation.saved_bytes == store.end - start
    assert again.dropped_torn_tail
    assert is_stranger(store, again)


def test_whole_records_in_a_later_segment_only_make_a_stranger_too(machine: Machine) -> None:
    store, records = above_the_recovery_point(machine)
    while store.end < 2 * SMALL.segment_bytes:
        store.append([frame(bytes([1]) * 2_000)], 1)
    store.sync()
    machine.lose_power()
    file, start = segment(machine), records[5][0]
    file.write(memoryview(bytes(SMALL.segment_bytes - start)), start, machine.chance)
    file.sync()

    again = machine.open()

    assert again.end == start
    assert is_stranger(store, again)


@pytest.mark.parametrize("kept", [4, 7, 50, 250])
@pytest.mark.parametrize("stop", [Machine.kill, Machine.lose_power])
def test_a_torn_tail_makes_no_stranger_and_is_told(machine: Machine, kept: int, stop: Callable[[Machine], None]) -> None:
    store, records = above_the_recovery_point(machine)
    stop(machine)
    start, end = records[-1]
    segment(machine).write(memoryview(bytes(end - start - kept)), start + kept, machine.chance)
    segment(machine).sync()

    again = machine.open()

    assert again.end == start
    assert again.dropped_torn_tail
    assert not is_stranger(store, again)


def test_a_start_that_drops_nothing_says_so(machine: Machine) -> None:
    filled(machine)
    machine.kill()

    assert not machine.open().dropped_torn_tail


@pytest.mark.parametrize("stop", [Machine.kill, Machine.lose_power])
def test_damage_below_the_recovery_point_makes_no_stranger(machine: Machine, stop: Callable[[Machine], None]) -> None:
    store, records = above_the_recovery_point(machine)
    store.persist_recovery_point(store.flushed, store.flushed)
    stop(machine)
    flip(machine, records[5][0] + 2)

    again = machine.open()

    assert again.damaged == [records[5]]
    assert not is_stranger(store, again)


def test_an_emptied_disk_is_another_replica(machine: Machine) -> None:
    before = filled(machine)
    machine.kill()
    machine.disk = Disk(machine.chance)

    assert machine.open().replica.uuid != before.replica.uuid
