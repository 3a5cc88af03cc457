"""Retention where damage hides numbers: they are known before it goes, so that no message ever gets one of them again."""

import asyncio
import random

import pytest

from dittomq.broker.retention import RetentionLoop, RetentionLoopParts
from dittomq.broker.retention_pins import PinParts, Pins
from dittomq.commitlog.retention import RetentionRules
from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.clock import OsClock
from dittomq.errors import NotReady, UnknownProducerId
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dies, frame, open_epoch, places, whole_log

SEGMENT = SMALL.segment_bytes
RARE = ("rare", 0)
"""A queue all messages of which, 0 to 2, lie in the first segment, in a hole."""


def master() -> Store:
    """Several segments, all of it confirmed and in the queues."""
    store = Machine(random.Random(1)).open()
    open_epoch(store)
    store.append([frame(b"first"), frame(b"one", b"two", b"three", topic="rare", producer="p", first=0)], 0)
    for at in range(60):
        store.append([frame(b"x" * 900, queue=at % 3)], at)
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)
    return store


def slave(machine: Machine, source: Store) -> tuple[Store, int, bytes]:
    """Its copy, which lacks the queue's messages; where they lie, and their bytes."""
    log = whole_log(source)
    start, end = entries(log)[1][0], entries(log)[3][1]
    store = machine.open()
    store.replace_epoch_history(source.epoch_history)
    store.write_chunk(0, log[:start])
    store.skip_range(start, end)
    store.write_chunk(end, log[end:SEGMENT])
    for at in range(SEGMENT, len(log), SEGMENT):
        store.write_chunk(at, log[at : at + SEGMENT])
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)
    return store, start, log[start:end]


def next_offset(store: Store) -> int:
    """The offset that the queue's next message gets."""
    open_epoch(store)
    [placed] = store.append([frame(b"new", topic="rare")], 1_000).placed
    return int(places(placed)[0].queue_offset)


def test_what_no_queue_has_read_stays_with_all_behind_it_until_it_is_repaired() -> None:
    store, start, lost = slave(Machine(random.Random(7)), master())

    with pytest.raises(NotReady, match="which numbers their messages have is not known"):
        store.drop_before(2 * SEGMENT)
    assert (store.min_offset, store.unread.total_bytes) == (0, len(lost))
    store.repair(start, lost)

    assert store.drop_before(2 * SEGMENT) == 2 * SEGMENT
    assert next_offset(store) == 3


def test_what_lies_before_it_goes() -> None:
    source = master()
    log = whole_log(source)
    store = Machine(random.Random(7)).open()
    store.replace_epoch_history(source.epoch_history)
    store.write_chunk(0, log[:SEGMENT])
    store.skip_range(SEGMENT, entries(log[: 2 * SEGMENT])[-1][0])
    store.write_chunk(store.end, log[store.end : 2 * SEGMENT])
    for at in range(2 * SEGMENT, len(log), SEGMENT):
        store.write_chunk(at, log[at : at + SEGMENT])
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)

    assert store.drop_before(3 * SEGMENT) == SEGMENT


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("stops", ["goes on", "killed", "checkpoint lost"])
def test_where_its_master_has_dropped_it_too_its_queues_go_on_as_the_masters_do(segments: int, stops: str) -> None:
    machine, source = Machine(random.Random(7)), master()
    store, _, _ = slave(machine, source)
    source.drop_before(segments * SEGMENT)

    assert store.drop_before(SEGMENT, source.log_start()) == SEGMENT

    assert store.unread.ranges == ()
    assert store.queue_range("orders", 1) == slave_that_had_all(source).queue_range("orders", 1), "nothing that is left is hidden"
    if stops != "goes on":
        machine.kill()
        if stops == "checkpoint lost":
            del machine.disk.names.files["dittomq/checkpoint"]
        store = machine.open()
    with pytest.raises(UnknownProducerId):
        store.find_sequence("p", 2)
    assert next_offset(store) == 3


def slave_that_had_all(source: Store) -> Store:
    """The same copy without a hole, which begins behind the first segment."""
    store, start, lost = slave(Machine(random.Random(8)), master())
    store.repair(start, lost)
    store.drop_before(SEGMENT)
    return store


def test_what_its_master_still_has_stays_whatever_it_tells() -> None:
    source = master()
    store, _, _ = slave(Machine(random.Random(7)), source)

    with pytest.raises(NotReady):
        store.drop_before(SEGMENT, source.log_start())


