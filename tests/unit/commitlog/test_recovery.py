import pytest

from dittomq.commitlog.store import StopKind, Store
from dittomq.epoch_history import EpochEntry
from dittomq.errors import CorruptRecord, StoreOpenFailed
from dittomq.offsets import Epoch, PhysicalOffset
from tests.simulation.disk import Inode
from tests.support.stores import SMALL, Machine, begin_epoch, filled, frame, open_epoch, queues_of, whole_log

SEGMENT_0 = "commitlog/00000000000000000000"


def inode(machine: Machine, path: str) -> Inode:
    return machine.disk.names.files[path]


def put(machine: Machine, path: str, data: bytes, at: int) -> None:
    """Change bytes behind the store's back, durably."""
    inode(machine, path).write(memoryview(data), at, machine.chance)
    inode(machine, path).sync()


def test_a_clean_stop_a_kill_and_a_power_loss_are_told_apart(machine: Machine) -> None:
    assert machine.open().stopped is StopKind.EMPTY
    machine.kill()
    filled(machine)
    machine.kill()
    killed = machine.open()
    assert killed.stopped is StopKind.KILLED
    machine.kill()
    machine.open().close(clean=True)
    assert machine.open().stopped is StopKind.CLEAN
    machine.lose_power()
    assert machine.open().stopped is StopKind.POWER_LOSS


def test_a_clean_stop_is_believed_after_a_reboot_too(machine: Machine) -> None:
    filled(machine).close(clean=True)
    machine.lose_power()

    assert machine.open().stopped is StopKind.CLEAN


def test_a_failed_sync_is_told_to_one_start(machine: Machine) -> None:
    filled(machine).clear_boot_stamp()
    machine.kill()
    assert machine.open().stopped is StopKind.FAILED_SYNC
    machine.kill()

    assert machine.open().stopped is StopKind.KILLED


def test_what_a_killed_process_wrote_counts_and_is_synced_first(machine: Machine) -> None:
    store = filled(machine)
    end = store.append([frame(b"not synced")], 99).end
    machine.kill()

    again = machine.open()
    machine.lose_power()

    assert again.end == again.flushed == end
    assert machine.open().end == end


def test_what_was_known_at_the_stop_is_known_at_the_start(machine: Machine) -> None:
    store = filled(machine)
    store.persist_recovery_point(store.flushed, 5_000)
    replica, epoch_history = store.replica, store.epoch_history
    machine.lose_power()

    again = machine.open()

    assert (again.confirmed_at_start, again.replica, again.epoch_history) == (5_000, replica, epoch_history)
    assert again.applied <= max(5_000, again.end)


@pytest.mark.parametrize("garbage", [b"\xff" * 300, b"\xda\xa3\x20\xa7" * 50, b"\0" * 40 + b"x"], ids=["bytes", "magics", "after zeros"])
def test_garbage_behind_the_end_goes_to_a_side_file(machine: Machine, garbage: bytes) -> None:
    store = filled(machine, frames=3)
    end, log = store.end, whole_log(store)
    store.close(clean=False)
    put(machine, SEGMENT_0, garbage, end)
    machine.lose_power()

    again = machine.open()

    assert whole_log(again) == log
    assert again.recovery_truncation is not None
    assert again.recovery_truncation.saved_bytes == len(garbage)
    kept = inode(machine, again.recovery_truncation.side_file)
    assert kept.read(kept.size, 0) == garbage
    assert again.generation == 1
    machine.kill()
    assert machine.open().recovery_truncation is None


def test_a_later_segment_with_bytes_goes_to_the_side_file_too(machine: Machine) -> None:
    store = filled(machine, frames=3)
    end = store.end
    put(machine, SEGMENT_0, b"broken", end)
    second = Inode()
    second.truncate(SMALL.segment_bytes, machine.chance)
    machine.disk.names.files[f"commitlog/{SMALL.segment_bytes:020d}"] = second
    put(machine, f"commitlog/{SMALL.segment_bytes:020d}", b"z", 10)
    machine.kill()

    again = machine.open()

    assert again.recovery_truncation is not None
    assert again.recovery_truncation.saved_bytes == SMALL.segment_bytes + 11 - end
    assert list(again._storage.list_folder("commitlog")) == [SEGMENT_0.partition("/")[2]]  # noqa: SLF001 - the disk as it is
    assert again.end == end


def test_damage_below_the_recovery_point_drops_nothing_behind_it(machine: Machine) -> None:
    store = filled(machine)
    end, (low, high) = store.end, damage_behind_checkpoint(machine, store)
    machine.kill()

    again = machine.open()

    assert again.end == end
    assert again.damaged == [(low, high)]
    assert again.recovery_truncation is None
    again.dispatch(end)
    damaged = 0
    for queue in range(3):
        at, stop = again.queue_range("orders", queue)
        assert stop == 20
        while at < stop:
            try:
                at = again.read_queue("orders", queue, at, 10, 10_000).next_offset
            except CorruptRecord:
                damaged += 1
                at += 1  # type: ignore[assignment]
    assert damaged == 1, "reads around it go on"
    open_epoch(again)
    again.reserve_offsets([], 0)
    assert again.append([frame(b"z", queue=0)], 1).start == end


