"""Bytes of the log that a disk does not give to a start that must read them."""

import random

import pytest

from dittomq.commitlog.store import StopKind, Store
from tests.support.record_damage import entries, served
from tests.support.stores import SMALL, Machine, frame, whole_log
from tests.unit.commitlog.bad_sectors import BadSectors

PAGE = 4_096


def opened(door: BadSectors) -> Store:
    return Store.open(door, SMALL, chance=random.Random(1), wall_ms=0)  # type: ignore[arg-type]


def left(machine: Machine, *, mark: int = -1, power: bool = False) -> bytes:
    """A killed store of one segment with eight messages, the watermark behind `mark` of them, and behind all by default; its log."""
    store = machine.lead()
    for at in range(8):
        store.append([frame(b"%d" % at * 1_500, producer="p", first=at)], at)
    store.sync()
    log = whole_log(store)
    store.persist_recovery_point(len(log) if mark < 0 else entries(log)[mark][0], 0)
    machine.lose_power() if power else machine.kill()
    return log


def touching(log: bytes, page: int) -> tuple[int, int]:
    """Where the records begin and end that have a byte in the page."""
    found = [(start, end) for start, end in entries(log) if start < (page + 1) * PAGE and page * PAGE < end]
    return found[0][0], found[-1][1]


@pytest.mark.parametrize("page", [0, 1, 2])
def test_bad_sector_below_the_recovery_point_is_damage_until_it_reads(page: int) -> None:
    """It heals when the disk gives it again."""
    machine = Machine(random.Random(1))
    log = left(machine)
    door = BadSectors(machine)
    door.bad = range(page * PAGE, (page + 1) * PAGE)

    store = opened(door)

    start, end = touching(log, page)
    assert (store.end, store.damaged, store.recovery_truncation) == (len(log), [(start, end)], None)
    assert store.unread.ranges == ((start, end),)
    store.dispatch(store.end)
    bodies, _ = served(store)
    assert bodies == [b"%d" % at * 1_500 for at, (low, _) in enumerate(entries(log)) if not start <= low < end]
    door.bad = range(0)
    assert store.salvage(start)
    store.file_repaired()
    store.dispatch(store.end)
    assert served(store) == ([b"%d" % at * 1_500 for at in range(8)], 0)


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
def test_above_the_recovery_point_it_ends_the_log_and_peers_are_asked_for_more(power: bool) -> None:
    machine = Machine(random.Random(1))
    log = left(machine, mark=2, power=power)
    door = BadSectors(machine)
    door.bad = range(2 * PAGE, 3 * PAGE)

    store = opened(door)

    assert (store.end, store.damaged) == (touching(log, 2)[0], [])
    assert store.stopped is (StopKind.POWER_LOSS if power else StopKind.FAILED_SYNC)
    assert store.recovery_truncation is not None
    assert store.recovery_truncation.saved_bytes >= len(log) - store.end


def test_last_record_on_a_bad_sector_is_not_taken_for_a_torn_write() -> None:
    """It lies above the recovery point."""
    machine = Machine(random.Random(1))
    log = left(machine, mark=2)
    door = BadSectors(machine)
    last = entries(log)[-1][0] // PAGE + 1  # its second page; nothing but zeros behind the record
    assert last * PAGE < len(log)
    door.bad = range(last * PAGE, (last + 1) * PAGE)

    assert opened(door).stopped is StopKind.FAILED_SYNC
