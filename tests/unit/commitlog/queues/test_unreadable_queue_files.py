"""Queue files that tell where a queue goes on whose messages RocketMQ has dropped, on a disk that does not give all of them."""

import errno
import os
import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.commitlog.disk.storage import File
from dittomq.commitlog.queues import orphaned_queue_files
from dittomq.commitlog.records.format import UNIT, UNIT_BYTES
from dittomq.commitlog.store import Store
from dittomq.errors import StoreOpenFailed
from tests.support.foreign_records import put_file
from tests.support.stores import SMALL, Machine, dies
from tests.unit.commitlog.bad_pages import PAGE, BadPages
from tests.unit.commitlog.dropped_logs import settled
from tests.unit.commitlog.late_logs import EARLY, next_offset, ranges, rocketmqs

OLDER, NEWEST = (f"consumequeue/early/0/{at * UNIT_BYTES:020d}" for at in (0, 40))
NEVER = f"consumequeue/never/0/{0:020d}"
ORDERS = f"consumequeue/orders/0/{0:020d}"
FOUND = {EARLY: (42, 42), ("orders", 0): (3, 8)}
UNITS = 1_000


class Door(BadPages):
    """A disk that does not give some pages of some files, or does not open them."""

    def __init__(self, machine: Machine, bad: dict[str, set[int]], *, opens: bool = True, says: int = errno.EIO) -> None:
        super().__init__(machine)
        self.bad.update(bad)
        self.says = says
        self._opens = opens

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> File:
        if self.bad.get(path) and not self._opens:
            raise OSError(self.says, os.strerror(self.says))
        return super().open(path, create=create, readonly=readonly)


@pytest.fixture
def machine() -> Machine:
    machine = Machine(random.Random(5))
    rocketmqs(machine)
    return machine


def opened(machine: Machine, *bad: str, opens: bool = True) -> Store:
    """The store, of which the disk does not give the first page of these files, as far as they are there."""
    door = Door(machine, {path: {0} for path in bad if path in machine.files()}, opens=opens)
    return Store.open(door, machine.options, chance=machine.chance, wall_ms=1_000)  # type: ignore[arg-type]


def test_the_start_succeeds_and_no_offset_is_given_twice(machine: Machine) -> None:
    store = opened(machine, NEWEST)

    store.dispatch(store.end)
    assert ranges(store) == {**FOUND, EARLY: (80, 80)}  # the file has room for what lies below
    assert any("consumequeue/early/0/ cannot be read to its end" in note and "offset 80" in note for note in store.notes)
    assert next_offset(store, "early") == 80
    store.sync()
    store.dispatch(store.end)
    store.close(clean=True)
    again = machine.open()
    assert ranges(again)[EARLY] == (80, 81)
    assert again.notes == []


def test_what_the_log_holds_of_such_a_queue_is_served_and_it_goes_on_behind_that(machine: Machine) -> None:
    store = opened(machine, ORDERS)

    store.dispatch(store.end)
    assert ranges(store) == FOUND
    assert len(store.read_queue("orders", 0, 3, 10, 10_000).messages) == 5
    assert next_offset(store, "orders") == 8


def test_queues_of_which_no_file_can_be_read_go_on_behind_the_newest(machine: Machine) -> None:
    store = opened(machine, NEVER, OLDER, NEWEST)

    store.dispatch(store.end)
    assert ranges(store) == {**FOUND, EARLY: (80, 80), ("never", 0): (40, 40)}


