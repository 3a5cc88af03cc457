"""The key index: it follows from the log alone, after any stop, and holds nothing that the log does not."""

import json
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.commitlog.disk import state_file
from dittomq.commitlog.disk.file_cache import OpenFiles
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.queues.key_format import ENTRY, ROCKETMQ_KEY_SIZES, Header, KeyMark, KeySizes, key_hash
from dittomq.commitlog.queues.key_index import Keyed, KeyIndex
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.doors.chance import os_chance
from tests.simulation.simulated_process import SimCrashed
from tests.support.foreign_records import foreign_record, put_log
from tests.support.stores import Machine, draft, led, open_epoch, queues_of, whole_log
from tests.unit.commitlog.queues.key_index_files import (
    OPTIONS,
    SIZES,
    TOPIC,
    Files,
    built,
    fill,
    from_the_log,
    kept,
    keyed,
    on_disk,
)


def filled(machine: Machine, messages: int = 40) -> Store:
    """A store in use with several files of the index: every second message has keys, some have three."""
    store = machine.lead()
    fill(store, range(messages))
    return store


@pytest.fixture
def machine() -> Machine:
    return Machine(random.Random(7), OPTIONS)


def test_it_holds_nothing_that_is_not_readable_yet(machine: Machine) -> None:
    store = filled(machine, 10)
    readable = store.end
    fill(store, range(10, 20))

    store.dispatch(readable)
    store.checkpoint()

    assert on_disk(machine) == from_the_log(whole_log(store)[:readable])


def test_what_rocketmq_prepared_is_in_it_and_what_it_rolled_back_is_not(machine: Machine) -> None:
    log = b""
    for number, system_flag in enumerate((0x0, 0x4, 0x8, 0xC)):
        log += foreign_record(keyed(f"flag-{number}"), 0, len(log), 5, system_flag=system_flag)
    put_log(machine, log, 0)
    store = machine.open()

    kept(store)

    assert hashes(on_disk(machine)) == [key_hash(TOPIC, f"flag-{number}") for number in range(3)]
    assert store.queue_range(TOPIC, 0) == (0, 1)


def test_messages_without_keys_leave_no_file(machine: Machine) -> None:
    store = machine.lead()
    store.append([AppendBatch([draft(body=b"KEYS\x01not-a-key\x02")])], 1_000)

    kept(store)

    assert on_disk(machine) == {}


def test_keys_behind_long_properties_are_found_too(machine: Machine) -> None:
    store = machine.lead()
    long = draft(TOPIC)._replace(properties=b"p\x01" + b"v" * 5_000 + b"\x02KEYS\x01far-behind\x02")
    store.append([AppendBatch([long])], 1_000)

    kept(store)

    assert hashes(on_disk(machine)) == [key_hash(TOPIC, "far-behind")]


