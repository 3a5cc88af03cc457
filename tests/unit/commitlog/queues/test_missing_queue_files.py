"""A file of a queue that goes while others before and behind it stay: it is built again from the log, and no number is given twice."""

import random
from dataclasses import replace

import pytest

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues.consume_queue import QueueIndex, misses_files
from dittomq.commitlog.queues.index_checkpoint import Checkpoint
from dittomq.commitlog.queues.key_format import KeyMark
from dittomq.commitlog.records.format import UNIT
from dittomq.commitlog.store import Store
from dittomq.errors import StorageFailure
from tests.support.record_damage import entries, loses
from tests.support.stores import SMALL, Machine, frame, open_epoch, places, whole_log
from tests.unit.commitlog.repaired_stores import rot

UNITS = SMALL.queue_file_units
COUNT = 4 * UNITS + 10


def path_of(number: int, queue: int = 0) -> str:
    return f"consumequeue/orders/{queue}/{number * UNITS * 20:020d}"


def kept(store: Store) -> None:
    """Let a checkpoint know all of it."""
    store.sync()
    store.dispatch(store.end)
    store.checkpoint()


def of_five_files(clean: bool = True) -> tuple[Machine, list[bytes]]:
    """A store that is not in use, and the bodies in its queue."""
    machine = Machine(random.Random(3))
    store = machine.lead()
    bodies = [b"%d" % number for number in range(COUNT)]
    for body in bodies:
        store.append([frame(body)], 1)
    kept(store)
    store.persist_recovery_point(store.end, store.end)
    if clean:
        store.close(clean=True)
    else:
        machine.kill()
    return machine, bodies


def read(store: Store, low: int = 0) -> list[bytes]:
    found: list[bytes] = []
    while low + len(found) < store.queue_range("orders", 0)[1]:
        found += [message.body for message in store.read_queue("orders", 0, low + len(found), 100, 1 << 20).messages]
    return found


def shorten(machine: Machine, path: str) -> None:
    file = machine.beside().open(path)
    file.truncate(10 * 20)
    file.fdatasync()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("how", ["missing", "cut short"])
def test_one_that_is_missing_or_cut_short_is_built_again_wherever_it_was(number: int, how: str, *, clean: bool) -> None:
    machine, bodies = of_five_files(clean)
    if how == "missing":
        del machine.disk.names.files[path_of(number)]
    else:
        shorten(machine, path_of(number))

    store = machine.open()
    kept(store)

    assert "built again from the log" in " ".join(store.notes)
    assert read(store) == bodies
    store.close(clean=True)
    assert machine.open().notes == []


def test_a_truncation_across_a_missing_one_gives_no_number_twice() -> None:
    machine, bodies = of_five_files()
    store = machine.open()
    to = entries(whole_log(store))[UNITS + 5][0]
    del machine.disk.names.files[path_of(1)]

    store.truncate(to)
    [placed] = places(store.append([frame(b"new")], 9).placed[0])

    assert placed.queue_offset == UNITS + 5
    kept(store)
    assert read(store) == [*bodies[: UNITS + 5], b"new"]


def with_a_gap() -> tuple[Machine, Store, bytes, int]:
    """A store in use of whose queue some files were never made, because numbers were left out; its log; the first message behind them."""
    machine = Machine(random.Random(3))
    store = machine.lead()
    store.append([frame(b"first")], 1)
    kept(store)
    store.append([frame(b"x" * 60 * UNITS) for _ in range(8)], 1)
    store.persist_recovery_point(store.sync(), 0)
    log = whole_log(store)
    machine.kill()
    start = entries(log)[1][0]
    rot(machine, log, loses(0, len(log)), start, end=len(log))
    store = machine.open()
    store.reserve_offsets((), 0)
    open_epoch(store)
    [placed] = places(store.append([frame(b"behind")], 9).placed[0])
    kept(store)
    assert placed.queue_offset > 3 * UNITS
    return machine, store, log, placed.queue_offset


def test_files_of_numbers_that_were_left_out_are_not_missed() -> None:
    machine, _, _, behind = with_a_gap()
    assert not machine.storage().exists(path_of(1))

    for _ in range(2):
        again = machine.open()
        assert "built again" not in " ".join(again.notes)
        assert again.read_queue("orders", 0, behind, 1, 1_000).messages[0].body == b"behind"
        kept(again)


def test_omitted_queue_files_of_an_earlier_version_are_not_missing() -> None:
    machine, store, _, _ = with_a_gap()
    assert store.damaged
    assert not store.unread.ranges
    machine.kill()
    storage = machine.storage()
    value = told(storage)
    assert value.pop("unmade") == [["orders", 0, 4]]
    state_file.save_json(storage, "checkpoint", b"CHEK", value)

    for _ in range(2):
        again = machine.open()
        assert again.notes == []
        assert not again.unread.ranges
        kept(again)
    assert told(machine.storage())["unmade"] == [["orders", 0, 4]]


