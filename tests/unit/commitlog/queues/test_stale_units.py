"""Units of records that a stop has taken: gone for good, from the disk too, before other queues make the log long enough again."""

import random

import pytest

from dittomq.commitlog.offline.open_store import open_on_disk
from dittomq.commitlog.offline.verify import verify
from dittomq.commitlog.queues.consume_queue import SYNCED_ONE_BY_ONE
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.state.shutdown_marker import StopKind
from dittomq.commitlog.store import AppendBatch, Store
from tests.crash.queue_files import differences
from tests.simulation.parser import parse_log
from tests.support.failing_storage import CrashingStorage
from tests.support.stores import SMALL, Machine, draft, frame, open_epoch

ABORT = "abort"


def path_of(queue: int, first: int = 0, topic: str = "orders") -> str:
    return f"consumequeue/{topic}/{queue}/{first * UNIT_BYTES:020d}"


def units_of(machine: Machine, queue: int) -> list[tuple[int, int]]:
    """Position and size of all that a queue's files hold that is not empty."""
    files = [data for path, data in sorted(machine.files().items()) if path.startswith(f"consumequeue/orders/{queue}/")]
    return [(position, size) for data in files for position, size, _ in UNIT.iter_unpack(data) if size]


def written_back(machine: Machine) -> None:
    """The kernel has written all queues to the disk by itself, with their names."""
    for inode in machine.disk.inodes_below("consumequeue"):
        inode.sync()
    machine.disk.sync_folder("")
    machine.disk.sync_below("consumequeue")


def ahead(machine: Machine, messages: int = 60) -> list[tuple[int, int]]:
    """Lose the power of a store whose queues were ahead of its flushed log; the units of queue 0 that are right."""
    store = machine.lead()
    store.append([frame(b"kept", queue=0), frame(b"kept", queue=1)], 1)
    store.dispatch(store.end)
    store.checkpoint()
    kept = units_of(machine, 0)
    store.append([frame(b"lost", queue=0) for _ in range(messages)], 2)
    store.append([frame(b"lost", queue=7)], 2)
    store.dispatch(store.end)
    written_back(machine)
    machine.lose_power(all_unsynced=True)
    return kept


def grown(store: Store) -> Store:
    """Other queues make the log longer than it ever was; the store is closed."""
    open_epoch(store)
    store.append([frame(b"new" * 100, queue=1) for _ in range(60)], 3)
    store.dispatch(store.end)
    store.close(clean=True)
    return store


def assert_whole(machine: Machine) -> None:
    """The queues on disk are what the log on disk makes of them, and `log verify` finds nothing."""
    files = machine.files()
    assert list(differences(files, parse_log(files).records, {}, units=SMALL.queue_file_units)) == []
    report = verify(open_on_disk(machine.storage(), "here"))
    assert report.whole, report.findings


def test_units_of_records_that_a_power_loss_took_do_not_outlive_it(machine: Machine) -> None:
    kept = ahead(machine)
    assert len(units_of(machine, 0)) == 61, "the units were written, their records were not"

    store = machine.open()
    assert (store.stopped, store.recovery_truncation) == (StopKind.POWER_LOSS, None), "the tail was gone as a whole"
    grown(store)
    machine.lose_power(all_unsynced=True)

    assert units_of(machine, 0) == kept
    assert path_of(7) not in machine.files()
    assert_whole(machine)


def test_units_that_a_truncation_took_do_not_come_back_with_a_later_power_loss(machine: Machine) -> None:
    store = machine.lead()
    kept = store.append([frame(b"kept", queue=0)], 1).end
    store.append([frame(b"cut", queue=0) for _ in range(60)], 2)
    store.dispatch(store.end)
    store.checkpoint()

    store.truncate(kept)
    grown(store)
    machine.lose_power(all_unsynced=True)

    assert len(units_of(machine, 0)) == 1
    assert_whole(machine)


def test_units_that_rocketmq_left_behind_when_it_lost_power_in_our_store_go(machine: Machine) -> None:
    store = machine.lead()
    store.append([frame(b"kept", queue=0)], 1)
    store.dispatch(store.end)
    store.close(clean=True)
    kept, door = units_of(machine, 0), machine.storage()
    door.open(ABORT, create=True)
    door.open(path_of(0)).pwrite(UNIT.pack(store.end, 200, 0), UNIT_BYTES)

    grown(machine.open())

    assert units_of(machine, 0) == kept
    assert_whole(machine)


def test_of_many_queues_all_are_cleared_and_made_durable_at_once() -> None:
    machine, queues = Machine(random.Random(7)), SYNCED_ONE_BY_ONE + 1
    store = machine.lead()
    store.append([AppendBatch([draft(queue=queue)]) for queue in range(queues)], 1)
    store.dispatch(store.end)
    store.checkpoint()
    store.append([AppendBatch([draft(queue=queue)]) for queue in range(queues)], 2)
    store.dispatch(store.end)
    written_back(machine)
    machine.lose_power(all_unsynced=True)

    door = CrashingStorage(machine.storage())
    grown(Store.open(door, SMALL, chance=machine.chance, wall_ms=1_000))
    machine.lose_power(all_unsynced=True)

    assert [len(units_of(machine, queue)) for queue in range(queues) if queue != 1] == [1] * (queues - 1)
    assert not [call for call in door.heard if call.startswith("fdatasync consumequeue/orders/0/")]


@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_start_that_needs_not_clear_them_touches_no_queue(machine: Machine, stop: str) -> None:
    store = machine.lead()
    store.append([frame(b"message")], 1)
    store.dispatch(store.end)
    store.persist_recovery_point(store.sync(), store.end)
    store.checkpoint()
    store.close(clean=stop == "clean")
    machine.kill()

    door = CrashingStorage(machine.storage())
    again = Store.open(door, SMALL, chance=machine.chance, wall_ms=1_000)

    assert again.stopped == stop
    assert [call for call in door.heard if "consumequeue" in call] == []


def test_rocketmq_is_told_of_no_message_that_is_not_in_its_queue(machine: Machine) -> None:
    store = machine.lead()
    store.append([frame(b"readable")], 1_000)
    store.dispatch(store.end)
    store.append([frame(b"not confirmed")], 2_000)

    store.checkpoint()

    log_ms, queues_ms, keys_ms = (int.from_bytes(machine.files()["checkpoint"][at : at + 8], "big") for at in (0, 8, 16))
    assert log_ms == 2_000
    assert 1_000 <= queues_ms == keys_ms < 2_000


def test_a_log_shorter_than_what_readers_were_let_to_see_was_not_just_killed(machine: Machine) -> None:
    """The disk turned read-only, and took not even the mark that a write had failed."""
    store = machine.lead()
    store.append([frame(b"flushed")], 1)
    end = store.sync()
    store.append([frame(b"in the page cache")], 2)
    store.persist_recovery_point(end, store.end)
    machine.life.end()
    for inode in machine.disk.inodes_below("commitlog"):
        inode.fail_sync()
    machine.kill(all_unsynced=True)

    again = machine.open()

    assert (again.end, again.stopped) == (end, StopKind.FAILED_SYNC)
