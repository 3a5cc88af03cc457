"""The beginning of a log is dropped: what is gone, what stays, and that no stop leaves anything in between."""

import random

import pytest

from dittomq.copies import LogStart
from dittomq.errors import DiskFull, InvalidField, OffsetOutOfRange, UnknownProducerId
from dittomq.offsets import PhysicalOffset
from tests.support.stores import Machine, frame, whole_log
from tests.unit.commitlog.dropped_logs import SEGMENT, left_of, log_from, read_all, settled


def test_what_was_dropped_is_gone_from_log_queues_and_disk_and_nothing_else_is(machine: Machine) -> None:
    store = settled(machine)
    log = whole_log(store)

    assert store.drop_before(2 * SEGMENT + 5) == 2 * SEGMENT

    assert store.min_offset == 2 * SEGMENT
    assert log_from(store, 2 * SEGMENT) == log[2 * SEGMENT :]
    assert read_all(store) == left_of(log, 2 * SEGMENT)
    assert min(path for path in machine.files() if path.startswith("commitlog/")) == f"commitlog/{2 * SEGMENT:020d}"
    for work in (
        lambda: store.read(2 * SEGMENT - 1, 1),
        lambda: store.read_records(0, SEGMENT, SEGMENT),
        lambda: store.leaf_digests(0, 3 * SEGMENT),
        lambda: store.read_queue("orders", 0, 0, 1, 1),
    ):
        with pytest.raises(OffsetOutOfRange):
            work()
    assert len(store.leaf_digests(2 * SEGMENT, store.end)) > 0


def test_the_newest_segment_and_what_is_not_settled_are_never_dropped(machine: Machine) -> None:
    store = settled(machine)
    newest = (store.end - 1) // SEGMENT * SEGMENT

    assert store.drop_before(1 << 40) == newest

    machine = Machine(random.Random(8))
    store = settled(machine)
    store.persist_recovery_point(store.end, SEGMENT + 1)
    assert store.drop_before(1 << 40) == SEGMENT


def test_queue_whose_last_message_was_dropped_continues_its_offsets(machine: Machine) -> None:
    """Also when queues are built again."""
    store = settled(machine)
    store.drop_before(SEGMENT)
    assert store.queue_range("early", 0) == (1, 1)
    store.close(clean=True)
    del machine.disk.names.files["dittomq/checkpoint"]

    again = machine.lead()
    again.append([frame(b"late", topic="early")], 1_000)
    again.dispatch(again.end)

    assert [message.queue_offset for message in again.read_queue("early", 0, 1, 10, 1_000).messages] == [1]


def test_producers_go_on_and_what_became_of_dropped_sequences_is_not_remembered(machine: Machine) -> None:
    store = settled(machine)
    first = store.find_sequence("p", 119)
    assert first is not None

    for each in (store, None):
        opened = each or machine.open()
        opened.drop_before(2 * SEGMENT)
        with pytest.raises(UnknownProducerId):
            opened.find_sequence("p", 0)
        assert opened.find_sequence("p", 119) == first
        if each:
            [placed] = opened.append([frame(b"again", queue=0, producer="p", first=0)], 1_000).placed
            assert isinstance(placed, UnknownProducerId)
            opened.close(clean=True)


def test_the_log_is_truncated_and_goes_on_behind_what_was_dropped(machine: Machine) -> None:
    store = settled(machine)
    log = whole_log(store)
    store.drop_before(SEGMENT)
    to = next(start for _, start in left_of(log, 3 * SEGMENT)["orders", 1])

    store.truncate(to)

    assert (store.min_offset, store.end) == (SEGMENT, to)
    assert read_all(store) == left_of(log[:to], SEGMENT)
    store.truncate(SEGMENT)
    assert (store.min_offset, store.end, store.applied) == (SEGMENT, SEGMENT, SEGMENT)
    assert machine.open().end == SEGMENT


def test_a_deletion_that_may_still_be_undone_keeps_what_lies_before_it(machine: Machine) -> None:
    store = settled(machine)
    store.append([frame(b"not confirmed")], 1_000)
    store.hide(store.next_offsets("orders"))

    assert store.drop_before(2 * SEGMENT) == 0

    store.persist_recovery_point(store.sync(), store.end)
    assert store.drop_before(2 * SEGMENT) == 2 * SEGMENT


def test_drop_without_room_changes_nothing_and_is_done_later(machine: Machine) -> None:
    """It is done when the disk has room."""
    store = settled(machine)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 8_192
    files = machine.files()

    with pytest.raises(DiskFull):
        store.drop_before(2 * SEGMENT)

    assert (store.min_offset, machine.files()) == (0, files)
    machine.disk.capacity_bytes += 1 << 20
    assert store.drop_before(2 * SEGMENT) == 2 * SEGMENT


def test_segments_dropped_by_another_process_are_hidden_and_reported_once(machine: Machine) -> None:
    store = settled(machine)
    log = whole_log(store)
    store.close(clean=True)
    del machine.disk.names.files[f"commitlog/{0:020d}"]

    again = machine.open()

    assert again.min_offset == SEGMENT
    assert read_all(again) == left_of(log, SEGMENT)
    (note,) = again.notes
    assert f"began at byte 0 and begins at {SEGMENT:,} now" in note
    again.close(clean=True)
    assert machine.open().notes == []


def test_a_log_that_holds_nothing_can_begin_anywhere_a_segment_does(machine: Machine) -> None:
    source = settled(Machine(random.Random(3)))
    log = whole_log(source)
    store = machine.open()

    store.set_log_start(LogStart(PhysicalOffset(2 * SEGMENT)))

    assert (store.min_offset, store.end, store.flushed, store.applied, store.written_raw) == (2 * SEGMENT,) * 5
    store.replace_epoch_history(source.epoch_history)
    for at in range(2 * SEGMENT, len(log), 4_096):
        store.write_chunk(at, log[at : at + 4_096])
    store.sync()
    store.dispatch(store.end)
    assert read_all(store) == {key: each for key, each in left_of(log, 2 * SEGMENT).items() if each}
    store.close(clean=True)
    again = machine.open()
    assert (again.min_offset, log_from(again, 2 * SEGMENT)) == (2 * SEGMENT, log[2 * SEGMENT :])
    with pytest.raises(InvalidField):
        again.set_log_start(LogStart(PhysicalOffset(0)))


def test_a_log_that_was_truncated_to_nothing_can_begin_before_and_behind(machine: Machine) -> None:
    store = settled(machine)
    store.truncate(0)

    for begin in (3 * SEGMENT, SEGMENT):
        store.set_log_start(LogStart(PhysicalOffset(begin)))
        assert (store.min_offset, store.end) == (begin, begin)
        store.close(clean=False)
        store = machine.open()
        assert (store.min_offset, store.end) == (begin, begin)


def test_survey_dates_a_segment_by_the_record_behind_it(machine: Machine) -> None:
    """It counts its size in blocks."""
    store = settled(machine)
    message = next(each for each in store.read_queue("orders", 0, 0, 1_000, 1 << 20).messages if each.physical_offset >= SEGMENT)

    found = store.survey(0)

    assert (found.start, found.end) == (0, SEGMENT)
    assert found.newest_ms is not None
    assert found.newest_ms <= message.store_ms
    assert found.disk_bytes == SEGMENT
    assert store.survey(PhysicalOffset(SEGMENT)).newest_ms is not None
