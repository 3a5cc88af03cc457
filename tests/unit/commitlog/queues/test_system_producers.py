"""What a store knows of the producers that deliver what waits in the system's queues."""

import random

import pytest

from dittomq.commitlog.queues.producer_state import MAX_AGE_DAYS, MAX_PRODUCERS, MAX_SYSTEM_SEQUENCES, Producers, Sequenced, from_bytes
from dittomq.commitlog.records.batch_index import DAY_MS
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.delays import system_producer
from dittomq.errors import UnknownProducerId
from tests.support.stores import Machine, draft

ID = system_producer("SCHEDULE_TOPIC_XXXX", 2)


def deliver(store: Store, *sequences: int) -> None:
    for sequence in sequences:
        [answer] = store.append([AppendBatch([draft(identity=(ID, sequence))], ID, sequence)], 1_000).placed
        assert isinstance(answer, list), answer


def test_sequences_of_a_system_producer_may_leave_numbers_out() -> None:
    table = Producers()
    table.record(ID, 3, [100, 200], 0)
    table.record(ID, 9, [300], 0)

    assert table.last_sequence(ID) == 9
    assert table.known(ID, 20, 2) == []
    assert table.known(ID, 3, 4) == [100, 200]
    assert table.known(ID, 9, 1) == [300]
    assert isinstance(table.known(ID, 5, 1), UnknownProducerId)


def test_system_producer_outlives_any_number_of_other_producers_and_days() -> None:
    table = Producers()
    table.record(ID, 7, [10], 0)
    for number in range(2 * MAX_PRODUCERS):
        table.record(f"p{number}", 0, [100 + number], (number // MAX_PRODUCERS) * (MAX_AGE_DAYS + 2) * DAY_MS)

    table.drop_before(500)

    assert table.last_sequence(ID) == 7


def test_snapshot_keeps_what_system_producers_delivered() -> None:
    table = Producers()
    table.record(ID, 7, [10, 20], 0)

    loaded, end = from_bytes(table.to_bytes(30))

    assert (loaded.last_sequence(ID), end) == (8, 30)
    assert len(table.to_bytes(30)) <= table.saved_bytes + 1_024


@pytest.mark.parametrize(("to", "last"), [(25, 8), (20, 7), (5, None)])
def test_cut_takes_back_what_lay_behind_it(to: int, last: int | None) -> None:
    table = Producers()
    table.record(ID, 7, [10, 20, 30], 0)

    assert table.truncate(to)

    assert table.last_sequence(ID) == last


def test_cut_of_all_that_is_kept_of_a_long_delivery_asks_for_the_log() -> None:
    table = Producers()
    for sequence in range(2 * MAX_SYSTEM_SEQUENCES):
        table.record(ID, sequence, [1_000 + sequence], 0)

    assert table.truncate(1_000 + MAX_SYSTEM_SEQUENCES + 1)
    assert not table.truncate(1_000)


def test_repaired_record_that_was_delivered_again_counts_once() -> None:
    table = Producers()
    table.record(ID, 7, [400], 0)

    table.repair([Sequenced(ID, 7, 200, 0), Sequenced(ID, 8, 300, 0)])

    assert table.last_sequence(ID) == 8
    assert table.known(ID, 7, 1) == [400]
    table.truncate(350)
    assert table.last_sequence(ID) is None


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_restarted_store_knows_the_last_delivery(is_clean: bool) -> None:
    machine = Machine(random.Random(1))
    store = machine.lead()
    deliver(store, 0, 1, 5)
    store.sync()
    if is_clean:
        store.close(clean=True)
    machine.kill()

    assert machine.open().last_delivered(ID) == 5


def test_truncated_store_knows_the_last_delivery_before_the_cut() -> None:
    machine = Machine(random.Random(1))
    store = machine.lead()
    deliver(store, 0, 1)
    store.sync()
    end = store.end
    deliver(store, 2, 3)
    store.sync()
    store.checkpoint()

    store.truncate(end)

    assert store.last_delivered(ID) == 1
