"""Damage that hides which queue offsets and sequences its messages have: none of them is given again, whoever leads, whenever it stops."""

import random
from typing import Any

import pytest

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.store import Store
from dittomq.epoch_history import EpochEntry
from dittomq.errors import UnknownProducerId
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from tests.support.record_damage import HARMS, entries, loses
from tests.support.stores import Machine, dies, dispatched, filled, frame, open_epoch, places, queues_of, whole_log
from tests.unit.commitlog.repaired_stores import rot
from tests.unit.commitlog.reserved_offsets import given, lead, lost

KEY = ("orders", 2)
NEWEST = 59  # the sequence of the last message that `filled` appends, and 19 is its offset in queue 2
SMALLEST_RECORD = 91
UNKNOWN = "unknown"  # no table names it


def unknown_lost(machine: Machine) -> tuple[Store, bytes, tuple[int, int]]:
    """The same, where the rotten records are all that there is of a topic."""
    store = filled(machine)
    store.append([frame(b"one", b"two", b"three", topic=UNKNOWN)], 99)
    store.persist_recovery_point(store.sync(), 0)
    log = whole_log(store)
    machine.kill()
    start, end = entries(log)[-3][0], len(log)
    rot(machine, log, loses(0, end - start), start, end=end)
    return machine.open(), log, (start, end)


def first_of(store: Store, topic: str) -> int:
    """The offset that a topic's message gets."""
    (answer,) = store.append([frame(b"new", topic=topic)], 99).placed
    return int(places(answer)[0].queue_offset)


@pytest.mark.parametrize("name", HARMS)
def test_unreadable_range_at_a_start_blocks_offsets_until_it_is_settled(machine: Machine, name: str) -> None:
    log = whole_log(filled(machine))
    machine.kill()
    start, end = entries(log)[-2]
    rot(machine, log, HARMS[name], start, end=end)

    store = machine.lead()

    assert store.unread.ranges == ((start, end),)
    with pytest.raises(AssertionError, match="numbers that damage hides"):
        store.append([frame(b"new")], 99)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_master_without_the_newest_messages_reuses_none_of_their_offsets(machine: Machine, count: int) -> None:
    """Nor their sequences."""
    store, log, (start, end) = lost(machine, count)

    reserved_below = lead(store)
    offset = given(store)
    (again,) = store.append([frame(b"x" * 900, b"y" * 100, queue=2, producer="p", first=NEWEST - 1)], 99).placed

    assert reserved_below == (end - start) // SMALLEST_RECORD
    assert offset >= 20
    assert isinstance(again, UnknownProducerId)
    with pytest.raises(UnknownProducerId):
        store.find_sequence("p", NEWEST)
    store.repair(start, log[start:end])
    store.file_repaired()
    numbers = [each for units in queues_of(whole_log(store), store.segment_bytes).values() for each, _ in units if units]
    assert len(numbers) == len(entries(log)) + 1
    assert all(len({number for number, _ in units}) == len(units) for units in queues_of(whole_log(store), store.segment_bytes).values())


def test_queues_that_have_messages_behind_the_damage_go_on_as_they_are(machine: Machine) -> None:
    store, _, _ = lost(machine, 2, before=2)  # of queue 1; only queue 2 has messages behind it

    lead(store)

    assert given(store, 2) == 20
    assert given(store, 1) > 19
    assert given(store, 0) > 19
    assert given(store, 4) > 0, "its first messages may lie there too"


def test_later_topic_begins_at_0_when_the_damaged_master_knew_its_topics(
    machine: Machine,
) -> None:
    """It wrote the damaged bytes itself."""
    store, _, _ = lost(machine)
    lead(store, opener=0)

    assert first_of(store, "later") == 0


@pytest.mark.parametrize("stops", ["never", "killed", "power loss", "cleanly"])
def test_unnamed_topic_in_anothers_damage_gets_no_queue_offset_twice(machine: Machine, stops: str) -> None:
    """No table names it."""
    store, log, (start, end) = unknown_lost(machine)
    lead(store, opener=1)
    if stops != "never":
        store.close(clean=True) if stops == "cleanly" else machine.kill() if stops == "killed" else machine.lose_power(all_unsynced=True)
        store = machine.open()
        open_epoch(store, 1)

    offset = first_of(store, UNKNOWN)
    store.dispatch(store.end)
    store.repair(start, log[start:end])
    store.file_repaired()

    assert offset >= 3
    found = queues_of(whole_log(store), store.segment_bytes)[UNKNOWN, 0]
    assert [number for number, _ in found] == [0, 1, 2, offset]
    page = store.read_queue(UNKNOWN, 0, 0, 10, 10_000)
    assert [message.body for message in page.messages] == [b"one", b"two", b"three"]
    assert store.read_queue(UNKNOWN, 0, offset, 10, 10_000).messages[0].body == b"new"


