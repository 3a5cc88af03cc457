"""No byte is confirmed by fewer copies than asked before the range that it lies in is written down."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade
from services.master.degraded import DegradedRanges, write_down
from tests.support.confirming import SMALL_GAP, at


@pytest.fixture
def group() -> Confirm:
    """Two copies up to 100, one of them the slave's."""
    confirm = Confirm(replace(SMALL_GAP, write_deadline_s=0.0), end=at(0), confirmed=at(0), members=("a/1",), now=0.0)
    confirm.master_at(written=at(100), flushed=at(100), now=1.0)
    confirm.slave_at("a/1", received=at(100), flushed=at(100), now=1.0)
    return confirm


def lose_the_slave(confirm: Confirm, end: int) -> None:
    """Producers wait twice for [.., end) in vain."""
    confirm.master_at(written=at(end), flushed=at(end), now=2.0)
    for _ in range(2):
        confirm.deadline_missed(at(end), since=5.0, now=5.0)


def catch_up(confirm: Confirm, end: int) -> None:
    confirm.slave_at("a/1", received=at(end), flushed=at(end), now=6.0)


def keep(ranges: DegradedRanges, confirm: Confirm, while_it_is_written: Callable[[], None] = lambda: None) -> None:
    async def persist(_: bytes) -> None:
        while_it_is_written()

    if asyncio.run(write_down(ranges, confirm, 0, 7_000, persist)):
        confirm.range_recorded()


def test_confirmed_goes_on_when_the_range_is_written_down(group: Confirm) -> None:
    ranges = DegradedRanges()
    lose_the_slave(group, 200)
    before = group.confirmed

    keep(ranges, group)

    assert (before, group.confirmed, ranges.is_open) == (100, 200, True)


def test_a_slave_that_leaves_while_the_end_of_a_range_is_written_opens_another_one(group: Confirm) -> None:
    ranges = DegradedRanges()
    lose_the_slave(group, 200)
    keep(ranges, group)
    catch_up(group, 200)

    keep(ranges, group, while_it_is_written=lambda: lose_the_slave(group, 300))

    assert (group.degrade, group.confirmed) == (Degrade.RECORDING, 200)
    keep(ranges, group)
    assert (group.degrade, group.confirmed) == (Degrade.YES, 300)
    assert ranges.total_bytes(group.confirmed) == 200


def test_a_range_that_is_written_down_too_late_degrades_nobody(group: Confirm) -> None:
    ranges = DegradedRanges()
    lose_the_slave(group, 200)

    keep(ranges, group, while_it_is_written=lambda: catch_up(group, 200))

    assert (group.degrade, group.confirmed) == (Degrade.NO, 200)