def test_queue_grown_behind_our_checkpoint_continues_past_unreadable_units() -> None:
    machine = Machine(random.Random(5), replace(SMALL, queue_file_units=UNITS))
    store = settled(machine)
    assert store.queue_range(*EARLY) == (0, 1)
    orders = store.queue_range("orders", 0)
    store.close(clean=True)
    del machine.disk.names.files[f"commitlog/{0:020d}"]
    units = b"".join(UNIT.pack(at, 100, 0) for at in range(250))  # up to somewhere in the second page
    put_file(machine, OLDER, machine.files()[OLDER][:UNIT_BYTES] + units[UNIT_BYTES:].ljust((UNITS - 1) * UNIT_BYTES, b"\0"))
    door = Door(machine, {OLDER: {1}})

    again = Store.open(door, machine.options, chance=machine.chance, wall_ms=1_000)  # type: ignore[arg-type]

    first_empty = -(-2 * PAGE // UNIT_BYTES)
    assert again.queue_range(*EARLY) == (first_empty, first_empty)
    assert again.queue_range("orders", 0)[1] == orders[1]
    assert next_offset(again, "early") == first_empty


@pytest.mark.tier("test")
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("bad", [[NEWEST], [ORDERS], [NEWEST, OLDER, ORDERS]], ids=["emptied", "held", "both"])
def test_a_start_on_it_that_dies_anywhere_is_repeated_and_gives_no_offset_twice(bad: list[str], power: bool) -> None:
    for operations in range(400):
        machine = Machine(random.Random(operations))
        rocketmqs(machine)
        machine.life.end()
        door = Door(machine, {path: {0} for path in bad})
        machine.faults.operations_to_live = operations
        done = dies(partial(Store.open, door, machine.options, chance=machine.chance, wall_ms=1_000))  # type: ignore[arg-type]
        (machine.lose_power if power else machine.kill)()

        again = opened(machine, *bad)

        again.dispatch(again.end)
        assert ranges(again) == ({**FOUND, EARLY: (80, 80)} if NEWEST in bad else FOUND), f"dead after {operations} operations"
        if done:
            break
    else:
        pytest.fail("the start never ran to its end")


def test_unopenable_file_is_refused_by_name_and_nothing_is_removed(machine: Machine) -> None:
    with pytest.raises(StoreOpenFailed, match=f"{NEWEST} cannot be opened .*Input/output error.*bring it back"):
        opened(machine, NEWEST, opens=False)

    assert NEWEST in machine.files()


@pytest.mark.parametrize("opens", [True, False])
def test_unreadable_file_refuses_the_start_and_skips_no_offset(machine: Machine, opens: bool) -> None:
    """It cannot be read for now."""
    door = Door(machine, {NEWEST: {0}}, opens=opens, says=errno.ENOMEM)

    with pytest.raises(StoreOpenFailed, match="Cannot allocate memory") as refused:
        Store.open(door, machine.options, chance=machine.chance, wall_ms=1_000)  # type: ignore[arg-type]

    assert "empty the data_dir" not in str(refused.value)
    again = machine.open()
    again.dispatch(again.end)
    assert ranges(again) == FOUND


@given(written=st.integers(0, UNITS), bad=st.sets(st.integers(0, 4), max_size=5), begin=st.sampled_from([1, 70_000, 1_000_000]))
def test_only_what_the_disk_does_not_give_is_unsure(written: int, bad: set[int], begin: int) -> None:
    machine = Machine(random.Random(1))
    machine.storage().make_folder("consumequeue/early/0")
    put_file(machine, OLDER, b"".join(UNIT.pack(at * 100, 100, 0) for at in range(written)).ljust(UNITS * UNIT_BYTES, b"\0"))
    newest = (written - 1) * 100
    around = [at * UNIT_BYTES for at in (written - 1, written) if 0 <= at < UNITS]
    border = {page for at in around for page in (at // PAGE, (at + UNIT_BYTES - 1) // PAGE)}

    first_offsets, unsure = orphaned_queue_files.emptied(Door(machine, {OLDER: bad}), "here", begin)  # type: ignore[arg-type]

    if EARLY in unsure:
        assert written <= unsure[EARLY] <= UNITS
        assert bad & border
    elif written and newest < begin:
        assert first_offsets == {EARLY: written}
    else:
        assert first_offsets in ([{EARLY: -(-begin // 100)}] if written and not bad else [{}, {EARLY: -(-begin // 100)}])
