"""Damage that is noted, stepped over, and mended with another copy's bytes; holes that a master leaves in its slave's log."""

import contextlib

import pytest

from dittomq.commitlog.state.damage_map import DamagedRange, DamagedRanges
from dittomq.commitlog.store import Store
from dittomq.errors import CorruptRecord, InvalidField, OffsetOutOfRange, UnknownProducerId
from tests.support.record_damage import HARMS, entries, harmed, served
from tests.support.stores import Machine, dispatched, frame, whole_log
from tests.unit.commitlog.bad_sectors import three_messages
from tests.unit.commitlog.repaired_stores import SEGMENT, assert_whole, copy, follow, rot


def known_sequences(store: Store, count: int) -> dict[int, int]:
    """Where the producer's sequences lie, those left out that are expired: behind a gap what came before it is."""
    known = {}
    for sequence in range(count):
        with contextlib.suppress(UnknownProducerId):
            found = store.find_sequence("p", sequence)
            assert found is not None, "a sequence in the log is known or expired"
            known[sequence] = int(found.physical_offset)
    return known


@pytest.mark.parametrize("name", HARMS)
def test_what_a_start_finds_damaged_is_repaired_to_the_last_byte_and_stays_so(machine: Machine, name: str) -> None:
    log, (start, end) = harmed(machine, HARMS[name])
    store = machine.open()
    store.dispatch(store.end)
    assert store.damaged == [(start, end)]

    store.repair(start, log[start:end])
    store.file_repaired()

    assert_whole(store, log)
    machine.lose_power(all_unsynced=True)
    again = machine.open()
    assert_whole(again, log)
    positions = [low for low, _ in entries(log)]
    assert known_sequences(again, len(positions)) == dict(list(enumerate(positions))[positions.index(start) :])


