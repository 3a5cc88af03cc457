"""Which messages a repair calls lost where the queues do not name them all."""

import random
import tracemalloc

import pytest

from dittomq.commitlog.damage_report import messages_in
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.queues.consume_queue import QueueIndex
from dittomq.commitlog.records.format import UNIT
from dittomq.copies import MessageSpan, RepairRequest
from dittomq.offsets import PhysicalOffset, QueueOffset
from tests.support.record_damage import HARMS, entries
from tests.support.stores import Machine, dispatched, whole_log
from tests.unit.broker.repair_runs import messages_of, named, repair
from tests.unit.commitlog.repaired_stores import rot

_MANY = 100_000


def test_messages_that_are_not_in_the_queues_yet_are_not_named_and_that_is_said() -> None:
    source, machine = dispatched(Machine(random.Random(1))), Machine(random.Random(2))
    log = whole_log(source)
    slave = machine.open()
    slave.replace_epoch_history(source.epoch_history)
    slave.write_chunk(0, log[: slave.segment_bytes])
    slave.sync()
    start, end = entries(log)[6]
    slave.dispatch(PhysicalOffset(start))
    rot(machine, whole_log(slave), HARMS["magic"], start, end=end)

    [waiting] = repair(slave, RepairRequest("a/1")).ranges
    slave.dispatch(slave.end)
    [outcome] = repair(slave, RepairRequest("a/1")).ranges

    assert (waiting.start, waiting.messages, waiting.more_messages) == (start, (), True)
    assert (named(outcome), outcome.more_messages) == (messages_of(log, start, end), False)


def test_offset_below_a_queues_first_message_is_not_named_as_lost() -> None:
    """Its message does not lie there."""
    source = dispatched(Machine(random.Random(1)))
    log = whole_log(source)
    (first, _), (second, behind) = entries(log)[0], entries(log)[1]
    slave = Machine(random.Random(2)).open()
    slave.replace_epoch_history(source.epoch_history)
    slave.skip_range(first, second)
    slave.write_chunk(second, log[second:behind])
    lost = next(each for each in entries(log)[2:] if messages_of(log, *each).keys() - messages_of(log, first, each[0]).keys())
    slave.write_chunk(behind, log[behind : lost[0]])
    slave.skip_range(*lost)
    slave.write_chunk(lost[1], log[lost[1] : slave.segment_bytes])
    slave.sync()
    slave.dispatch(slave.end)

    before, outcome = repair(slave, RepairRequest("a/1")).ranges

    assert not named(before).keys() & messages_of(log, *lost).keys()
    assert (before.more_messages, outcome.more_messages) == (True, True)


@pytest.mark.parametrize("restarted", [False, True])
def test_lost_messages_that_nothing_follows_are_counted_as_unnamed(restarted: bool) -> None:
    """A master leads without them."""
    source, machine = dispatched(Machine(random.Random(1))), Machine(random.Random(2))
    log = whole_log(source)
    store = machine.open()
    store.replace_epoch_history(source.epoch_history)
    last = store.segment_bytes
    first = [start for start, _ in entries(log) if start < last][-4]
    store.write_chunk(0, log[:first])
    store.skip_range(first, last)
    store.sync()
    store.dispatch(store.end)
    store.reserve_offsets([], source.epoch_history[-1].master_id)
    if restarted:
        store.close(clean=True)
        store = machine.open()

    [outcome] = repair(store, RepairRequest("a/1")).ranges

    assert (outcome.start, outcome.messages, outcome.more_messages) == (first, (), True)


def test_lost_messages_of_many_ranges_are_named_up_to_one_answers_size(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(random.Random(1))
    store = dispatched(machine)
    lost = [entries(whole_log(store))[number] for number in (4, 12, 20)]
    monkeypatch.setattr("dittomq.commitlog.damage_report.MAX_RUNS_IN_ALL", 2)

    assert [(len(each.messages), each.more) for each in store.messages_in(lost)] == [(1, False), (1, False), (0, True)]


def test_a_range_of_very_many_messages_is_named_in_little_memory() -> None:
    storage = Machine(random.Random(1)).storage()
    index = QueueIndex(storage, OpenFiles(storage, 4), 500_000, 1 << 30)
    queue = index.queue("many", 0)
    index.write(queue, 0, b"".join(UNIT.pack(100 * number, 100, 0) for number in range(_MANY)))

    tracemalloc.start()
    [named] = messages_in(index, [(100, 100 * _MANY)])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert named == ((MessageSpan("many", 0, QueueOffset(1), QueueOffset(_MANY)),), False)
    assert most < 1024 * 1024
