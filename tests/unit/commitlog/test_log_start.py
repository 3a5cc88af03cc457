"""A copy that begins where its master's log does now: its queues go on where the master's do, whatever the log no longer tells."""

import random

import pytest

from dittomq.commitlog.queues import orphaned_queue_files
from dittomq.commitlog.records.format import UNIT_BYTES
from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.errors import CorruptRecord
from dittomq.offsets import PhysicalOffset
from tests.support.foreign_records import foreign_log, foreign_record, put_file, put_log
from tests.support.stores import Machine, dies, draft, frame
from tests.unit.commitlog.dropped_logs import SEGMENT, log_from, read_all, settled
from tests.unit.commitlog.late_logs import EARLY, copy_of, next_offset, queue_file, ranges, rocketmqs


def dropped(segments: int = 1) -> Store:
    """A master's store without its first segments: of one queue nothing is left."""
    source = settled(Machine(random.Random(6)))
    source.drop_before(segments * SEGMENT)
    assert source.queue_range(*EARLY) == (1, 1)
    return source


def test_dropped_queue_continues_in_a_replica_that_never_held_it(machine: Machine) -> None:
    source = dropped()
    copy = copy_of(source, machine)

    assert ranges(copy) == ranges(source)
    assert read_all(copy) == read_all(source)
    assert next_offset(copy, "early") == 1


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize(
    "lost", [(), ("dittomq/checkpoint",), ("dittomq/checkpoint", "consumequeue/")], ids=["nothing", "checkpoint", "queues"]
)
def test_it_goes_on_after_a_restart_also_when_queues_are_built_again(machine: Machine, power: bool, lost: tuple[str, ...]) -> None:
    source = dropped()
    copy_of(source, machine).checkpoint()
    (machine.lose_power if power else machine.kill)()
    for path in [path for path in machine.disk.names.files if path.startswith(lost)] if lost else []:
        del machine.disk.names.files[path]

    again = machine.open()

    again.dispatch(again.end)
    assert ranges(again) == ranges(source)
    assert next_offset(again, "early") == 1


def test_a_copy_of_a_copy_and_one_that_drops_at_another_time_know_it_too(machine: Machine) -> None:
    source = dropped()
    copy = copy_of(source, machine)
    copy.drop_before(2 * SEGMENT)

    third = copy_of(copy, Machine(random.Random(8)))

    assert (copy.min_offset, third.min_offset) == (2 * SEGMENT, 2 * SEGMENT)
    assert ranges(third) == ranges(copy)
    assert {key: high for key, (_, high) in ranges(third).items()} == {key: high for key, (_, high) in ranges(source).items()}
    assert next_offset(third, "early") == 1


def test_deleted_topic_is_hidden_in_a_replica_that_missed_the_deletion(machine: Machine) -> None:
    source = settled(Machine(random.Random(6)))
    source.hide({**source.next_offsets("orders"), **source.next_offsets("early")})
    source.drop_before(SEGMENT)

    copy = copy_of(source, machine)

    assert ranges(copy) == ranges(source)
    assert all(low == high > 0 for low, high in ranges(copy).values())
    assert copy.minimums() == source.minimums()
    copy.checkpoint()
    machine.kill()
    again = machine.open()
    assert ranges(again) == ranges(source)
    assert next_offset(again, "early") == 1


def test_a_deletion_that_may_still_be_undone_is_not_told(machine: Machine) -> None:
    source = dropped()
    source.append([frame(b"not confirmed")], 1_000)
    source.hide(source.next_offsets("orders"))

    assert source.log_start().deleted_below == {}
    assert source.log_start().first_offsets[EARLY] == 1


def test_empty_log_that_dies_while_moving_knows_its_queues_once_moved() -> None:
    """It dies anywhere."""
    beginning = dropped().log_start()
    for operations in range(400):
        machine = Machine(random.Random(operations))
        store = machine.open()
        machine.faults.operations_to_live = operations
        done = dies(lambda store=store: store.set_log_start(beginning))  # type: ignore[misc]
        machine.lose_power()

        again = machine.open()

        assert (again.min_offset, again.queue_range(*EARLY)) in {(0, (0, 0)), (SEGMENT, (1, 1))}
        if done:
            break
    else:
        pytest.fail("it never came to its end")


