"""Damage that is found, mended or led without on a disk that is full: nothing is begun that there is no room for, and no node ends."""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest

from dittomq.broker.range_server import RangeServer
from dittomq.broker.repair import Repairer, RepairerParts, RepairSource
from dittomq.commitlog.state import damage_map
from dittomq.commitlog.store import Store
from dittomq.errors import DiskFull, DittoError
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece
from tests.simulation.disk import BOUNDLESS
from tests.simulation.loop import SimulatedLoop
from tests.support.inline_lane import InlineLane
from tests.support.record_damage import entries
from tests.support.stores import SMALL, Machine, dispatched, frame, whole_log
from tests.unit.broker.repair_sources import copy_of, damage, serving
from tests.unit.commitlog.full_disk import leave
from tests.unit.commitlog.repaired_stores import SEGMENT, copy
from tests.unit.commitlog.reserved_offsets import given, lead, lost

FREE = [0, 8_192, 40_000]
RESERVE = 1_000_000


def with_a_hole(machine: Machine) -> tuple[Store, bytes]:
    """A copy without the second segment, and the whole log."""
    master = dispatched(Machine(random.Random(1)))
    log = whole_log(master)
    store = machine.open()
    store.replace_epoch_history(master.epoch_history)
    copy(store, log, [(SEGMENT, 2 * SEGMENT)])
    store.sync()
    return store, log


@pytest.mark.parametrize("free", FREE)
def test_reservation_without_room_changes_nothing_and_is_done_later(machine: Machine, free: int) -> None:
    """It is done when the disk has room."""
    store, _, (start, end) = lost(machine)
    files = machine.files()
    leave(machine, free)

    with pytest.raises(DiskFull):
        lead(store)

    assert (store.unread.ranges, store.next_offsets("orders")["orders", 2], machine.files()) == (((start, end),), 19, files)
    machine.disk.capacity_bytes = BOUNDLESS
    assert lead(store) > 0
    assert given(store) > 19


@pytest.mark.parametrize("free", FREE)
def test_missing_range_without_room_stays_noted_and_is_fetched_later(machine: Machine, free: int) -> None:
    """It is fetched when the disk has room."""
    store, log = with_a_hole(machine)
    leave(machine, free)

    with pytest.raises(DiskFull):
        store.repair(SEGMENT, log[SEGMENT : 2 * SEGMENT])

    assert store.damaged == [(SEGMENT, 2 * SEGMENT)]
    machine.disk.capacity_bytes = BOUNDLESS
    store.repair(SEGMENT, log[SEGMENT : 2 * SEGMENT])
    assert (store.damaged, whole_log(store)) == ([], log)


def test_a_record_is_repaired_in_place_with_the_room_that_appends_leave(machine: Machine) -> None:
    machine.options = replace(SMALL, min_free_bytes=RESERVE)
    store = dispatched(machine)
    log = whole_log(store)
    [(start, end)] = damage(store, machine, 20)
    leave(machine, RESERVE)
    with pytest.raises(DiskFull):
        store.append([frame(b"new")], 99)

    store.repair(start, log[start:end])

    assert (store.file_repaired(), store.damaged, whole_log(store)) == (True, [], log)


def test_fetching_a_missing_range_takes_none_of_the_room_that_appends_leave(machine: Machine) -> None:
    machine.options = replace(SMALL, min_free_bytes=RESERVE)
    store, log = with_a_hole(machine)
    leave(machine, RESERVE)

    with pytest.raises(DiskFull):
        store.repair(SEGMENT, log[SEGMENT : 2 * SEGMENT])

    assert store.damaged == [(SEGMENT, 2 * SEGMENT)]


@pytest.mark.parametrize("free", FREE)
def test_what_was_repaired_stays_on_the_register_of_a_full_disk_until_there_is_room(machine: Machine, free: int) -> None:
    store = dispatched(machine)
    log = whole_log(store)
    [(start, end)] = damage(store, machine, 20)
    store.repair(start, log[start:end])
    leave(machine, free)

    assert not store.file_repaired()

    assert (store.damaged, damage_map.load(machine.beside()).damage.ranges) == ([], ((start, end),))
    machine.disk.capacity_bytes = BOUNDLESS
    assert store.file_repaired()
    assert damage_map.load(machine.beside()).damage.ranges == ()


def test_damage_that_there_is_no_room_to_write_down_is_noted_when_there_is_some(machine: Machine) -> None:
    store = dispatched(machine)
    with pytest.raises(DiskFull):
        damage_on_a_full_disk(store, machine)

    assert store.damaged == []
    machine.disk.capacity_bytes = BOUNDLESS
    store.verify(0, store.end)
    assert len(store.damaged) == 1


def damage_on_a_full_disk(store: Store, machine: Machine) -> None:
    leave(machine, 0)
    damage(store, machine, 20)


class Filling:
    """A peer who has served: then others have filled the disk."""

    def __init__(self, peer: RangeServer, machine: Machine) -> None:
        self._peer = peer
        self._machine = machine

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        async for piece in self._peer.fetch(start, end, skip_damaged=skip_damaged):
            yield piece
        leave(self._machine, 0)


def test_repairer_on_a_full_disk_repairs_once_there_is_room(machine: Machine) -> None:
    store = dispatched(machine)
    log, other = whole_log(store), copy_of(store, Machine(random.Random(2)))
    with contextlib.suppress(DiskFull):
        damage_on_a_full_disk(store, machine)

    async def peers() -> Sequence[RepairSource]:
        return [RepairSource("a/2", Filling(serving(other), machine))]

    async def story() -> None:
        lane = InlineLane()
        mender = Repairer(RepairerParts("a/1", store, lane, lane, lane, random.Random(1)), peers)
        mender.suspect(entries(log)[20][0])
        running = asyncio.create_task(mender.run())
        for is_noted in (False, True):
            await asyncio.sleep(10)
            assert (store.damaged, bool(damage_map.load(machine.beside()).damage.ranges)) == ([], is_noted)
            machine.disk.capacity_bytes = BOUNDLESS
        await asyncio.sleep(10)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError, DittoError):
            await running

    SimulatedLoop().run_until_complete(story())

    assert (store.damaged, whole_log(store)) == ([], log)
    assert damage_map.load(machine.beside()).damage.ranges == ()
