"""A disk that is full: what has many producers to write down refuses what there is no room for, before it changes anything."""

import contextlib
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from dittomq.commitlog.store import StopKind, Store
from dittomq.copies import LogStart
from dittomq.errors import DiskFull
from dittomq.offsets import Epoch, PhysicalOffset
from tests.simulation.disk import BOUNDLESS, Operation
from tests.support.stores import SMALL, Machine, frame, whole_log
from tests.unit.commitlog.full_disk import leave

OPTIONS = replace(SMALL, min_free_bytes=32 * 1024)
SEGMENT = OPTIONS.segment_bytes
PRODUCERS = 300
EACH = 40
SNAPSHOT = PRODUCERS * EACH * 8


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(11), OPTIONS)


def busy(machine: Machine) -> Store:
    """A store of hundreds of producers, all of it confirmed and in the queues, and nothing of it checkpointed."""
    store = machine.lead()
    for number in range(PRODUCERS):
        store.append([frame(*[b"x"] * EACH, producer=f"producer-{number:03}", first=0)], number)
    store.dispatch(store.end)
    store.sync()
    store.persist_recovery_point(store.end, store.end)
    return store


def fill_up(store: Store) -> None:
    """Append until the store takes no more."""
    with contextlib.suppress(DiskFull):
        while True:
            store.append([frame(bytes(2_000))], 900)


def remembers(store: Store) -> bool:
    """Whether all that was stored is known."""
    return all(
        store.find_sequence(f"producer-{number:03}", sequence) is not None for number in range(PRODUCERS) for sequence in (0, EACH - 1)
    )


def test_appends_that_come_during_a_drop_leave_it_the_room_that_it_needs(machine: Machine) -> None:
    store = busy(machine)
    leave(machine, 2 * SNAPSHOT + 500_000)

    def seen(operation: Operation) -> None:
        if operation.new_name == "dittomq/dropped":
            machine.disk.watch = lambda _: None
            fill_up(store)

    machine.disk.watch = seen
    assert store.drop_before(3 * SEGMENT) == 3 * SEGMENT

    machine.kill()
    machine.disk.capacity_bytes = BOUNDLESS
    assert machine.open().min_offset == 3 * SEGMENT


def test_a_full_store_of_many_producers_has_room_to_be_dropped_from(machine: Machine) -> None:
    store = busy(machine)
    leave(machine, SNAPSHOT + 500_000)
    fill_up(store)

    assert store.drop_before(3 * SEGMENT) == 3 * SEGMENT


@pytest.mark.parametrize("free", [0, 8_192, SNAPSHOT])
def test_truncation_without_room_changes_nothing_and_is_done_later(machine: Machine, free: int) -> None:
    """It is done when the disk has room."""
    store = busy(machine)
    store.checkpoint()
    end, to, files = store.end, 2 * SEGMENT, machine.files()
    leave(machine, free)

    with pytest.raises(DiskFull):
        store.truncate(to)

    assert (store.end, machine.files()) == (end, files)
    assert remembers(store)
    machine.disk.capacity_bytes = BOUNDLESS
    assert store.truncate(to).saved_bytes == end - to
    assert store.end == to


def appends(store: Store) -> None:
    store.append([frame(b"more")], 900)
    store.sync()


@pytest.mark.parametrize("first", [lambda _: None, appends], ids=["as it is", "and one more"])
def test_a_store_is_closed_cleanly_though_the_disk_has_no_room_for_its_producers(machine: Machine, first: Callable[[Store], None]) -> None:
    store = busy(machine)
    first(store)
    log = whole_log(store)
    leave(machine, 20_000)

    store.close(clean=True)

    machine.lose_power()
    machine.disk.capacity_bytes = BOUNDLESS
    again = machine.open()
    assert (again.stopped, again.notes, whole_log(again)) == (StopKind.CLEAN, [], log)
    again.dispatch(again.end)
    assert again.queue_range("orders", 0)[1] >= PRODUCERS * EACH
    assert remembers(again)


def test_queues_of_deleted_topics_stay_until_there_is_room_to_note_it(machine: Machine) -> None:
    store = busy(machine)
    files, held = machine.files(), store.queue_range("orders", 0)
    leave(machine, 0)

    with pytest.raises(DiskFull):
        store.hide({("orders", 0): held[1]})

    assert (machine.files(), store.queue_range("orders", 0)) == (files, held)
    machine.disk.capacity_bytes = BOUNDLESS
    store.hide({("orders", 0): held[1]})
    store.append([frame(b"more")], 900)
    store.sync()
    assert store.queue_range("orders", 0) == (held[1], held[1])


def test_empty_log_without_room_to_note_its_start_moves_later(machine: Machine) -> None:
    """It moves when the disk has room."""
    store = machine.open()
    queues = {(f"topic-{number:03}", queue): 7 for number in range(PRODUCERS) for queue in range(4)}
    log_start = LogStart(PhysicalOffset(SEGMENT), queues, queues)
    leave(machine, 30_000)

    with pytest.raises(DiskFull):
        store.set_log_start(log_start)
    assert store.min_offset == 0
    machine.disk.capacity_bytes = BOUNDLESS
    store.set_log_start(log_start)

    assert store.min_offset == SEGMENT
    machine.kill()
    assert machine.open().queue_range("topic-007", 3) == (7, 7)


def test_a_full_disk_takes_promises_adopted_epochs_births_and_revisions(machine: Machine) -> None:
    store = busy(machine)
    leave(machine, 0)

    store.take_birth("4f")
    store.promise(Epoch(9))
    store.adopt_epoch(Epoch(7))
    store.persist_revision(12)

    machine.lose_power(all_unsynced=True)
    machine.disk.capacity_bytes = BOUNDLESS
    again = machine.open()
    assert (again.birth, again.promised_epoch, again.adopted_epoch, again.record_revision) == ("4f", 9, 7, 12)
    assert again.replica == store.replica