def test_what_does_not_fit_into_memory_is_read_from_the_log(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.dispatch.MAX_WAITING_UNITS", 10)
    store = filled(machine)

    kept(store)

    assert on_disk(machine) == from_the_log(whole_log(store))


def test_many_keys_are_written_before_the_next_checkpoint(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.key_index.MAX_WAITING_KEYS", 3)
    machine.options = replace(OPTIONS, key_sizes=KeySizes(slots=7, entries=1_000))
    store = filled(machine, 10)

    store.dispatch(store.end)

    assert len(hashes(on_disk(machine))) == 9


def lose_all(machine: Machine) -> None:
    for name in on_disk(machine):
        machine.storage().unlink(f"index/{name}")


def lose_one(machine: Machine) -> None:
    machine.storage().unlink(f"index/{min(on_disk(machine))}")


def shorten(machine: Machine) -> None:
    machine.storage().open(f"index/{max(on_disk(machine))}").truncate(100)


@pytest.mark.parametrize("damage", [lose_all, lose_one, shorten])
def test_what_is_missing_is_built_again_from_the_log(machine: Machine, damage: Callable[[Machine], None]) -> None:
    filled(machine).close(clean=False)
    store = machine.open()
    kept(store)
    store.close(clean=True)
    before = on_disk(machine)

    damage(machine)
    again = machine.open()
    kept(again)

    assert on_disk(machine) == before
    assert "key index" in again.notes[0]


def test_other_sizes_build_it_again(machine: Machine) -> None:
    store = filled(machine)
    kept(store)
    store.close(clean=True)

    machine.options = replace(OPTIONS, key_sizes=KeySizes(slots=5, entries=30))
    again = machine.open()
    kept(again)

    assert on_disk(machine) == from_the_log(whole_log(again), machine.options.key_sizes)


def test_a_store_of_a_version_that_knew_no_key_index_gets_one(machine: Machine) -> None:
    store = filled(machine)
    kept(store)
    store.close(clean=True)
    forget_keys(machine)

    again = machine.open()
    kept(again)

    assert on_disk(machine) == from_the_log(whole_log(again))


def test_what_was_added_behind_our_last_stop_is_taken_back(machine: Machine) -> None:
    store = filled(machine)
    kept(store)
    store.close(clean=True)
    before = on_disk(machine)
    storage = machine.storage()
    index = KeyIndex(storage, OpenFiles(storage, 8), KeyMark(SIZES, tuple(before)), Header.decode(before[max(before)][:40]))
    index.add(Keyed(TOPIC, store.end + at, 50_000, b"KEYS\x01foreign\x02") for at in range(20))
    index.sync()
    assert on_disk(machine) != before

    again = machine.open()
    kept(again)

    assert on_disk(machine) == before


def test_the_log_is_dropped_while_a_full_file_waits_to_be_made() -> None:
    sizes = KeySizes(slots=7, entries=300)
    machine = Machine(random.Random(7), replace(OPTIONS, key_sizes=sizes))
    store = filled(machine, 700)
    log = whole_log(store)
    store.sync()
    store.dispatch(store.end)
    store.persist_recovery_point(store.end, store.end)
    assert not on_disk(machine)

    assert store.drop_before(store.end) > 0

    assert on_disk(machine) == from_the_log(log, sizes)


@pytest.mark.tier("test")
@pytest.mark.parametrize("sizes", [SIZES, KeySizes(slots=499, entries=60)], ids=["small", "wide"])
@pytest.mark.parametrize("seed", [*range(30), 265])
def test_no_stop_bends_it(seed: int, sizes: KeySizes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.commitlog.queues.key_index.MAX_WAITING_KEYS", 5)  # so that much is written and not synced
    chance = random.Random(seed)
    machine = Machine(chance, replace(OPTIONS, key_sizes=sizes))

    for _ in range(8):
        live(machine, chance)
    machine.faults.operations_to_live = None
    store = machine.open()
    kept(store)

    assert on_disk(machine) == from_the_log(whole_log(store), sizes)


def live(machine: Machine, chance: random.Random) -> None:
    """One life of a process: opens, uses, and ends somehow."""
    storage = machine.storage()
    machine.faults.operations_to_live = chance.choice((None, chance.randrange(400)))
    try:
        store = led(storage, machine.options, chance=chance, wall_ms=1_000)
        for _ in range(chance.randrange(12)):
            use(store, chance)
        if chance.random() < 0.4:
            store.close(clean=True)
    except SimCrashed:
        pass
    if chance.random() < 0.5:
        machine.kill()
    else:
        machine.lose_power()


def use(store: Store, chance: random.Random) -> None:
    match chance.randrange(8):
        case 0:
            kept(store)
        case 1:
            store.sync()
            store.dispatch(store.end)
        case 2 if chance.random() < 0.3:
            borders = sorted(start for entries in queues_of(whole_log(store), OPTIONS.segment_bytes).values() for _, start in entries)
            store.truncate(chance.choice(borders[-12:]) if borders else 0)
            open_epoch(store)
        case _:
            frames = [AppendBatch([keyed(*(f"k{chance.randrange(50)}" for _ in range(chance.randrange(4))))]) for _ in range(4)]
            store.append(frames, chance.randrange(100_000))


def test_it_may_be_written_while_it_grows(tmp_path: Path) -> None:
    messages = [Keyed(TOPIC, at * 100, at, b"KEYS\x01k%d\x02" % at) for at in range(1, 20_000)]
    sizes = KeySizes(slots=100, entries=6_000)
    (tmp_path / "dittomq").mkdir()
    storage = OsStorage(tmp_path)
    index = KeyIndex(storage, OpenFiles(storage, 8), KeyMark(sizes), None)

    def grow() -> None:
        for each in messages:
            index.add([each])

    grows = threading.Thread(target=grow)
    grows.start()
    while grows.is_alive():
        index.sync()
    index.sync()

    assert {path.name: path.read_bytes() for path in (tmp_path / "index").iterdir()} == built(messages, sizes)


def test_a_file_of_rocketmqs_size_takes_the_room_of_what_it_holds(tmp_path: Path) -> None:
    store = led(OsStorage(tmp_path), StoreOptions(segment_bytes=64 * 1024, min_free_bytes=0), chance=os_chance(), wall_ms=1_000)
    store.append([AppendBatch([keyed("one", "two")])], 1_000)

    kept(store)
    store.close(clean=True)

    [path] = (tmp_path / "index").iterdir()
    assert path.stat().st_size == ROCKETMQ_KEY_SIZES.file_bytes
    assert path.stat().st_blocks * 512 < 256 * 1024


def hashes(files: Files) -> list[int]:
    """Of all entries, in order."""
    found: list[int] = []
    for _, data in sorted(files.items()):
        header, slots = Header.decode(data[:40]), data[40:]
        sizes = SIZES if len(data) == SIZES.file_bytes else KeySizes(7, 1_000)
        entries = list(ENTRY.iter_unpack(slots[sizes.slots * 4 :]))
        found += [hashed for hashed, _, _, _ in entries[1 : header.count]]
    return found


def forget_keys(machine: Machine) -> None:
    """Make the checkpoint what it was before there was a key index."""
    storage = machine.storage()
    value = json.loads(state_file.load(storage, "checkpoint", b"CHEK") or b"")
    del value["keys"]
    state_file.save_json(storage, "checkpoint", b"CHEK", value)