def damage_behind_checkpoint(machine: Machine, store: Store) -> tuple[int, int]:
    """Damage one record that recovery has to read although it is durable; where it lies."""
    entries = sorted(start for entries in queues_of(whole_log(store), SMALL.segment_bytes).values() for _, start in entries)
    border = next(at for at, start in enumerate(entries) if start >= store.applied) + 5
    low, high = entries[border], entries[border + 1]
    path = f"commitlog/{store.segment_of(low)[0]:020d}"
    put(machine, path, b"\xee", low % SMALL.segment_bytes + 95)
    return low, high


@pytest.mark.parametrize("name", ["checkpoint", "producers", "watermark", "boot"])
@pytest.mark.parametrize("harm", ["flip", "empty", "gone"])
def test_a_damaged_side_file_costs_no_record(machine: Machine, name: str, harm: str) -> None:
    store = filled(machine)
    log = whole_log(store)
    machine.kill()
    damage(machine, f"dittomq/{name}", harm)

    again = machine.open()

    assert whole_log(again) == log
    assert again.stopped is (StopKind.POWER_LOSS if name == "boot" else StopKind.KILLED)
    if harm != "gone" and name != "boot":
        assert any(f"dittomq/{name} is damaged" in note for note in again.notes)
    again.dispatch(again.end)
    assert [again.queue_range("orders", queue) for queue in range(3)] == [(0, 20)] * 3
    assert again.find_sequence("p", 59) is not None
    machine.kill()
    assert machine.open().notes == []


def damage(machine: Machine, path: str, harm: str) -> None:
    file = inode(machine, path)
    if harm == "gone":
        del machine.disk.names.files[path]
    elif harm == "empty":
        file.truncate(0, machine.chance)
    else:
        for at in range(30, file.size, 4_096):
            file.write(memoryview(bytes([file.read(1, at)[0] ^ 1])), at, machine.chance)


@pytest.mark.parametrize("name", ["identity", "lineage", "queue-minimums"])
def test_a_damaged_side_file_that_nothing_replaces_is_refused_by_name(machine: Machine, name: str) -> None:
    store = filled(machine)
    store.hide(store.next_offsets("orders"))
    machine.kill()
    damage(machine, f"dittomq/{name}", "flip")

    with pytest.raises(StoreOpenFailed, match=f"dittomq/{name} is damaged.*restore it, or empty the data_dir"):
        machine.open()


def test_with_recovery_point_and_checkpoint_damaged_nothing_is_guessed(machine: Machine) -> None:
    filled(machine)
    machine.kill()
    damage(machine, "dittomq/watermark", "flip")
    damage(machine, "dittomq/checkpoint", "flip")

    with pytest.raises(StoreOpenFailed, match="neither of its two slots is whole"):
        machine.open()


def test_a_missing_segment_below_the_recovery_point_is_refused_and_named(machine: Machine) -> None:
    filled(machine)
    machine.kill()
    last = max(path for path in machine.disk.names.files if path.startswith("commitlog/"))
    del machine.disk.names.files[last]

    with pytest.raises(StoreOpenFailed, match="were durable and their segments are gone"):
        machine.open()


def test_a_missing_segment_in_the_middle_is_refused_and_named(machine: Machine) -> None:
    filled(machine)
    machine.kill()
    del machine.disk.names.files[f"commitlog/{SMALL.segment_bytes:020d}"]

    with pytest.raises(StoreOpenFailed, match=f"commitlog/{SMALL.segment_bytes:020d} is missing between others"):
        machine.open()


def test_queues_that_were_deleted_are_built_again(machine: Machine) -> None:
    store = filled(machine)
    log = whole_log(store)
    machine.kill()
    for path in [path for path in machine.disk.names.files if path.startswith("consumequeue/")]:
        del machine.disk.names.files[path]

    again = machine.open()
    again.dispatch(again.end)

    expected = queues_of(log, SMALL.segment_bytes)
    for (topic, queue), entries in expected.items():
        found = again.read_queue(topic, queue, 0, 100, 1 << 20).messages
        assert [(message.queue_offset, message.physical_offset) for message in found] == entries


def test_an_epoch_is_durable_before_its_first_byte_and_replaced_while_it_has_none(machine: Machine) -> None:
    store = machine.open()
    for epoch in (1, 2):
        begin_epoch(store, EpochEntry(Epoch(epoch), 0, epoch, PhysicalOffset(0)))
    machine.lose_power()

    again = machine.open()

    assert again.epoch_history == (EpochEntry(Epoch(2), 0, 2, PhysicalOffset(0)),)