def test_an_empty_log_that_begins_elsewhere_again_forgets_what_it_was_told_before(machine: Machine) -> None:
    store = machine.open()
    store.set_log_start(dropped().log_start())

    store.set_log_start(LogStart(PhysicalOffset(2 * SEGMENT), {("other", 3): 7}))

    assert (store.queue_range(*EARLY), store.queue_range("other", 3)) == ((0, 0), (7, 7))


def test_a_topic_that_rocketmq_makes_again_counts_from_0_in_the_copy_too(machine: Machine) -> None:
    """Its broker knows no minimum: what it appends counts anew, and is read."""
    source = dropped()
    copy = copy_of(source, machine)
    copy.close(clean=True)
    put_log(machine, foreign_log([draft("early", body=b"anew")], copy.end, SEGMENT), copy.end)

    again = machine.open()

    again.dispatch(again.end)
    assert again.queue_range(*EARLY) == (0, 1)
    assert again.read_queue("early", 0, 0, 1, 1_000).messages[0].body == b"anew"


def test_queue_emptied_by_rocketmq_continues_where_its_file_says(machine: Machine) -> None:
    rocketmqs(machine)

    store = machine.open()

    store.dispatch(store.end)
    assert ranges(store) == {EARLY: (42, 42), ("orders", 0): (3, 8)}
    store.persist_recovery_point(store.end, store.end)
    assert ranges(copy_of(store, Machine(random.Random(9)))) == ranges(store)
    store.close(clean=True)
    for path in [path for path in machine.disk.names.files if path.startswith(("consumequeue/", "dittomq/checkpoint"))]:
        del machine.disk.names.files[path]
    again = machine.open()
    again.dispatch(again.end)
    assert ranges(again) == {EARLY: (42, 42), ("orders", 0): (3, 8)}
    assert next_offset(again, "early") == 42


@pytest.mark.tier("test")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_a_first_start_on_it_that_dies_anywhere_is_repeated_and_knows_it(power: bool) -> None:
    for operations in range(400):
        machine = Machine(random.Random(operations))
        rocketmqs(machine)
        machine.life.end()
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        done = dies(lambda: Store.open(storage, machine.options, chance=machine.chance, wall_ms=1_000))  # noqa: B023 - called here
        (machine.lose_power if power else machine.kill)()

        again = machine.open()

        again.dispatch(again.end)
        assert ranges(again) == {EARLY: (42, 42), ("orders", 0): (3, 8)}
        if done:
            break
    else:
        pytest.fail("the start never ran to its end")


def test_segments_that_come_back_after_a_start_without_them_are_held_again(machine: Machine) -> None:
    """They were not dropped by us: a disk, or somebody, has put them away for a while."""
    store = settled(machine)
    log = log_from(store, 0)
    store.close(clean=True)
    path = f"commitlog/{0:020d}"
    away = machine.disk.names.files.pop(path)
    store = machine.open()
    assert store.min_offset == SEGMENT
    store.close(clean=True)
    machine.disk.names.files[path] = away

    again = machine.open()

    assert (again.min_offset, log_from(again, 0)) == (0, log)


@pytest.mark.parametrize("rotten", [False, True], ids=["cut later", "cut by the start"])
def test_queue_trimmed_by_rocketmq_reuses_no_offset_after_a_truncation(machine: Machine, rotten: bool) -> None:
    """RocketMQ has dropped its first messages; the others are truncated."""
    rocketmqs(machine)
    if rotten:
        put_file(machine, "abort", b"")
        put_file(machine, f"commitlog/{SEGMENT:020d}", bytes(SEGMENT))
    store = machine.open()
    store.dispatch(store.end)
    store.truncate(SEGMENT)
    store.checkpoint()
    machine.kill()
    if not rotten:
        del machine.disk.names.files["dittomq/checkpoint"]

    again = machine.open()

    assert ranges(again) == {EARLY: (42, 42), ("orders", 0): (3, 3)}
    assert next_offset(again, "orders") == 3


def test_messages_missing_in_a_queue_rebuilt_by_rocketmq_are_not_hidden(machine: Machine) -> None:
    """RocketMQ built the queue again in part."""
    rocketmqs(machine)
    size = len(foreign_record(draft(body=b"x" * 900), 3, SEGMENT))
    units = [(0, 0x7FFFFFFF)] * 5 + [(SEGMENT + at * size, size) for at in range(2, 5)]
    put_file(machine, f"consumequeue/orders/0/{0:020d}", queue_file(*units))

    store = machine.open()

    store.dispatch(store.end)
    assert ranges(store) == {EARLY: (42, 42), ("orders", 0): (3, 8)}


