"""A master that led without damaged bytes drops them, or gets them back: their numbers are known ever after, or not left out any more."""

import random

import pytest

from dittomq.commitlog.store import Store
from tests.support.stores import SMALL, Machine, filled, frame, open_epoch, whole_log
from tests.unit.commitlog.reserved_offsets import given, lead, lost

SEGMENT = SMALL.segment_bytes
MANY = 60


def led(machine: Machine) -> tuple[Store, tuple[int, int]]:
    """A store whose newest messages rotted, which leapt over them and went on in queue 4 only; and where they lay."""
    store, _, lies = lost(machine, 3)
    lead(store)
    for at in range(MANY):
        store.append([frame(b"z" * 900, queue=4)], 100 + at)
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)
    return store, lies


def dropped(machine: Machine) -> tuple[Store, dict[tuple[str, int], int]]:
    """The same, that has dropped them; the offsets that come next."""
    store, (_, end) = led(machine)
    store.drop_before(end + SEGMENT)
    assert store.min_offset >= end
    return store, store.next_offsets("orders")


@pytest.mark.parametrize("checkpoint", ["kept", "lost"])
def test_emptied_queues_go_on_behind_the_reserved_offsets(machine: Machine, checkpoint: str) -> None:
    """Also when the checkpoint is lost."""
    store, expected = dropped(machine)
    store.close(clean=True)
    if checkpoint == "lost":
        del machine.disk.names.files["dittomq/checkpoint"]

    again = machine.lead()

    assert [given(again, queue) for queue in range(5)] == [expected["orders", queue] for queue in range(5)]


def test_a_copy_that_begins_behind_it_gives_none_of_its_numbers(machine: Machine) -> None:
    store, expected = dropped(machine)
    copy = Machine(random.Random(8)).open()

    copy.set_log_start(store.log_start())
    copy.replace_epoch_history(store.epoch_history)
    for at in range(store.min_offset, store.end, SEGMENT):
        copy.write_chunk(at, store.read(at, SEGMENT))
    copy.dispatch(copy.sync())

    open_epoch(copy)
    assert [given(copy, queue) for queue in range(5)] == [expected["orders", queue] for queue in range(5)]


def test_slave_learns_reserved_offsets_of_ranges_that_its_master_dropped(machine: Machine) -> None:
    """It could not read them."""
    store, (start, end) = led(Machine(random.Random(7)))
    slave = machine.open()
    slave.replace_epoch_history(store.epoch_history)
    while (at := slave.end) < store.end:
        stop = store.segment_of(at)[1]
        if at == start:
            slave.skip_range(start, min(end, stop))
            start = slave.end if slave.end < end else -1
        else:
            slave.write_chunk(at, store.read(at, min(start if at < start else stop, stop) - at))
    slave.dispatch(slave.sync())
    slave.persist_recovery_point(slave.end, slave.end)
    store.drop_before(end + SEGMENT)
    assert slave.unread.ranges

    slave.drop_before(store.min_offset, store.log_start())
    slave.close(clean=True)
    del machine.disk.names.files["dittomq/checkpoint"]

    again, expected = machine.open(), store.next_offsets("orders")
    open_epoch(again)
    assert [given(again, queue) for queue in range(5)] == [expected["orders", queue] for queue in range(5)]


def test_former_master_without_damaged_bytes_continues_as_its_master_does(machine: Machine) -> None:
    """It follows again, and goes on so once it has those bytes."""
    store, log, (start, end) = lost(machine)
    assert lead(store) > 0
    end_before = store.end
    given(store)
    master = filled(Machine(random.Random(7)))
    assert whole_log(master) == log

    store.truncate(end_before)
    store.repair(start, log[start:end])
    store.file_repaired()
    store.close(clean=True)
    again = machine.open()

    assert [given(again, queue) for queue in range(5)] == [given(master, queue) for queue in range(5)]


def test_who_has_got_the_damage_back_and_drops_it_leaves_out_none_of_its_numbers(machine: Machine) -> None:
    store, log, (start, end) = lost(machine)
    assert lead(store) > 0
    end_before = store.end
    given(store)
    master = filled(Machine(random.Random(7)))
    for at in range(MANY):
        master.append([frame(b"z" * 900, queue=4)], 100 + at)
    master.dispatch(master.sync())

    store.truncate(end_before)
    store.repair(start, log[start:end])
    store.file_repaired()
    while (at := store.end) < master.end:
        store.write_chunk(at, master.read(at, store.segment_of(at)[1] - at))
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)
    assert store.drop_before(end + SEGMENT) >= end
    store.close(clean=True)
    again = machine.open()

    assert again.log_start().reserved_below == {}
    assert [given(again, queue) for queue in range(5)] == [given(master, queue) for queue in range(5)]