def test_missing_queue_file_is_not_taken_for_one_omitted_and_dropped() -> None:
    machine, store, _, behind = with_a_gap()
    for _ in range(6 * UNITS):
        store.append([frame(b"y" * 500)], 9)
    kept(store)
    store.persist_recovery_point(store.end, store.end)
    assert store.drop_before(store.end // 2) > 0
    assert store.queue_range("orders", 0)[0] > behind
    kept(store)
    machine.kill()
    store = machine.open()
    low, high = store.queue_range("orders", 0)
    store.append([frame(b"z")], 9)
    kept(store)
    missing = low // UNITS + 1
    assert missing < high // UNITS
    machine.beside().unlink(path_of(missing))
    machine.kill()

    again = machine.open()

    assert "built again" in " ".join(again.notes)
    kept(again)
    assert len(read(again, low)) == high + 1 - low


def test_omitted_queue_file_made_by_a_repair_is_missing_when_it_goes() -> None:
    storage = Machine(random.Random(3)).storage()
    index = QueueIndex(storage, OpenFiles(storage, 8), UNITS, SMALL.segment_bytes)
    queue = index.queue("orders", 0)
    for offset in (0, 5 * UNITS):
        index.write(queue, offset, UNIT.pack(offset, 100, 0))
    assert not misses_files(storage, held_by(index), ("orders", 0), 0)

    index.fill(queue, 2 * UNITS, UNIT.pack(50, 100, 0))
    index.fill(queue, 2 * UNITS + 1, UNIT.pack(50, 100, 0))
    assert not misses_files(storage, held_by(index), ("orders", 0), 0)
    storage.unlink(path_of(2))

    assert misses_files(storage, held_by(index), ("orders", 0), 0)


def test_those_between_a_repaired_message_and_where_its_queue_began_are_not_missed() -> None:
    storage = Machine(random.Random(3)).storage()
    index = QueueIndex(storage, OpenFiles(storage, 8), UNITS, SMALL.segment_bytes, begins_late=True)
    queue = index.queue("orders", 0)
    index.write(queue, 5 * UNITS, UNIT.pack(5_000, 100, 0))

    index.fill(queue, 2 * UNITS, UNIT.pack(2_000, 100, 0))

    assert queue.min == 2 * UNITS
    assert not misses_files(storage, held_by(index), ("orders", 0), queue.min)


def told(storage: Storage) -> dict[str, object]:
    """The checkpoint as it is on the disk."""
    value = state_file.load_json(storage, "checkpoint", b"CHEK", dict[str, object])
    assert value is not None
    return value


def held_by(index: QueueIndex) -> Checkpoint:
    """What a checkpoint says of these queues."""
    ranges, unmade = index.held()
    return Checkpoint(10_000, 0, UNITS, ranges, KeyMark(SMALL.key_sizes), unmade=unmade)


def test_queue_file_lost_while_written_ends_the_node_and_is_rebuilt() -> None:
    """The next start builds it again."""
    machine, bodies = of_five_files()
    machine.options = replace(SMALL, open_files=1)
    store = machine.open()
    store.append([frame(b"first")], 9)
    kept(store)
    store.read(0, 10)
    machine.beside().unlink(path_of(4))
    store.append([frame(b"second")], 9)

    with pytest.raises(StorageFailure, match="No such file"):
        kept(store)

    machine.kill()
    again = machine.open()
    kept(again)
    assert read(again) == [*bodies, b"first", b"second"]


def test_a_truncation_misses_no_files_that_somebody_else_dropped_with_the_log() -> None:
    machine = Machine(random.Random(3))
    store = machine.lead()
    for _ in range(COUNT):
        store.append([frame(b"y" * 500)], 9)
    kept(store)
    store.persist_recovery_point(store.end, store.end)
    log, size = whole_log(store), store.segment_bytes
    store.close(clean=True)
    begin, beside = 3 * size, machine.beside()
    below = [number for number in range(COUNT // UNITS) if entries(log)[number * UNITS + UNITS - 1][0] < begin]
    assert below
    for path in [f"commitlog/{at:020d}" for at in range(0, begin, size)] + [path_of(number) for number in below]:
        beside.unlink(path)
    store = machine.open()
    assert "RocketMQ dropped" in " ".join(store.notes)
    low, _ = store.queue_range("orders", 0)

    store.truncate(entries(log)[-1][0])

    assert "dittomq/checkpoint" in machine.files()
    assert store.queue_range("orders", 0) == (low, COUNT - 1)
