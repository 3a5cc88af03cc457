import contextlib
import random

import pytest

from dittomq.commitlog.store import Store
from dittomq.errors import InvalidField, OffsetOutOfRange
from tests.support.failing_storage import Crashed, CrashingStorage, Harm
from tests.support.stores import SMALL, Machine, filled, frame, led, open_epoch, queues_of, whole_log
from tests.unit.commitlog.queues.key_index_files import OPTIONS, TOPIC, fill, from_the_log, kept, on_disk


@pytest.mark.tier("test")
def test_queues_end_with_the_log_after_a_truncation_died_clearing_a_unit() -> None:
    struck = set()
    for call in range(1, 120):
        machine = Machine(random.Random(7))
        store = filled(machine)
        store.dispatch(store.end)
        store.checkpoint()
        queues = queues_of(whole_log(store), SMALL.segment_bytes)
        store.close(clean=False)
        door = CrashingStorage(machine.storage(), tear=lambda size: size - 3)  # of the last unit its size is left, and no tag
        store = Store.open(door, machine.options, chance=machine.chance, wall_ms=1_000)
        door.strike_in(call, Harm.CRASH)
        with contextlib.suppress(Crashed):
            store.truncate(sorted(start for _, start in queues["orders", 0])[5])
        struck.add(door.struck.partition("/")[0])
        machine.kill()

        again = machine.open()
        again.dispatch(again.end)

        for key, records in queues.items():
            held = sum(1 for _, start in records if start < again.end)
            assert again.queue_range(*key) == (0, held), f"{key} after {door.struck}"
    assert {"write consumequeue", ""} <= struck, "the cut was struck in its queues, and ran to its end"


def test_a_truncation_names_a_place_where_a_record_begins(machine: Machine) -> None:
    store = filled(machine)

    with pytest.raises(InvalidField, match="no record begins at 7"):
        store.truncate(7)
    with pytest.raises(OffsetOutOfRange):
        store.truncate(store.end + 1)
    assert store.truncate(store.end).saved_bytes == 0
    assert store.generation == 0


def test_a_truncation_to_nothing_leaves_a_store_that_can_be_filled_again(machine: Machine) -> None:
    store = filled(machine)

    store.truncate(0)

    assert (store.end, store.flushed, store.applied, store.epoch_history) == (0, 0, 0, ())
    assert store.queue_range("orders", 0) == (0, 0)
    assert store.find_sequence("p", 0) is None
    open_epoch(store)
    store.append([frame(b"again")], 1)
    store.dispatch(store.end)
    assert [message.queue_offset for message in store.read_queue("orders", 0, 0, 10, 1_000).messages] == [0]


@pytest.mark.parametrize("restart", [False, True])
def test_queues_beyond_a_truncated_end_are_restored_when_copied_again(machine: Machine, restart: bool) -> None:
    """They begin behind the end of their log."""
    store = filled(machine)
    log, starts = whole_log(store), sorted(start for _, start in queues_of(whole_log(store), SMALL.segment_bytes)["orders", 0])
    store.dispatch(store.end)
    store.checkpoint()
    ahead = {("orders", 0): 30}
    store.hide(ahead)
    assert store.queue_range("orders", 0) == (30, 30)

    store.truncate(starts[5])
    if restart:
        machine.kill()
        store = machine.open()
    store.hide(ahead)
    open_epoch(store)
    while store.end < len(log):
        _, segment_end = store.segment_of(store.end)
        store.write_chunk(store.end, log[store.end : segment_end])
    store.dispatch(store.end)

    assert store.queue_range("orders", 0) == (30, 30)
    assert store.minimums() == ahead
    assert store.queue_range("orders", 1) == (0, 20)


def test_truncated_keys_do_not_return_wherever_power_is_lost() -> None:
    calls = cut_half(Machine(random.Random(0), OPTIONS))
    for call in [number for number, call in enumerate(calls, 1) if " index/" in call]:
        for seed in range(8):
            machine = Machine(random.Random(seed), OPTIONS)
            cut_half(machine, call)
            machine.lose_power()

            again = machine.open()
            kept(again)
            assert on_disk(machine) == from_the_log(whole_log(again)), f"{calls[call - 1]}, seed {seed}"


def cut_half(machine: Machine, crash_in: int = 0) -> list[str]:
    """Cut half of a store whose keys are all on the disk, or die in that many calls of it; the calls."""
    door = CrashingStorage(machine.storage())
    store = led(door, OPTIONS, chance=machine.chance, wall_ms=1_000)
    fill(store, range(40))
    kept(store)
    starts = sorted(start for _, start in queues_of(whole_log(store), OPTIONS.segment_bytes)[TOPIC, 0])
    before = door.calls
    if crash_in:
        door.strike_in(crash_in, Harm.CRASH)
    with contextlib.suppress(Crashed):
        store.truncate(starts[18])
    return door.heard[before:]
