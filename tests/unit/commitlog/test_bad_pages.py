"""Pages of what follows from the log that the disk does not give to a store in use: they end no node, and nobody is told what is not so."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.queues.key_format import KeySizes
from dittomq.commitlog.store import AppendBatch, Store
from dittomq.errors import CorruptRecord, NotReady, StorageFailure, StoreOpenFailed
from tests.support.stores import Machine, draft, frame, whole_log
from tests.unit.commitlog.bad_pages import OPTIONS, PAGE, WIDE, BadPages, add, in_use
from tests.unit.commitlog.dropped_logs import left_of
from tests.unit.commitlog.queues.key_index_files import TOPIC, from_the_log, kept, keyed, on_disk

QUEUE_FILE = f"consumequeue/{TOPIC}/0/{0:020d}"


def index_of(machine: Machine, at: Callable[..., str] = max) -> str:
    return f"index/{at(on_disk(machine))}"


@pytest.mark.parametrize("pages", [{0}, {1}, {2, 3}, {0, 1, 2, 3}])
def test_unreadable_key_index_slots_are_rebuilt_from_their_entries(pages: set[int]) -> None:
    machine, store, door = in_use()
    door.bad[index_of(machine)] = set(pages)

    add(store, range(120, 180))

    assert not door.bad[index_of(machine)]
    assert on_disk(machine) == from_the_log(whole_log(store), WIDE)


def test_unreadable_key_index_is_rebuilt_at_the_next_start() -> None:
    """The disk gives neither slots nor entries."""
    machine, store, door = in_use()
    door.bad[index_of(machine)] = {4}
    store.append([AppendBatch([keyed("key-120")])], 120)
    store.sync()

    with pytest.raises(StorageFailure, match="Input/output error"):
        kept(store)
    store.clear_boot_stamp()
    store.close(clean=False)
    again = Store.open(cast("Storage", door), OPTIONS, chance=random.Random(1), wall_ms=9_000)
    kept(again)

    assert "key index" in again.notes[0]
    assert on_disk(machine) == from_the_log(whole_log(again), WIDE)


def test_unreadable_index_header_goes_when_the_log_is_dropped_past_it() -> None:
    """It goes when the log is dropped behind the next file."""
    machine, store, door = in_use(replace(OPTIONS, key_sizes=KeySizes(slots=7, entries=30)))
    log, (first, *_, last) = whole_log(store), list(on_disk(machine))
    door.bad[f"index/{first}"] = {0}

    store.drop_before(store.end)

    assert store.min_offset > 0
    assert list(on_disk(machine))[-1] == last
    assert first not in on_disk(machine)
    assert left_of(log, store.min_offset)[TOPIC, 0][0][0] == store.queue_range(TOPIC, 0)[0]


@pytest.mark.parametrize("where", ["the key index", "a queue", "a queue's file is gone"])
def test_a_truncation_that_cannot_read_what_follows_from_the_log_builds_it_again(where: str) -> None:
    machine, store, door = in_use()
    to = next(position for at, position in left_of(whole_log(store), 0)[TOPIC, 0] if at == 40)
    if where == "a queue's file is gone":
        door.unlink(QUEUE_FILE)
    else:
        door.bad[index_of(machine) if where == "the key index" else QUEUE_FILE] = set(range(8))

    store.truncate(to)
    kept(store)

    assert (store.end, store.queue_range(TOPIC, 0)) == (to, (0, 40))
    assert on_disk(machine) == from_the_log(whole_log(store), WIDE)
    assert [message.queue_offset for message in store.read_queue(TOPIC, 0, 0, 100, 1 << 20).messages] == list(range(40))


@pytest.mark.parametrize("bad", [{0}, {1}, {2}, {0, 1, 2}])
def test_log_is_dropped_though_units_are_unreadable(bad: set[int]) -> None:
    """No message that is left goes with them."""
    _, store, door = in_use(messages=550)
    entries = left_of(whole_log(store), 0)[TOPIC, 0]
    door.bad[QUEUE_FILE] = set(bad)

    while (to := store.min_offset + OPTIONS.segment_bytes) < store.end - OPTIONS.segment_bytes:
        store.drop_before(to)
        assert store.min_offset == to
        low, first = store.queue_range(TOPIC, 0)[0], next(at for at, position in entries if position >= to)
        assert low <= first
        assert all({at * 20 // PAGE, (at * 20 + 19) // PAGE} & bad for at in range(low, first))
        assert store.queue_range(TOPIC, 0)[1] == len(entries)


def test_messages_with_unreadable_units_are_refused_with_the_disks_reason() -> None:
    """The others are read."""
    _, store, door = in_use(messages=550)
    door.bad[QUEUE_FILE] = {1}
    bad = range(PAGE // 20, 2 * PAGE // 20 + 1)

    for offset in (bad[0], bad[-1]):
        with pytest.raises(CorruptRecord, match="Input/output error"):
            store.read_queue(TOPIC, 0, offset, 100, 1 << 20)
    before = store.read_queue(TOPIC, 0, 0, 1_000, 1 << 20)
    behind = store.read_queue(TOPIC, 0, bad.stop, 1_000, 1 << 20)

    assert [message.queue_offset for message in before.messages] == list(range(bad.start))
    assert [message.queue_offset for message in behind.messages] == list(range(bad.stop, 550))


def test_a_queue_whose_file_cannot_be_opened_is_not_called_damaged() -> None:
    _, store, door = in_use(replace(OPTIONS, open_files=1))
    message = store.read_queue(TOPIC, 0, 0, 1, 1).messages[0]  # now the log's file is the one that is open
    door.refused = "consumequeue/"

    with pytest.raises(NotReady, match="Too many open files"):
        store.read_queue(TOPIC, 0, 0, 1, 1)

    door.refused = ""
    assert store.read_queue(TOPIC, 0, 0, 1, 1).messages == [message]


def test_log_that_cannot_be_opened_refuses_the_start_and_is_not_damaged() -> None:
    machine, store, _ = in_use()
    store.append([frame(b"behind the checkpoint")], 9_000)
    store.persist_recovery_point(store.sync(), store.end)
    log = whole_log(store)
    machine.lose_power()
    door = BadPages(machine)
    door.refused = "commitlog/"
    with pytest.raises(StoreOpenFailed, match="Too many open files"):
        Store.open(cast("Storage", door), OPTIONS, chance=random.Random(1), wall_ms=9_000)

    again = machine.open()

    assert (whole_log(again), again.damaged, again.recovery_truncation) == (log, [], None)


def test_repair_of_a_message_with_an_unreadable_unit_ends_no_node() -> None:
    machine, store, door = in_use(messages=60)
    start, end = (position for _, position in left_of(whole_log(store), 0)[TOPIC, 0][20:22])
    raw = store.read(start, end - start)
    machine.disk.names.files[f"commitlog/{0:020d}"].write(memoryview(b"\xff"), start + 90, machine.chance)
    assert store.verify(start, end).damaged == ((start, end),)
    door.bad[QUEUE_FILE] = {0}

    store.repair(start, raw)
    door.bad[QUEUE_FILE] = set()

    assert [message.queue_offset for message in store.read_queue(TOPIC, 0, 0, 100, 1 << 20).messages] == list(range(60))


def test_queueing_a_message_with_properties_on_a_bad_page_ends_no_node() -> None:
    """Its properties are long."""
    _, store, door = in_use(messages=1)
    long = draft(TOPIC)._replace(properties=b"p\x01" + b"v" * 5_000 + b"\x02KEYS\x01far-behind\x02")
    placed = store.append([AppendBatch([long])], 5_000)
    store.append([frame(b"next")], 5_001)
    door.bad[f"commitlog/{0:020d}"] = {placed.start // PAGE + 1}

    assert store.dispatch(store.end) == store.end

    assert store.queue_range(TOPIC, 0) == (0, 3)
