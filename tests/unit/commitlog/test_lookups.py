"""Messages by key, by place and by time in one store: over several index files, and whatever waits in memory."""

import random

import pytest

from dittomq.commitlog.store import AppendBatch, KeySearch, Store
from dittomq.errors import CorruptRecord
from dittomq.message import Draft
from dittomq.properties import encode_properties
from tests.support.stores import Machine

ALL = 1 << 62


def store_keyed(store: Store, keys: list[str], first_ms: int = 1_000) -> None:
    """A message for each key, one a second."""
    for number, key in enumerate(keys):
        draft = Draft("orders", 0, 0, 1, b"%d" % number, encode_properties((key,), "", {}), 0)
        store.append([AppendBatch([draft])], first_ms + 1_000 * number)
    store.sync()
    store.dispatch(store.end)


def found(store: Store, key: str, *, topic: str = "orders", before: int = ALL, most: int = 1_000) -> list[bytes]:
    search = KeySearch(topic, key, 0, ALL, before, most, most_bytes=ALL)
    return [message.body for message in store.find_by_key(search, ALL).messages]


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_keys_are_found_over_all_files_of_the_index_newest_first(machine: Machine, is_restarted: bool) -> None:
    store = machine.lead()
    chance = random.Random(3)
    keys = [f"k{chance.randrange(9)}" for _ in range(100)]
    store_keyed(store, keys)
    if is_restarted:
        store.close(clean=True)
        machine.kill()
        store = machine.lead()

    for key in {*keys, "nobody"}:
        assert found(store, key) == [b"%d" % number for number in range(99, -1, -1) if keys[number] == key], key
    assert found(store, "k1", topic="others") == []


def test_pages_of_a_search_are_the_whole_search(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 40)
    whole, at, pages = found(store, "k"), ALL, list[bytes]()

    while True:
        page = store.find_by_key(KeySearch("orders", "k", 0, ALL, at, most=7, most_bytes=ALL), ALL)
        pages += [message.body for message in page.messages]
        if page.next_before is None:
            break
        at = page.next_before

    assert pages == whole
    assert len(whole) == 40


def test_only_messages_of_the_time_and_below_the_readable_end_are_found(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 10)
    [last] = store.find_by_key(KeySearch("orders", "k", 0, ALL, ALL, most=1, most_bytes=ALL), ALL).messages

    ranged = store.find_by_key(KeySearch("orders", "k", 3_000, 5_000, ALL, most=99, most_bytes=ALL), ALL).messages
    below = store.find_by_key(KeySearch("orders", "k", 0, ALL, ALL, most=99, most_bytes=ALL), last.physical_offset).messages

    assert [message.body for message in ranged] == [b"3", b"2"]
    assert len(below) == 9


def test_cut_messages_are_not_found_any_more(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 5)
    end = store.end
    store_keyed(store, ["k"] * 5, 9_000)

    store.truncate(end)

    assert len(found(store, "k")) == 5


def test_body_that_looks_like_a_record_is_no_message(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"])
    record = store.read(0, store.end)
    store.append([AppendBatch([Draft("orders", 0, 0, 1, record, b"", 0)])], 9_000)
    store.sync()
    store.dispatch(store.end)
    inside = store.read(0, store.end).rfind(record)

    assert inside > 0
    assert store.message_at(inside, ALL) is None
    whole = store.message_at(0, ALL)
    assert whole is not None
    assert whole[0].body == b"0"


def test_offset_of_a_time_is_the_first_at_or_after_it(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 60)

    for number in range(60):
        for time_ms, expected in ((1_000 * number + 500, number), (1_000 * number + 1_000, number), (1_000 * number + 1_001, number + 1)):
            assert store.offset_at("orders", 0, time_ms, ALL) == expected
    assert store.offset_at("orders", 0, ALL, ALL) == 60
    assert store.offset_at("orders", 7, 0, ALL) is None


def test_damaged_message_is_not_called_one_that_does_not_exist(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 3)
    [_, broken, _] = store.read_queue("orders", 0, 0, 3, 1 << 20).messages
    inode = machine.disk.names.files[f"commitlog/{0:020d}"]
    at = broken.physical_offset + 90
    inode.write(memoryview(bytes([inode.read(1, at)[0] ^ 4])), at, machine.chance)

    assert store.message_at(7, ALL) is None
    with pytest.raises(CorruptRecord):
        store.message_at(broken.physical_offset, ALL)
    matches = store.find_by_key(KeySearch("orders", "k", 0, ALL, ALL, most=9, most_bytes=ALL), ALL)
    assert [message.body for message in matches.messages] == [b"2", b"0"]
    assert matches.suspects == (broken.physical_offset,)


def test_message_whose_unit_is_damaged_is_not_called_one_that_does_not_exist(machine: Machine) -> None:
    store = machine.lead()
    store_keyed(store, ["k"] * 3)
    [_, blotted, _] = store.read_queue("orders", 0, 0, 3, 1 << 20).messages
    [inode] = [inode for path, inode in machine.disk.names.files.items() if path.startswith("consumequeue/orders/0/")]
    inode.write(memoryview(bytes(20)), 20, machine.chance)

    with pytest.raises(CorruptRecord):
        store.message_at(blotted.physical_offset, ALL)
