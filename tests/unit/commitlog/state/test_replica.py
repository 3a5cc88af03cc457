"""What a replica must not forget (`dittomq/replica`): it is there after any crash, and no damaged slot takes it back."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from dittomq.commitlog.state import replica
from dittomq.commitlog.store import Store
from dittomq.errors import InvalidField, StorageFailure, StoreOpenFailed
from dittomq.offsets import Epoch
from tests.support.stores import Machine, filled

PATH = "dittomq/replica"
SLOT = 4_096


def known(store: Store) -> tuple[str, int, int, int]:
    return store.birth, store.adopted_epoch, store.promised_epoch, store.record_revision


def spoil(machine: Machine, slot: int) -> None:
    file = machine.disk.names.files[PATH]
    at = slot * SLOT + 40
    file.write(memoryview(bytes([file.read(1, at)[0] ^ 1])), at, machine.chance)
    file.sync()


def test_a_new_store_is_a_new_replica_that_promised_nothing(machine: Machine) -> None:
    store, other = machine.open(), Machine(random.Random(4)).open()

    assert known(store) == ("", 0, 0, 0)
    assert store.replica != other.replica
    assert {len(store.replica.uuid), len(store.replica.incarnation)} == {32}


def test_everything_is_durable_when_it_returns(machine: Machine) -> None:
    store = machine.open()
    store.take_birth("4f")
    store.promise(Epoch(8))
    store.adopt_epoch(Epoch(6))
    store.persist_revision(31)

    machine.lose_power(all_unsynced=True)

    again = machine.open()
    assert known(again) == known(store) == ("4f", 6, 8, 31)
    assert again.replica == store.replica


def test_nothing_ever_decreases(machine: Machine) -> None:
    store = machine.open()
    store.promise(Epoch(8))
    store.promise(Epoch(7))
    store.adopt_epoch(Epoch(6))
    store.adopt_epoch(Epoch(5))
    store.persist_revision(31)
    store.persist_revision(30)

    assert known(store) == ("", 6, 8, 31)


def test_an_adopted_epoch_is_promised(machine: Machine) -> None:
    store = machine.open()
    store.promise(Epoch(2))

    store.adopt_epoch(Epoch(3))

    assert known(store) == ("", 3, 3, 0)


def test_another_birth_has_no_known_revision_and_keeps_what_was_promised(machine: Machine) -> None:
    store = machine.open()
    store.take_birth("4f")
    store.promise(Epoch(8))
    store.persist_revision(31)
    store.take_birth("4f")
    assert known(store) == ("4f", 0, 8, 31)

    store.take_birth("")

    assert known(store) == ("", 0, 8, 0)


def test_a_birth_that_no_slot_holds_is_refused_and_fails_nothing(machine: Machine) -> None:
    store = machine.open()

    with pytest.raises(InvalidField, match="birth"):
        store.take_birth("4" * 257)
    store.take_birth("4f")


@pytest.mark.parametrize("slot", [0, 1])
def test_a_damaged_slot_takes_nothing_back_and_is_written_again(machine: Machine, slot: int) -> None:
    store = machine.open()
    store.promise(Epoch(8))
    store.close(clean=True)
    spoil(machine, slot)
    machine.open().close(clean=True)
    spoil(machine, 1 - slot)

    assert machine.open().promised_epoch == 8


def test_with_both_slots_damaged_the_store_is_refused(machine: Machine) -> None:
    filled(machine).close(clean=True)
    spoil(machine, 0)
    spoil(machine, 1)

    with pytest.raises(StoreOpenFailed, match="dittomq/replica is damaged: neither of its two slots is whole; restore it, or empty"):
        machine.open()


def test_a_promise_whose_sync_fails_fails_the_store(machine: Machine) -> None:
    store = machine.open()
    machine.faults.failing_syncs = 1

    with pytest.raises(StorageFailure):
        store.promise(Epoch(2))

    assert store.promised_epoch == 0
    with pytest.raises(StorageFailure):
        store.adopt_epoch(Epoch(1))


def test_threads_that_change_it_at_once_lose_nothing_of_each_other(machine: Machine) -> None:
    store = machine.open()
    with ThreadPoolExecutor(4) as threads:
        for number in range(1, 50):
            threads.submit(store.promise, Epoch(number))
            threads.submit(store.persist_revision, number)
            threads.submit(store.adopt_epoch, Epoch(number // 2))
            threads.submit(store.take_birth, "4f")

    state = replica.load(machine.beside())

    assert state is not None
    assert (state.birth, state.adopted, state.promised) == ("4f", 24, 49)
    assert known(store) == (state.birth, state.adopted, state.promised, state.revision)
