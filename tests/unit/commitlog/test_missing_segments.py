"""A follower whose disk lost a segment, or the end of one: what was durable there is damage, nothing else is, and others give it back."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.state import replica
from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import StoreOpenFailed
from dittomq.group_record import ReplicaId
from tests.simulation.simulated_process import SimCrashed
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, filled, whole_log
from tests.unit.commitlog.repaired_stores import SEGMENT, assert_whole, follow


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(7), replace(SMALL, refills=True))


def stopped(machine: Machine, *, clean: bool = False) -> bytes:
    """A store of three segments that is closed, or killed with half of it dispatched and checkpointed; its log."""
    store = filled(machine)
    log = whole_log(store)
    assert 2 * SEGMENT < len(log) < 3 * SEGMENT
    if clean:
        store.dispatch(store.end)
        store.close(clean=True)
    machine.kill()
    return log


def path_of(number: int) -> str:
    return f"commitlog/{number * SEGMENT:020d}"


def lose(machine: Machine, number: int) -> None:
    storage = machine.storage()
    storage.unlink(path_of(number))
    storage.sync_folder("commitlog")


def shorten(machine: Machine, number: int, size: int) -> None:
    inode = machine.disk.names.files[path_of(number)]
    inode.truncate(size, machine.chance)
    inode.sync()


def segments(machine: Machine) -> dict[str, int]:
    return {path: inode.size for path, inode in machine.disk.names.files.items() if path.startswith("commitlog/")}


def mend(store: Store, log: bytes) -> None:
    for start, end in store.damaged:
        store.repair(start, log[start:end])
    store.file_repaired()


def durable_in(log: bytes, number: int) -> tuple[int, int]:
    return number * SEGMENT, min((number + 1) * SEGMENT, len(log))


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("numbers", [(1,), (2,), (1, 2)])
def test_durable_bytes_of_lost_segments_are_damage_and_are_repaired_whole(
    machine: Machine, numbers: tuple[int, ...], *, clean: bool
) -> None:
    log = stopped(machine, clean=clean)
    for number in numbers:
        lose(machine, number)

    store = machine.open()

    assert (store.end, store.recovery_truncation) == (len(log), None)
    assert store.damaged == list(store.unread.ranges) == [durable_in(log, number) for number in numbers]
    assert [path_of(number) in note for number, note in zip(numbers, store.notes, strict=True)] == [True] * len(numbers)
    mend(store, log)
    assert_whole(store, log)
    machine.lose_power(all_unsynced=True)
    assert_whole(machine.open(), log)


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_only_the_missing_part_of_a_shortened_segment_is_damage(machine: Machine, number: int, *, clean: bool) -> None:
    log = stopped(machine, clean=clean)
    shorten(machine, number, 5_000)
    whole = max(end for _, end in entries(log) if number * SEGMENT < end <= number * SEGMENT + 5_000)

    store = machine.open()

    assert store.damaged == [(whole, durable_in(log, number)[1])]
    assert machine.disk.names.files[path_of(number)].size == SEGMENT
    mend(store, log)
    assert_whole(store, log)


@pytest.mark.parametrize("clean", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_replica_that_lost_a_segment_is_another_one_from_then_on(machine: Machine, number: int, *, clean: bool) -> None:
    stopped(machine, clean=clean)
    before = replica_of(machine)
    lose(machine, number)
    store = machine.open()
    assert store.replica.uuid == before.uuid
    assert store.replica.incarnation != before.incarnation

    store.close(clean=True)
    machine.kill()

    assert machine.open().replica == store.replica


def replica_of(machine: Machine) -> ReplicaId:
    state = replica.load(machine.beside())
    assert state is not None
    return state.id


def test_what_was_not_durable_yet_only_ends_the_log(machine: Machine) -> None:
    store = follow(machine.open())
    log = whole_log(filled(Machine(random.Random(1))))
    at = entries(log)
    store.write_chunk(0, log[: at[5][0]])
    store.sync()
    store.persist_recovery_point(store.flushed, 0)
    store.write_chunk(at[5][0], log[at[5][0] : SEGMENT])
    store.write_chunk(SEGMENT, log[SEGMENT : 2 * SEGMENT])
    machine.kill()
    shorten(machine, 0, at[5][1] - 10)

    again = machine.open()

    assert (again.end, again.damaged) == (at[5][0], [])
    assert again.recovery_truncation is not None
    assert again.recovery_truncation.saved_bytes > SEGMENT


def test_wherever_a_start_over_a_lost_segment_dies_the_next_one_knows_what_is_gone() -> None:
    done, operations = False, 0
    while not done:
        machine = Machine(random.Random(operations), replace(SMALL, refills=True))
        log = stopped(machine, clean=True)
        before = replica_of(machine)
        lose(machine, 1)
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        try:
            Store.open(storage, machine.options, chance=machine.chance, wall_ms=1_000)
            done = True
        except SimCrashed:
            pass
        machine.lose_power()

        again = machine.open()

        assert again.damaged == [durable_in(log, 1)], f"dead after {operations} operations"
        assert again.replica != before, f"dead after {operations} operations"
        operations += 1
    assert operations > 8


@pytest.mark.parametrize("harm", ["all are gone", "all are short", "one is longer"])
def test_no_segment_is_created_without_a_whole_one_or_with_another_size(machine: Machine, harm: str) -> None:
    stopped(machine)
    for number in range(3):
        if harm == "all are gone":
            lose(machine, number)
        elif harm == "all are short":
            shorten(machine, number, SEGMENT // 2)
        elif number == 1:
            machine.disk.names.files[path_of(number)].truncate(2 * SEGMENT, machine.chance)
    before = segments(machine)

    with pytest.raises(StoreOpenFailed):
        machine.open()

    assert segments(machine) == before


def test_a_master_is_refused_and_told_what_to_do() -> None:
    machine = Machine(random.Random(7))
    stopped(machine)
    lose(machine, 1)

    with pytest.raises(StoreOpenFailed, match="is missing between others; bring it back, or empty the data_dir to copy all from the group"):
        machine.open()
    assert path_of(1) not in machine.disk.names.files


def test_master_refused_for_a_lost_segment_is_unchanged_when_it_returns() -> None:
    machine = Machine(random.Random(7))
    log = stopped(machine, clean=True)
    lost = machine.disk.names.files[path_of(1)]
    held = lost.read(lost.size, 0)
    lose(machine, 1)
    with pytest.raises(StoreOpenFailed, match="is missing between others"):
        machine.open()

    file = machine.storage().open(path_of(1), create=True)
    file.pwrite(held, 0)
    file.fdatasync()

    again = machine.open()
    assert (again.stopped, whole_log(again)) == (StopKind.CLEAN, log)
