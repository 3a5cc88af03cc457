"""Stores that RocketMQ wrote from their first byte on, opened here for the first time."""

import random
import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from dittomq.commitlog.store import StopKind, Store
from dittomq.errors import CorruptRecord, MessageTooLarge, StoreOpenFailed
from tests.simulation.simulated_process import SimCrashed
from tests.support.foreign_records import foreign_log, foreign_record, put_file, put_log
from tests.support.stores import SMALL, Machine, draft, frame, open_epoch, whole_log
from tests.unit.commitlog.message_bodies import bodies

SEGMENT = SMALL.segment_bytes
DRAFTS = [draft(queue=at % 3, body=b"%d:" % at + b"x" * 900, tag="tag", identity=("p", at)) for at in range(60)]
LOG = foreign_log(DRAFTS, 0, SEGMENT)
STARTS = [at for at in range(len(LOG)) if LOG[at + 4 : at + 8] == b"\xda\xa3\x20\xa7"]


@pytest.fixture
def machine() -> Machine:
    machine = Machine(random.Random(3))
    put_log(machine, LOG, 0)
    return machine


def kill_rocketmq(machine: Machine, newest_ms: int) -> None:
    """Its abort file is there, and a checkpoint."""
    put_file(machine, "abort", b"4711")
    put_file(machine, "checkpoint", struct.pack(">qq", newest_ms, newest_ms + 9))


def flip(machine: Machine, position: int) -> None:
    file = machine.storage().open(f"commitlog/{position - position % SEGMENT:020d}")
    file.pwrite(bytes([LOG[position] ^ 1]), position % SEGMENT)
    file.fdatasync()


def test_a_store_that_rocketmq_closed_is_opened_whole(machine: Machine) -> None:
    store = machine.open()

    assert (store.stopped, store.end, store.recovery_truncation, store.damaged) == (StopKind.CLEAN, len(LOG), None, [])
    assert whole_log(store) == LOG
    assert bodies(store) == [each.body for each in DRAFTS]
    assert store.epoch_history == ()
    assert store.find_sequence("p", 3) is None, "a sequence that RocketMQ copied is not believed"