def test_topics_begin_at_0_again_when_the_damage_is_whole(machine: Machine) -> None:
    store, log, (start, end) = unknown_lost(machine)
    lead(store, opener=1)
    assert first_of(store, "made before") >= 3

    store.repair(start, log[start:end])
    store.file_repaired()

    assert first_of(store, "made after") == 0
    assert first_of(store, UNKNOWN) == 3
    machine.lose_power(all_unsynced=True)
    again = machine.open()
    open_epoch(again, 1)
    assert first_of(again, "made last") == 0


@pytest.mark.parametrize("power", [False, True])
def test_queue_reserves_once_and_remembers_it_whenever_the_store_stops(machine: Machine, power: bool) -> None:
    store, _, _ = lost(machine)
    lead(store)
    expected = store.next_offsets("orders")
    machine.lose_power(all_unsynced=True) if power else machine.kill()

    again = machine.open()

    assert again.unread.ranges == ()
    assert again.reserve_offsets([], 0) == 0
    assert again.next_offsets("orders") == expected
    assert given(again) == expected[KEY]
    again.dispatch(again.end)
    again.close(clean=True)
    once_more = machine.open()
    assert once_more.next_offsets("orders") == expected | {KEY: expected[KEY] + 1}


@pytest.mark.parametrize("taken_in", ["not", "taken in", "before a start"])
def test_a_truncation_of_what_came_behind_the_reservation_gives_nothing_back(machine: Machine, taken_in: str) -> None:
    store, _, _ = lost(machine)
    lead(store)
    end = store.end
    offset = given(store)
    if taken_in != "not":
        store.dispatch(store.end)
        store.checkpoint()
    if taken_in == "before a start":
        store.close(clean=True)
        store = machine.open()

    store.truncate(end)
    open_epoch(store)

    assert given(store) == offset


@pytest.mark.parametrize("taken_in", [True, False])
@pytest.mark.parametrize("below", [0, 1, 5])
def test_a_truncation_that_takes_the_damage_with_it_takes_the_reservation_too(machine: Machine, taken_in: bool, below: int) -> None:
    store, log, (start, _) = lost(machine, 2)
    lead(store, opener=1)
    given(store)
    if taken_in:
        store.dispatch(store.end)
        store.checkpoint()
    to = [position for position, _ in entries(log) if position <= start][-1 - below]
    left = queues_of(log[:to], store.segment_bytes)

    store.truncate(to)
    open_epoch(store, 1)

    assert store.unread.ranges == ()
    assert [given(store, queue) for queue in range(5)] == [len(left.get(("orders", queue), ())) for queue in range(5)]
    assert first_of(store, UNKNOWN) == 0


def test_truncation_between_two_reservations_gives_nothing_of_the_first_back(machine: Machine) -> None:
    store, _, _ = lost(machine)
    lead(store)
    first = store.next_offsets("orders")
    start = store.append([frame(b"rots")], 99).start
    store.persist_recovery_point(store.sync(), 0)
    log = whole_log(store)
    machine.kill()
    rot(machine, log, loses(0, len(log) - start), start, end=len(log))
    store = machine.open()
    assert lead(store) > 0

    store.truncate(start)
    open_epoch(store)

    assert given(store) >= first[KEY]


def test_reserved_offsets_without_a_damage_range_outlive_a_truncation(machine: Machine) -> None:
    """The checkpoint does not say where the damage lies."""
    store, _, (start, _) = lost(machine)
    lead(store)
    expected = store.next_offsets("orders")
    machine.kill()
    held = state_file.load_json(machine.storage(), "checkpoint", b"CHEK", dict[str, Any]) or {}
    assert held.pop("leap_low") == start
    state_file.save_json(machine.storage(), "checkpoint", b"CHEK", held)
    store = machine.open()

    store.truncate(start)
    open_epoch(store)

    assert given(store) == expected[KEY]


def test_interrupted_reservation_is_made_at_least_as_far_by_the_next_start() -> None:
    done, operations = False, 0
    while not done:
        machine = Machine(random.Random(7))
        store, _, _ = lost(machine)
        machine.faults.operations_to_live = operations
        done = dies(lambda store=store: store.reserve_offsets([], 0))  # type: ignore[misc]
        machine.lose_power()

        again = machine.open()
        again.reserve_offsets([], 0)
        open_epoch(again)

        assert given(again) >= 19 + 1
        operations += 1
    assert operations > 10