@pytest.mark.tier("test")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_wherever_such_a_drop_dies_no_number_is_given_twice(power: bool) -> None:
    whole, source = master(), master()
    source.drop_before(SEGMENT)
    for operations in range(400):
        machine = Machine(random.Random(operations))
        store, _, _ = slave(machine, whole)
        machine.faults.operations_to_live = operations
        done = dies(lambda store=store: store.drop_before(SEGMENT, source.log_start()))  # type: ignore[misc]
        (machine.lose_power if power else machine.kill)()
        again = machine.open()
        if again.unread.ranges:
            assert again.min_offset == 0
        else:
            with pytest.raises(UnknownProducerId):
                again.find_sequence("p", 2)
            assert next_offset(again) == 3
        if done:
            break
    else:
        pytest.fail("it never came to its end")


def test_retention_asks_for_the_masters_log_start_only_for_damage_in_the_way() -> None:
    machine, source = Machine(random.Random(7)), master()
    store, start, _ = slave(machine, source)
    asked: list[LogStart] = []

    async def told() -> LogStart:
        asked.append(source.log_start())
        return asked[-1]

    clock, lane = OsClock(), InlineLane()
    pins = Pins(PinParts("a/1", machine.beside(), store, lane, clock, machine.chance))
    retaining = RetentionLoop(RetentionLoopParts("a/1", store, lane, clock, pins, told), RetentionRules(max_used_percent=1), 1.0, list)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 1_000_000

    asyncio.run(retaining.step())
    assert (asked, store.min_offset) == ([], 0)
    asyncio.run(retaining.step())
    assert (len(asked), store.min_offset) == (1, 0)
    source.drop_before(SEGMENT)
    asyncio.run(retaining.step())

    assert store.min_offset > start
    assert next_offset(store) == 3


@pytest.mark.parametrize("stops", [False, True])
def test_a_queue_with_messages_behind_what_was_dropped_begins_where_its_masters_does(stops: bool) -> None:
    source, machine = master(), Machine(random.Random(7))
    source.append([frame(b"four", topic="rare")], 100)
    source.dispatch(source.sync())
    source.persist_recovery_point(source.end, source.end)
    store, _, _ = slave(machine, source)
    source.drop_before(SEGMENT)

    store.drop_before(SEGMENT, source.log_start())
    if stops:
        store.close(clean=True)
        store = machine.open()

    assert source.queue_range(*RARE) == (3, 4)
    assert store.queue_range(*RARE) == (3, 4)


@pytest.mark.parametrize("stops", ["goes on", "closed", "killed", "checkpoint lost"])
def test_repaired_record_behind_a_dropped_range_is_shown_for_good(stops: str) -> None:
    """The master has dropped it."""
    source = Machine(random.Random(1)).open()
    open_epoch(source)
    source.append([frame(b"first"), frame(b"one", topic="rare")], 0)
    for at in range(20):
        source.append([frame(b"x" * 900, queue=at % 3)], at)
    source.append([frame(b"two", topic="rare")], 20)
    for at in range(21, 60):
        source.append([frame(b"x" * 900, queue=at % 3)], at)
    source.dispatch(source.sync())
    source.persist_recovery_point(source.end, source.end)
    log, machine = whole_log(source), Machine(random.Random(7))
    holes = [span for span in entries(log) if b"rare" in log[slice(*span)]]
    assert [start // SEGMENT for start, _ in holes] == [0, 1]
    store = machine.open()
    store.replace_epoch_history(source.epoch_history)
    for start, end in holes:
        write(store, log, start)
        store.skip_range(start, end)
    write(store, log, len(log))
    store.dispatch(store.sync())
    store.persist_recovery_point(store.end, store.end)
    source.drop_before(2 * SEGMENT)
    assert store.drop_before(SEGMENT, source.log_start()) == SEGMENT
    assert store.queue_range(*RARE) == (2, 2)

    store.repair(holes[1][0], log[slice(*holes[1])])
    assert store.queue_range(*RARE) == (1, 2)
    if stops != "killed":
        store.file_repaired()
    if stops != "goes on":
        if stops == "closed":
            store.close(clean=True)
        machine.kill()
        if stops == "checkpoint lost":
            machine.disk.names.files.pop("dittomq/checkpoint")
        store = machine.open()
        if stops == "killed":
            assert store.salvage(holes[1][0])

    assert store.queue_range(*RARE) == (1, 2)
    assert store.read_queue(*RARE, 1, 10, 10_000).next_offset == 2


def write(store: Store, log: bytes, end: int) -> None:
    """What the master's log holds up to there."""
    while (at := store.end) < end:
        store.write_chunk(at, log[at : min(end, at - at % SEGMENT + SEGMENT)])