def test_a_segment_that_rocketmq_was_killed_while_making_is_no_hindrance(machine: Machine) -> None:
    kill_rocketmq(machine, newest_ms=0)
    put_file(machine, f"commitlog/{-(-len(LOG) // SEGMENT) * SEGMENT:020d}", b"")
    store = machine.lead()
    while store.end <= (len(LOG) // SEGMENT + 1) * SEGMENT:  # into the segment of that name
        store.append([frame(b"ours" * 200, queue=1)], 99)
    machine.kill()

    again = machine.open()

    assert bodies(again)[: len(DRAFTS)] == [each.body for each in DRAFTS]
    assert bodies(again)[-1] == b"ours" * 200


def test_our_first_epoch_begins_where_rocketmqs_bytes_end(machine: Machine) -> None:
    store = machine.lead()
    store.append([frame(b"ours", queue=1)], 99)
    machine.kill()

    again = machine.open()

    assert [(entry.epoch, entry.start) for entry in again.epoch_history] == [(1, len(LOG))]
    assert bodies(again) == [*(each.body for each in DRAFTS), b"ours"]
    assert again.queue_range("orders", 1) == (0, 21)


@pytest.mark.parametrize("position", [STARTS[0] + 100, STARTS[20] + 100, STARTS[-5] + 100], ids=["first", "middle", "last but four"])
def test_after_a_clean_stop_damage_anywhere_is_isolated(machine: Machine, position: int) -> None:
    flip(machine, position)

    store = machine.open()

    assert (store.end, store.recovery_truncation) == (len(LOG), None)
    assert [low for low, _ in store.damaged] == [position - 100]
    with pytest.raises(CorruptRecord):
        bodies(store)


def test_after_a_kill_damage_below_rocketmqs_checkpoint_is_isolated(machine: Machine) -> None:
    kill_rocketmq(machine, 3_005)
    flip(machine, STARTS[3] + 100)

    store = machine.open()

    assert (store.stopped, store.end) == (StopKind.POWER_LOSS, len(LOG))
    assert store.damaged == [(STARTS[3], STARTS[4])]


def test_after_a_kill_damage_above_it_ends_the_log_and_goes_to_a_side_file(machine: Machine) -> None:
    kill_rocketmq(machine, 3_005)
    flip(machine, STARTS[-2] + 100)

    store = machine.open()

    assert store.end == STARTS[-2]
    assert store.recovery_truncation is not None
    assert store.recovery_truncation.saved_bytes == len(LOG) - STARTS[-2]


@pytest.mark.parametrize("newest_ms", [0, 3_004])
def test_without_a_checkpoint_that_says_more_the_first_damage_ends_the_log(machine: Machine, newest_ms: int) -> None:
    kill_rocketmq(machine, newest_ms)
    flip(machine, STARTS[3] + 100)

    store = machine.open()

    assert store.end == STARTS[3]
    assert store.recovery_truncation is not None
    assert store.recovery_truncation.saved_bytes == len(LOG) - STARTS[3]


def test_a_torn_last_record_that_rocketmq_would_keep_is_truncated(machine: Machine) -> None:
    kill_rocketmq(machine, 0)
    put_log(machine, bytes(5), len(LOG) - 5)

    assert machine.open().end == STARTS[-1]


def test_dying_anywhere_while_it_is_adopted_changes_nothing(machine: Machine) -> None:
    flip(machine, STARTS[20] + 100)
    for operations in range(400):
        storage = machine.storage()
        machine.faults.operations_to_live = operations
        try:
            store = Store.open(storage, SMALL, chance=machine.chance, wall_ms=1_000)
        except SimCrashed:
            machine.lose_power()
            continue
        assert (store.end, store.damaged, store.recovery_truncation) == (len(LOG), [(STARTS[20], STARTS[21])], None)
        assert operations > 50
        return
    pytest.fail("it never came to its end")


def test_a_topic_that_was_deleted_and_made_again_holds_what_rocketmqs_queue_holds() -> None:
    machine = Machine(random.Random(3))
    before = foreign_log([draft(body=b"old %d" % at) for at in range(40)], 0, SEGMENT)
    after = foreign_log([draft(body=b"new %d" % at) for at in range(5)], len(before), SEGMENT)
    put_log(machine, before + after, 0)

    store = machine.open()

    assert bodies(store) == [b"new %d" % at for at in range(5)]
    open_epoch(store)
    [[placed]] = store.append([frame(b"next")], 9).placed  # type: ignore[misc]
    assert placed.queue_offset == 5


def test_queues_of_a_log_whose_first_segments_expired_begin_where_the_log_does() -> None:
    machine = Machine(random.Random(3))
    put_log(machine, foreign_log([draft(body=b"%d" % at) for at in range(40)], SEGMENT, SEGMENT, {("orders", 0): 1_000}), SEGMENT)

    store = machine.open()
    store.dispatch(store.end)

    assert store.min_offset == SEGMENT
    assert store.queue_range("orders", 0) == (1_000, 1_040)


def test_message_that_inflates_beyond_the_limit_is_refused_alone() -> None:
    """Its neighbours are read."""
    import zlib

    machine = Machine(random.Random(3))
    log = b""
    for offset, body in enumerate((b"one", bytes(8 * 1024 * 1024), b"two")):
        log += foreign_record(draft(body=zlib.compress(body)), offset, len(log), system_flag=0x1)
    put_log(machine, log, 0)

    store = machine.open()
    store.dispatch(store.end)

    first = store.read_queue("orders", 0, 0, 10, 1 << 20)
    assert ([message.body for message in first.messages], first.next_offset) == ([b"one"], 1)
    with pytest.raises(MessageTooLarge):
        store.read_queue("orders", 0, 1, 10, 1 << 20)
    assert [message.body for message in store.read_queue("orders", 0, 2, 10, 1 << 20).messages] == [b"two"]


def test_a_page_of_messages_has_its_size_when_they_are_inflated() -> None:
    import zlib

    machine = Machine(random.Random(3))
    log = b""
    for offset in range(10):
        log += foreign_record(draft(body=zlib.compress(bytes(1024 * 1024))), offset, len(log), system_flag=0x1)
    put_log(machine, log, 0)
    store = machine.open()
    store.dispatch(store.end)

    page = store.read_queue("orders", 0, 0, 10, 3 * 1024 * 1024)

    assert (len(page.messages), page.next_offset) == (3, 3)


def test_slave_copies_an_adopted_masters_history_by_the_same_rule(machine: Machine) -> None:
    master = machine.lead()
    master.append([frame(b"ours")], 99)
    slave = Machine(random.Random(4)).open()

    at = 0
    while at < master.end:
        upto = tuple(entry for entry in master.epoch_history if entry.start <= at)
        if upto != slave.epoch_history:
            slave.replace_epoch_history(upto)
        data = master.read_records(at, master.end, 5_000)
        slave.write_chunk(at, data)
        at += len(data)

    assert whole_log(slave) == whole_log(master)
    assert bodies(slave) == bodies(master)


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("consumequeue/CURRENT", "consumequeue/ holds RocksDB queues"),
        ("consumequeue/%LMQ%a/0/00000000000000000000", "consumequeue/ holds LMQ queues"),
        ("config/rdb/CURRENT", "config/rdb/ holds RocksDB tables"),
        ("dledger-n0/data/00000000000000000000", "dledger-n0/ holds a log of DLedger"),
    ],
)
def test_what_is_not_read_is_refused_by_name_before_anything_is_changed(machine: Machine, path: str, what: str) -> None:
    machine.storage().make_folder(path.rpartition("/")[0])
    put_file(machine, path, b"")
    before = machine.files()

    with pytest.raises(StoreOpenFailed, match=what):
        machine.open()

    assert machine.files().keys() - {"lock"} == before.keys() - {"lock"}