def test_damage_in_indexed_bytes_hides_nothing(machine: Machine) -> None:
    """Also after the next start."""
    store = dispatched(machine)
    log = whole_log(store)
    start, end = entries(log)[-2]
    rot(machine, log, HARMS["body"], start, end=end)
    assert store.verify(start, end).damaged == ((start, end),)
    assert not store.unread.ranges
    store.close(clean=True)

    again = machine.lead()

    assert (again.damaged, again.unread.ranges) == ([(start, end)], ())
    assert given(again) == 20


def test_what_is_unread_stays_so_while_the_checkpoint_moves_on_until_it_is_repaired(machine: Machine) -> None:
    store, log, (start, end) = lost(machine, before=2)
    store.dispatch(store.end)
    store.close(clean=True)

    again = machine.open()
    assert again.unread.ranges == ((start, end),)
    again.repair(start, log[start:end])
    assert not again.unread.ranges
    machine.lose_power(all_unsynced=True)
    healed = machine.open()
    assert healed.unread.ranges == ((start, end),), "no checkpoint knows what was mended"
    assert healed.salvage(start)
    healed.file_repaired()
    machine.lose_power(all_unsynced=True)

    last = machine.lead()
    assert (last.damaged, last.unread.ranges) == ([], ())
    assert given(last) == 20


def test_missing_range_named_by_a_master_is_unread_until_it_is_fetched(machine: Machine) -> None:
    log = whole_log(filled(Machine(random.Random(1))))
    at = entries(log)
    store = machine.open()
    store.replace_epoch_history((EpochEntry(Epoch(1), 0, 7_001, PhysicalOffset(0)),))
    store.write_chunk(0, log[: at[4][0]])
    store.skip_range(at[4][0], at[5][1])
    store.write_chunk(at[5][1], log[at[5][1] : at[8][1]])
    store.sync()
    store.dispatch(store.end)
    store.close(clean=True)

    again = machine.open()

    assert again.unread.ranges == ((at[4][0], at[5][1]),)


def test_with_its_register_damaged_a_store_finds_again_what_it_has_not_read(machine: Machine) -> None:
    store, _, (start, end) = lost(machine, before=2)
    store.dispatch(store.end)
    store.close(clean=True)
    inode = machine.disk.names.files["dittomq/damaged"]
    inode.write(memoryview(b"\xff" * 8), 20, machine.chance)
    inode.sync()

    again = machine.open()

    assert (again.damaged, again.unread.ranges) == ([(start, end)], ((start, end),))


def test_store_without_its_checkpoint_reads_all_and_knows_what_damage_held(machine: Machine) -> None:
    """It knows of no damage what lies there."""
    store = dispatched(machine)
    log = whole_log(store)
    start, end = entries(log)[4]
    rot(machine, log, HARMS["body"], start, end=end)
    store.verify(start, end)
    store.close(clean=True)
    del machine.disk.names.files["dittomq/checkpoint"]

    assert machine.open().unread.ranges == ((start, end),)


def test_a_reader_is_told_of_a_number_that_was_left_out(machine: Machine) -> None:
    store, _, _ = lost(machine)
    lead(store)
    offset = given(store)
    store.dispatch(store.end)

    found = store.read_queue("orders", 2, offset, 1, 10_000)

    assert [message.body for message in found.messages] == [b"new"]
    assert store.queue_range("orders", 2) == (QueueOffset(0), QueueOffset(offset + 1))


@pytest.mark.parametrize("count", [3, 40], ids=["each record by itself", "many at once"])
def test_queue_begun_by_another_master_skips_no_offset(machine: Machine, count: int) -> None:
    """This one had reserved some."""
    store, log, _ = unknown_lost(machine)
    assert store.reserve_offsets([], 1) > 0
    master = filled(Machine(random.Random(9)))
    master.append([frame(b"one", b"two", b"three", topic=UNKNOWN)], 99)
    assert whole_log(master) == log
    master.append([frame(*[b"more"] * count, topic="later")], 99)

    store.write_chunk(store.end, whole_log(master)[len(log) :])
    store.dispatch(store.sync())

    open_epoch(store, 1)
    assert first_of(store, "later") == count
    assert first_of(store, "latest") > 0, "of what nobody knows the first may lie in the damage"