BELOW, HELD, BLANK = (1_000, 100), (SEGMENT, 100), (0, 0x7FFFFFFF)


@pytest.mark.parametrize(
    ("files", "low"),
    [
        ({0: [BELOW] * 3 + [HELD] * 2}, 3),
        ({0: [BELOW] * 40, 40: [HELD]}, 40),
        ({0: [BLANK, BELOW, HELD]}, 2),
        ({0: [BLANK] * 3 + [HELD] * 2}, 0),
        ({40: [HELD]}, 0),
        ({0: [BELOW] * 39, 40: [HELD]}, 0),
        ({0: [BELOW] * 12 + [HELD] * 8 + [BELOW] + [HELD] * 19}, 0),
        ({0: [BELOW] * 39 + [BLANK], 40: [HELD]}, 0),
        ({0: [BELOW if at in {20, 30, 35, 38, 39} else HELD for at in range(40)], 40: [HELD]}, 0),
        ({0: [BELOW, (2_000, 100), BELOW, HELD]}, 0),
    ],
    ids=[
        "in a file",
        "a file's first",
        "behind what stood for none",
        "what stands for none may stand for some",
        "an older file may be lost",
        "an older one is not full",
        "a unit that a search meets is wrong",
        "what stands for none ends a file",
        "units that a search meets are wrong up to a file's end",
        "one before is not in its place",
    ],
)
def test_where_a_queue_begins_is_taken_from_files_that_tell_it_for_certain_only(
    machine: Machine, files: dict[int, list[tuple[int, int]]], low: int
) -> None:
    machine.storage().make_folder("consumequeue/orders/0")
    for first, units in files.items():
        put_file(machine, f"consumequeue/orders/0/{first * UNIT_BYTES:020d}", queue_file(*units))

    assert orphaned_queue_files.emptied(machine.storage(), "store", SEGMENT).first_offsets == ({("orders", 0): low} if low else {})


NEW = ("new", 0)


def lacking_first_of_new(source: Store, copy: Store) -> bytes:
    """Let the master get messages of a new queue, and its copy all but the first of them; what it lacks, a hole."""
    source.append([frame(b"zero", topic="new")], 1_000)
    end = source.end
    source.append([frame(b"one", b"two", topic="new")], 1_000)
    source.dispatch(source.sync())
    start, lost = copy.end, log_from(source, copy.end)[: end - copy.end]
    assert copy.segment_of(start) == copy.segment_of(source.end)
    copy.skip_range(start, end)
    copy.write_chunk(end, log_from(source, end))
    copy.persist_recovery_point(copy.sync(), copy.end)
    copy.dispatch(copy.end)
    return lost


@pytest.mark.parametrize("stops", ["goes on", "killed", "checkpoint lost"])
def test_a_queue_whose_first_message_is_damaged_begins_with_it_all_the_same(machine: Machine, stops: str) -> None:
    """Who reads from where it begins is told that it is damaged, and asks another copy: no confirmed message is passed over."""
    source = dropped()
    copy = copy_of(source, machine)
    lost = lacking_first_of_new(source, copy)
    if stops != "goes on":
        copy.checkpoint()
        machine.kill()
        if stops == "checkpoint lost":
            del machine.disk.names.files["dittomq/checkpoint"]
        copy = machine.open()
        copy.dispatch(copy.end)

    assert ranges(copy) == ranges(source)
    with pytest.raises(CorruptRecord):
        copy.read_queue(*NEW, 0, 1, 10_000)

    copy.repair(copy.damaged[0].start, lost)
    assert [each.body for each in copy.read_queue(*NEW, 0, 9, 10_000).messages] == [b"zero", b"one", b"two"]
    assert read_all(copy) == read_all(source)


def test_copy_of_a_late_rocketmq_store_begins_where_it_found_its_queues(machine: Machine) -> None:
    rocketmqs(machine)
    for path in [path for path in machine.disk.names.files if path.startswith("consumequeue/orders")]:
        del machine.disk.names.files[path]  # then only the log tells
    store = machine.open()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)

    copy = copy_of(store, Machine(random.Random(9)))
    store.close(clean=True)
    del machine.disk.names.files["dittomq/checkpoint"]
    again = machine.open()
    again.dispatch(again.end)

    assert ranges(store) == ranges(copy) == ranges(again) == {EARLY: (42, 42), ("orders", 0): (3, 8)}