@pytest.mark.parametrize(
    ("folder", "what"),
    [
        ("batchconsumequeue", "batch queues"),
        ("compaction/compactionLog", "compacted topics"),
        ("consumequeue_ext", "queue extensions"),
        ("consumequeue_rocksdb", "RocksDB queues"),
        ("rocksdbstore", "RocksDB queues"),
        ("tieredStore", "a tiered store"),
    ],
)
def test_every_kind_of_store_that_is_not_read_is_refused_by_name(machine: Machine, folder: str, what: str) -> None:
    machine.storage().make_folder(folder)
    put_file(machine, f"{folder}/any", b"")

    with pytest.raises(StoreOpenFailed, match=f"{folder}/ holds {what}, which this version does not read"):
        machine.open()


@pytest.mark.parametrize("folder", ["dledger-n0/data", "compaction/compactionLog", "tieredStore"])
def test_without_a_log_beside_it_that_is_refused_too_and_never_opened_empty(folder: str) -> None:
    machine = Machine(random.Random(3))
    machine.storage().make_folder(folder)
    put_file(machine, f"{folder}/any", b"")

    with pytest.raises(StoreOpenFailed, match="which this version does not read"):
        machine.open()


@pytest.mark.parametrize("path", ["consumequeue/orders/0/00000000000000000000", "index/20261121012736773"])
def test_a_store_of_rocketmq_whose_log_lies_elsewhere_is_not_opened_empty(path: str) -> None:
    machine = Machine(random.Random(3))
    machine.storage().make_folder(path.rpartition("/")[0])
    put_file(machine, path, b"")
    before = machine.files()

    with pytest.raises(
        StoreOpenFailed, match="was built from a log, and commitlog/ holds none; bring here as commitlog/ what storePathCommitLog"
    ):
        machine.open()

    assert machine.files().keys() - {"lock"} == before.keys()


def test_what_rocketmq_leaves_where_it_never_stored_a_message_is_opened() -> None:
    machine = Machine(random.Random(3))
    for folder in ("config", "compaction", "commitlog", "consumequeue"):
        machine.storage().make_folder(folder)
    for path in ("config/topics.json", "compaction/position-checkpoint", "checkpoint"):
        put_file(machine, path, b"")

    assert machine.open().end == 0


def test_a_batch_in_the_log_is_refused_by_name_before_anything_is_changed(machine: Machine) -> None:
    put_log(machine, foreign_record(draft(), 20, len(LOG), system_flag=0x80), len(LOG))
    before = machine.files()

    with pytest.raises(StoreOpenFailed, match=f"the record at byte {len(LOG):,} belongs to a batch queue"):
        machine.open()

    assert machine.files().keys() - {"lock"} == before.keys() - {"lock"}


@pytest.mark.parametrize("behind", [0, 3], ids=["the last one", "others behind it"])
def test_a_message_larger_than_ours_may_be_is_refused_by_name_and_not_called_damaged(behind: int) -> None:
    machine = Machine(random.Random(3), replace(SMALL, segment_bytes=8 * 1024 * 1024))
    drafts = [draft(body=b"one"), draft(body=bytes(5 * 1024 * 1024)), *(draft(body=b"behind") for _ in range(behind))]
    put_log(machine, foreign_log(drafts, 0, machine.options.segment_bytes), 0)

    with pytest.raises(StoreOpenFailed, match="belongs to a queue with messages of more than 4,194,304 bytes, which this version does not"):
        machine.open()


def test_a_size_that_is_damaged_is_no_message_that_is_too_large() -> None:
    machine = Machine(random.Random(3), replace(SMALL, segment_bytes=8 * 1024 * 1024))
    log = bytearray(foreign_log([draft(body=b"%d" % at) for at in range(4)], 0, machine.options.segment_bytes))
    second = len(log) // 4
    log[second : second + 4] = struct.pack(">i", 5 * 1024 * 1024)
    put_log(machine, bytes(log), 0)

    store = machine.open()

    assert store.damaged == [(second, 2 * second)]
    assert store.end == len(log)


def test_an_identity_that_was_lost_does_not_make_a_store_of_ours_rocketmqs(machine: Machine) -> None:
    open_epoch(machine.open())
    machine.kill()
    put_file(machine, "dittomq/identity", None)

    with pytest.raises(StoreOpenFailed, match="dittomq/identity is missing; restore it"):
        machine.open()


@pytest.mark.parametrize("does", [lambda store: store.drop_before(SEGMENT), lambda store: store.truncate(STARTS[-3])], ids=["drop", "cut"])
def test_queue_offset_rotted_into_a_huge_one_costs_no_search_up_to_it(machine: Machine, does: Callable[[Store], object]) -> None:
    put_log(machine, b"\x10", STARTS[30] + 21)  # no checksum of RocketMQ's covers the queue offset
    store = machine.open()
    store.dispatch(store.end)
    store.persist_recovery_point(store.flushed, store.end)
    store.checkpoint()

    does(store)

    assert store.queue_range("orders", 0)[1] > 1 << 52
    assert store.queue_range("orders", 1)[1] == 20 - (store.end < len(LOG))
