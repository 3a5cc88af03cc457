"""What a start must read again, and what a checkpoint with many queues vouches for."""

import pytest

from dittomq.commitlog.queues.consume_queue import SYNCED_ONE_BY_ONE
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.errors import StorageFailure
from tests.support.failing_storage import CrashingStorage
from tests.support.intercepted_reads import hearing
from tests.support.stores import SMALL, Machine, draft, frame, led, open_epoch


def test_many_queue_files_are_durable_at_a_checkpoint_too(machine: Machine) -> None:
    queues = SYNCED_ONE_BY_ONE
    store = machine.lead()
    store.append([AppendBatch([draft(queue=queue)]) for queue in range(queues)], 1)
    store.dispatch(store.end)
    store.checkpoint()
    machine.lose_power(all_unsynced=True)

    again = machine.open()

    assert again.notes == [], "nothing had to be built again"
    assert [again.queue_range("orders", queue) for queue in range(queues)] == [(0, 1)] * queues
    assert all(len(again.read_queue("orders", queue, 0, 1, 1_000).messages) == 1 for queue in range(queues))


def test_a_checkpoint_whose_sync_of_many_queue_files_fails_vouches_for_none_of_them(machine: Machine) -> None:
    queues = SYNCED_ONE_BY_ONE
    storage = CrashingStorage(machine.storage())
    store = led(storage, SMALL, chance=machine.chance, wall_ms=1_000)
    store.append([AppendBatch([draft(queue=queue)]) for queue in range(queues)], 1)
    store.sync()
    store.dispatch(store.end)
    storage.failing = "syncfs"
    with pytest.raises(StorageFailure):
        store.checkpoint()
    machine.lose_power(all_unsynced=True)

    again = machine.open()
    again.dispatch(again.end)

    assert [again.queue_range("orders", queue) for queue in range(queues)] == [(0, 1)] * queues


@pytest.mark.parametrize("power_is_lost", [False, True])
def test_a_start_after_a_kill_reads_nothing_of_the_log_before_the_checkpoint(machine: Machine, power_is_lost: bool) -> None:
    store, held = machine.open(), 0
    open_epoch(store)
    for at in range(600):
        store.append([frame(b"x" * 900, b"y" * 100, queue=at % 3, producer="p", first=at * 2)], at)
        if at == 500:
            store.dispatch(store.end)
            store.checkpoint()
            held = store.applied
    store.sync()
    store.persist_recovery_point(store.flushed, store.flushed)
    (machine.lose_power if power_is_lost else machine.kill)()

    reads: list[tuple[int, int]] = []

    def hear(path: str, offset: int, length: int) -> None:
        if path.startswith("commitlog/"):
            start = int(path.rpartition("/")[2]) + offset
            reads.append((start, start + length))

    again = Store.open(hearing(machine.storage(), hear), SMALL, chance=machine.chance, wall_ms=1_000)

    assert again.segment_of(held)[0] > 20 * SMALL.segment_bytes
    assert min(start for start, _ in reads) >= held
    behind = again.segment_of(again.end)[1] - held
    assert sum(end - start for start, end in reads) <= 1.5 * behind, "once, and again only what one window cuts off"
    assert again.applied == again.end
