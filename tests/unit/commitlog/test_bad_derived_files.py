"""Bad bytes in what follows from the log, or in what a start reads of the log to repair it: neither refuses a start."""

import errno
import random
from dataclasses import replace

import pytest

from dittomq.commitlog import log_start_state
from dittomq.commitlog.queues.key_format import ENTRY
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.errors import CorruptRecord, StoreOpenFailed
from dittomq.properties import tags_code
from dittomq.reads import ReadableRange
from tests.support.stores import SMALL, Machine, frame, whole_log
from tests.unit.commitlog.bad_sectors import BadSectors
from tests.unit.commitlog.queues.key_index_files import SIZES, from_the_log, kept, keyed, on_disk

OPTIONS = replace(SMALL, key_sizes=SIZES)
QUEUE_FILE = f"consumequeue/orders/0/{0:020d}"


def left_without_power(options: StoreOptions = OPTIONS) -> tuple[Machine, bytes, int]:
    """A store whose checkpoint knows messages with keys and some without; its log, and where the newest message with keys lies."""
    machine = Machine(random.Random(1), options)
    store = machine.lead()
    starts: list[int] = []
    for number in range(6):
        message = keyed(f"key-{number}", body=b"x" * 500)._replace(tags_code=tags_code("tag"))
        starts.append(store.append([AppendBatch([message])], 1_000 + number).start)
    for number in range(10):
        store.append([frame(b"y" * 500)], 2_000 + number)
    kept(store)
    store.persist_recovery_point(store.end, store.end)
    log = whole_log(store)
    machine.lose_power()
    return machine, log, starts[-1]


def opened(door: BadSectors) -> Store:
    return Store.open(door, OPTIONS, chance=random.Random(1), wall_ms=3_000)  # type: ignore[arg-type]


def queue_files(machine: Machine) -> dict[str, bytes]:
    return {path: data for path, data in machine.files().items() if path.startswith("consumequeue/")}


def test_a_bad_sector_under_the_newest_message_with_keys_does_not_refuse_a_start() -> None:
    machine, log, newest = left_without_power()
    door = BadSectors(machine)
    door.bad = range(newest, newest + 1)

    store = opened(door)
    kept(store)

    [(low, high)] = store.damaged
    assert (store.end, low <= newest < high, store.notes) == (len(log), True, [])
    assert [message.queue_offset for message in store.read_queue("orders", 0, 6, 10, 100_000).messages] == list(range(6, 16))
    assert on_disk(machine) == from_the_log(log)


@pytest.mark.parametrize(
    ("where", "bad"),
    [
        ("index", range(40)),
        ("index", range(SIZES.entry_at(2), SIZES.entry_at(3))),
        ("index", range(SIZES.entry_at(6), SIZES.entry_at(7))),
        (QUEUE_FILE, range(15 * 20, 16 * 20)),
    ],
    ids=["header", "an entry", "the last entry", "the last unit"],
)
def test_a_bad_sector_in_a_queue_file_or_the_key_index_costs_a_rebuild_and_no_start(where: str, bad: range) -> None:
    machine, log, _ = left_without_power()
    queues = queue_files(machine)
    door = BadSectors(machine, f"index/{max(on_disk(machine))}" if where == "index" else where)
    door.bad = bad

    store = opened(door)
    kept(store)

    assert (store.end, store.damaged, len(store.notes)) == (len(log), [], 1)
    assert "built again from the log" in store.notes[0]
    assert (on_disk(machine), queue_files(machine)) == (from_the_log(log), queues)


@pytest.mark.parametrize("where", ["the index's header", "its last entry", "an entry", "the newest message with keys"])
def test_a_start_that_cannot_read_them_now_is_refused_and_builds_nothing_again(where: str) -> None:
    machine, log, newest = left_without_power()
    index = f"index/{max(on_disk(machine))}"
    door = BadSectors(machine, f"commitlog/{0:020d}" if "message" in where else index)
    at = {"the index's header": 0, "its last entry": SIZES.entry_at(6), "an entry": SIZES.entry_at(3)}.get(where, newest)
    door.bad, door.says = range(at, at + 1), errno.ENOMEM

    with pytest.raises(StoreOpenFailed, match="Cannot allocate memory"):
        opened(door)

    again = machine.open()
    kept(again)
    assert (again.end, again.damaged) == (len(log), [])
    assert "built again" not in " ".join(again.notes)
    assert on_disk(machine) == from_the_log(log)


@pytest.mark.parametrize("position", [-1, 2, 1 << 62], ids=["none", "no record's", "behind the log"])
def test_an_index_whose_last_entry_names_another_place_is_built_again(position: int) -> None:
    machine, log, newest = left_without_power()
    file = machine.storage().open(f"index/{max(on_disk(machine))}")
    hashed, told, seconds, before = ENTRY.unpack(file.pread(ENTRY.size, SIZES.entry_at(6)))
    assert told == newest
    file.pwrite(ENTRY.pack(hashed, position, seconds, before), SIZES.entry_at(6))

    store = machine.open()
    kept(store)

    assert "key index" in store.notes[0]
    assert on_disk(machine) == from_the_log(log)


@pytest.mark.parametrize("rotted", [(1 << 62, 500, 0), (-(1 << 63), 500, 0), (9_000, 500, 0), (0, 1 << 30, 0), (0, -5, 0), (1_000, 500, 0)])
def test_a_message_whose_unit_rotted_is_damaged_and_nobody_waits_for_it(rotted: tuple[int, int, int]) -> None:
    machine = Machine(random.Random(1), OPTIONS)
    store = machine.lead()
    store.append([frame(*[b"y" * 500] * 6)], 1_000)
    kept(store)
    file = machine.beside().open(QUEUE_FILE)
    file.pwrite(UNIT.pack(*rotted), 2 * UNIT_BYTES)

    readable = ReadableRange(store.end, store.end)
    before = store.read_queue("orders", 0, 0, 10, 100_000, readable=readable)
    assert ([message.queue_offset for message in before.messages], before.next_offset, before.max) == ([0, 1], 2, 6)
    with pytest.raises(CorruptRecord):
        store.read_queue("orders", 0, 2, 10, 100_000, readable=readable)
    assert len(store.read_queue("orders", 0, 3, 10, 100_000, readable=readable).messages) == 3


@pytest.mark.parametrize("rotted", [(0, 70, 0), (1 << 62, 70, 0), (0, 0, 0)])
def test_no_unit_that_rotted_lets_retention_hide_messages_that_are_left(rotted: tuple[int, int, int]) -> None:
    machine = Machine(random.Random(1), replace(SMALL, queue_file_units=1_000))
    store = machine.lead()
    store.append([frame(*[b"y" * 10] * 400)], 1_000)
    kept(store)
    file, offset = machine.beside().open(QUEUE_FILE), SMALL.segment_bytes
    [low] = log_start_state.first_offsets_at(store._derived.index, offset).values()  # noqa: SLF001 - what retention hides, without dropping anything

    for number in range(400):
        whole = file.pread(UNIT_BYTES, number * UNIT_BYTES)
        file.pwrite(UNIT.pack(*rotted), number * UNIT_BYTES)
        found = log_start_state.first_offsets_at(store._derived.index, offset).get(("orders", 0), 0)  # noqa: SLF001
        file.pwrite(whole, number * UNIT_BYTES)
        assert found <= low + (number == low), number
