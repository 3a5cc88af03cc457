"""A copy beside a store takes its place: what the next start finds, and what stays the node's."""

import random

import pytest

from dittomq.commitlog import store_swap
from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.store import Store
from dittomq.commitlog.store_swap import StoreSwap
from dittomq.copies import LogStart
from dittomq.epoch_history import EpochEntry
from dittomq.errors import StoreOpenFailed
from dittomq.offsets import Epoch, PhysicalOffset
from tests.support.failing_storage import Crashed, CrashingStorage, Harm
from tests.support.stores import SMALL, Machine, filled, whole_log

EPOCH_HISTORY = (EpochEntry(Epoch(3), 0, 9, PhysicalOffset(0)),)
OLD_ENDS = PhysicalOffset(5_000)


@pytest.fixture
def machine() -> Machine:
    """A slave's store with little in it; a whole copy of another log's later half waits beside it."""
    log = whole_log(filled(Machine(random.Random(2)), frames=60))
    machine = Machine(random.Random(1))
    store = machine.open()
    store.replace_epoch_history(EPOCH_HISTORY)
    storage = store._storage  # noqa: SLF001 - the door that this store was opened by
    store_swap.make(storage, machine.chance)
    copy = Store.open(store_swap.copy_of(storage), SMALL, chance=machine.chance, wall_ms=1_000)
    copy.set_log_start(LogStart(PhysicalOffset(SMALL.segment_bytes)))
    copy.replace_epoch_history(EPOCH_HISTORY)
    for at in range(SMALL.segment_bytes, len(log), SMALL.segment_bytes):
        copy.write_chunk(at, log[at : at + SMALL.segment_bytes])
    copy.dispatch(copy.end)
    copy.close(clean=True)
    store.close(clean=True)
    return machine


def test_a_start_that_swaps_says_which_bytes_have_gone_and_the_next_one_does_not(machine: Machine) -> None:
    store_swap.intend(machine.storage(), StoreSwap(PhysicalOffset(0), OLD_ENDS))

    store = machine.open()
    assert any("bytes 0 to 5,000 of the old one" in note for note in store.notes)
    store.close(clean=True)
    assert not any("of the old one" in note for note in machine.open().notes)


def test_a_store_between_two_is_shown_to_nobody(machine: Machine) -> None:
    store_swap.intend(machine.storage(), StoreSwap(PhysicalOffset(0), OLD_ENDS))
    door = CrashingStorage(machine.storage())
    door.strike_in(5, Harm.CRASH)
    with pytest.raises(Crashed):
        store_swap.finish(door)
    machine.kill()

    with pytest.raises(StoreOpenFailed, match="a new copy is taking its place"):
        open_on_disk(machine.storage(), "store")
    machine.open()
    assert open_on_disk(machine.storage(), "store").starts[0] == SMALL.segment_bytes


def test_without_an_intent_the_copy_waits_and_the_store_is_what_it_was(machine: Machine) -> None:
    store = machine.open()

    assert store.min_offset == 0
    assert store_swap.is_begun(machine.storage())


def test_pins_and_tables_are_the_nodes_and_stay(machine: Machine) -> None:
    storage = machine.storage()
    storage.make_folder("config")
    for path in ("config/topics.json", "dittomq/pins"):
        storage.open(path, create=True).pwrite(b"of the node", 0)
    store_swap.intend(storage, StoreSwap(PhysicalOffset(0), OLD_ENDS))

    machine.open()

    assert machine.files()["config/topics.json"] == machine.files()["dittomq/pins"] == b"of the node"


def test_a_copy_that_is_thrown_away_leaves_nothing_behind(machine: Machine) -> None:
    store_swap.discard(machine.storage())

    assert not [path for path in machine.files() if path.startswith(("dittomq/resync", "dittomq/aside"))]


def test_a_damaged_intent_refuses_the_start_and_changes_nothing(machine: Machine) -> None:
    storage = machine.storage()
    store_swap.intend(storage, StoreSwap(PhysicalOffset(0), OLD_ENDS))
    storage.open("dittomq/swap").pwrite(b"damaged", 25)
    before = machine.files()

    with pytest.raises(StoreOpenFailed, match="dittomq/swap is damaged"):
        machine.open()
    assert machine.files() == before


def test_swap_is_intended_only_with_room_and_done_in_it(machine: Machine) -> None:
    """None is intended on a full disk."""
    storage = machine.storage()
    machine.disk.capacity_bytes = used = machine.disk.used_bytes()
    assert not store_swap.has_room(storage)
    while not store_swap.has_room(storage):
        machine.disk.capacity_bytes += 4_096

    store_swap.intend(storage, StoreSwap(PhysicalOffset(0), OLD_ENDS))
    machine.kill()

    assert machine.disk.capacity_bytes < used + 200_000
    assert machine.open().min_offset == SMALL.segment_bytes