@pytest.mark.parametrize("name", HARMS)
def test_cold_damage_is_noted_by_whoever_verifies_it_and_nothing_else_is(machine: Machine, name: str) -> None:
    store = dispatched(machine)
    log = whole_log(store)
    start, end = entries(log)[20]
    assert store.verify(0, store.end).damaged == ()
    rot(machine, log, HARMS[name], start, end=end)

    around = store.verify(start + (end - start) // 2, start + (end - start) // 2 + 1)

    assert around.start <= start
    assert around.end >= end
    assert around.damaged == ((start, end),)
    assert store.damaged == [(start, end)]
    machine.kill()
    assert machine.open().damaged == [(start, end)]


def test_a_range_is_repaired_piece_by_piece_and_what_is_left_stays_noted(machine: Machine) -> None:
    store = dispatched(machine)
    log = whole_log(store)
    at = [pair for pair in entries(log) if pair[0] >= SEGMENT][2:5]
    for start, end in at:
        rot(machine, whole_log(store), HARMS["magic"], start, end=end)
    (low, _), (middle, _), (_, high) = at
    assert store.verify(low, high).damaged == ((low, high),)

    store.repair(low, log[low:middle])
    store.file_repaired()

    assert store.damaged == [(middle, high)]
    store.repair(middle, log[middle:high])
    store.file_repaired()
    assert_whole(store, log)


def test_only_whole_records_that_begin_a_damaged_range_and_end_in_it_are_taken(machine: Machine) -> None:
    log, (start, end) = harmed(machine, HARMS["body"])
    store = machine.open()
    before = whole_log(store)
    flipped = bytearray(log[start:end])
    flipped[400] ^= 1
    behind = next(each for each in entries(log) if each[0] == end)

    with pytest.raises(CorruptRecord):
        store.repair(start, bytes(flipped))
    with pytest.raises(CorruptRecord):
        store.repair(start, log[start : end - 1])
    with pytest.raises(CorruptRecord):
        store.repair(start, log[behind[0] : behind[1]])
    with pytest.raises(InvalidField):
        store.repair(start, log[start : behind[1]])
    with pytest.raises(InvalidField):
        store.repair(behind[0], log[behind[0] : behind[1]])
    with pytest.raises(InvalidField):
        store.repair(start, b"")

    assert whole_log(store) == before
    assert store.damaged == [(start, end)]


def test_what_was_repaired_and_not_yet_filed_is_found_whole_after_a_crash(machine: Machine) -> None:
    log, (start, end) = harmed(machine, HARMS["body"])
    store = machine.open()
    store.dispatch(store.end)
    store.repair(start, log[start:end])
    machine.lose_power(all_unsynced=True)

    again = machine.open()
    again.dispatch(again.end)

    assert again.damaged == [(start, end)]
    assert again.salvage(start)
    again.file_repaired()
    assert_whole(again, log)


def test_what_is_damaged_does_not_heal_by_itself(machine: Machine) -> None:
    _, (start, _) = harmed(machine, HARMS["body"])
    store = machine.open()

    assert not store.salvage(start)
    assert not store.salvage(start + 1)
    assert len(store.damaged) == 1


def test_a_bad_sector_is_damage_and_a_unit_that_names_the_wrong_place_is_none() -> None:
    door, store, placed = three_messages()
    store.sync()
    position = placed[1].physical_offset

    assert store.verify(position + 7, position + 8).damaged == ()
    door.bad = range(store.end)  # a disk gives whole pages or nothing
    found = store.verify(position, position + 1).damaged

    # So what shares the page cannot be had either.
    assert found == ((0, store.end),)
    door.bad = range(0)
    assert store.salvage(0)
    store.file_repaired()
    assert store.damaged == []


def test_what_is_not_flushed_yet_is_never_called_damaged(machine: Machine) -> None:
    store = machine.lead()
    store.append([frame(b"x" * 900)], 1)
    log = whole_log(store)
    rot(machine, log, HARMS["body"], 0, end=len(log))

    assert store.verify(0, store.end) == (0, 0, ())
    assert store.damaged == []


def test_what_lies_in_a_missing_range_above_the_readable_end_comes_with_its_turn(machine: Machine, log: bytes) -> None:
    at = entries(log)
    store = follow(machine.open())
    copy(store, log, [(at[4][0], at[6][1])])
    store.sync()
    store.dispatch(at[5][1])  # inside the hole

    store.repair(at[4][0], log[at[4][0] : at[6][1]])
    store.file_repaired()

    assert_whole(store, log)


def test_queue_whose_first_message_is_missing_begins_with_it_once_repaired(machine: Machine, log: bytes) -> None:
    at = entries(log)
    store = follow(machine.open())
    copy(store, log, [(0, at[4][1])])
    store.sync()
    store.dispatch(store.end)
    assert served(store)[1] == 5

    store.repair(0, log[: at[4][1]])
    store.file_repaired()

    assert_whole(store, log)
    assert known_sequences(store, len(at)) == dict(enumerate(low for low, _ in at))


def test_missing_range_starts_at_the_log_end_and_lies_in_one_segment(machine: Machine, log: bytes) -> None:
    store = follow(machine.open())
    store.write_chunk(0, log[: entries(log)[0][1] + 10])

    with pytest.raises(OffsetOutOfRange):
        store.skip_range(store.end, store.end + 500)
    store.truncate(store.end)
    with pytest.raises(OffsetOutOfRange):
        store.skip_range(store.end + 1, store.end + 500)
    with pytest.raises(InvalidField):
        store.skip_range(store.end, SEGMENT + 1)
    assert store.damaged == []


def test_a_truncation_forgets_the_missing_ranges_that_it_takes(machine: Machine, log: bytes) -> None:
    at = entries(log)
    store = follow(machine.open())
    copy(store, log[: at[9][1]], [(at[2][0], at[3][1]), (at[6][0], at[7][1])])
    store.sync()

    store.truncate(at[6][0])

    assert store.damaged == [(at[2][0], at[3][1])]
    machine.kill()
    again = machine.open()
    assert (again.end, again.damaged) == (at[6][0], [(at[2][0], at[3][1])])


def test_a_damaged_register_costs_no_record(machine: Machine) -> None:
    log, (start, end) = harmed(machine, HARMS["body"])
    store = machine.open()
    assert store.damaged == [(start, end)]
    store.close(clean=True)
    inode = machine.disk.names.files["dittomq/damaged"]
    inode.write(memoryview(b"\xff" * 8), 20, machine.chance)
    inode.sync()

    again = machine.open()

    assert "dittomq/damaged is damaged" in again.notes[0]
    assert again.end == len(log)
    assert again.verify(start, end).damaged == ((start, end),)


def test_ranges_of_one_segment_that_touch_are_one() -> None:
    damage = DamagedRanges().with_range(0, 100, 1_000).with_range(300, 400, 1_000).with_range(100, 200, 1_000).with_range(900, 1_000, 1_000)

    assert damage.with_range(1_000, 1_100, 1_000).ranges == ((0, 200), (300, 400), (900, 1_000), (1_000, 1_100))
    assert damage.without(50, 950).ranges == ((0, 50), (950, 1_000))
    assert damage.clipped(100, 350).ranges == ((100, 200), (300, 350))
    assert (damage.end_over(199), damage.end_over(200)) == (200, None)
    assert damage.within(199, 301) == ((0, 200), (300, 400))
    assert (damage.touches(200, 300), damage.touches(199, 201), damage.total_bytes) == (False, True, 400)


def test_the_register_is_bounded_by_taking_near_ranges_of_a_segment_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.state.damage_map.MAX_RANGES", 3)
    damage = DamagedRanges()
    for start in (0, 100, 350, 360, 2_000):
        damage = damage.with_range(start, start + 5, 1_000)

    assert damage.ranges == (DamagedRange(0, 105), DamagedRange(350, 365), DamagedRange(2_000, 2_005))
