"""Pins: what an audit holds, for how long, and what it is told when that is over."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dittomq.broker.retention_pins import MAX_PINS, PinParts, Pins
from dittomq.commitlog.retention import RetentionFloor
from dittomq.errors import DiskFull, DittoError, LimitReached, OffsetOutOfRange, SessionExpired, StorageFailure
from dittomq.offsets import PhysicalOffset
from tests.support.audited_cluster import BytesStore
from tests.support.inline_lane import InlineLane
from tests.support.manual_clock import HandClock
from tests.support.stores import Machine
from tests.support.virtual_time import played_by

NOW_MS = 5_000_000


class Node:
    """A node that may be started again, with a log of 1,000 bytes."""

    def __init__(self) -> None:
        self.machine = Machine(random.Random(1))
        self.store = BytesStore(bytes(1_000), 100)
        self.clock = HandClock()
        self.start()

    def start(self) -> None:
        storage = self.machine.storage()
        storage.make_folder("dittomq")
        storage.sync_folder("")
        self.pins = Pins(PinParts("a/0", storage, self.store, InlineLane(), self.clock, self.machine.chance))

    def held(self) -> list[tuple[str, int, int]]:
        """Run, first byte and what is left of the lease, in ms."""
        holds: list[RetentionFloor] = self.pins.floors(NOW_MS)
        return [(hold.name.split()[1], hold.offset, (hold.until_ms or 0) - NOW_MS) for hold in holds]


Story = Callable[[Node], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    asyncio.run(story(Node()))


@played_by(play)
async def test_a_pin_holds_all_of_the_log_or_what_was_asked_until_its_lease_is_over(node: Node) -> None:
    node.store.min_offset = PhysicalOffset(200)
    whole, part = await node.pins.pin("one", None, 60), await node.pins.pin("two", PhysicalOffset(700), 90)

    assert (whole.start, part.start) == (200, 700)
    assert node.held() == [("one", 200, 60_000), ("two", 700, 90_000)]
    node.clock.now_s += 60
    assert node.held() == [("two", 700, 30_000)]
    assert await node.pins.unpin(part.pin_id)
    assert node.held() == []


@played_by(play)
async def test_a_renewed_lease_starts_again_and_one_that_is_over_cannot_be_renewed(node: Node) -> None:
    pin = await node.pins.pin("run", None, 60)
    node.clock.now_s += 59
    assert await node.pins.renew(pin.pin_id, 60) == pin
    node.clock.now_s += 59
    assert node.held() == [("run", 0, 1_000)]
    node.clock.now_s += 1

    with pytest.raises(SessionExpired, match=f"pin {pin.pin_id} of a/0 has ended"):
        await node.pins.renew(pin.pin_id, 60)
    assert not await node.pins.unpin(pin.pin_id)


@played_by(play)
async def test_a_pin_of_which_something_was_dropped_has_ended_and_says_so(node: Node) -> None:
    lost, kept = await node.pins.pin("lost", None, 60), await node.pins.pin("kept", PhysicalOffset(300), 60)
    node.store.min_offset = PhysicalOffset(300)

    assert node.held() == [("kept", 300, 60_000)]
    with pytest.raises(SessionExpired):
        await node.pins.renew(lost.pin_id, 60)
    assert not await node.pins.unpin(lost.pin_id)
    assert await node.pins.unpin(kept.pin_id)


@pytest.mark.parametrize("start", [-1, 199, 1_001, 2**63 - 1])
@played_by(play)
async def test_bytes_that_the_log_does_not_have_cannot_be_pinned(node: Node, /, start: int) -> None:
    node.store.min_offset = PhysicalOffset(200)
    with pytest.raises(OffsetOutOfRange):
        await node.pins.pin("run", PhysicalOffset(start), 60)
    assert node.held() == []


@played_by(play)
async def test_one_pin_too_many_is_refused_until_another_one_ends(node: Node) -> None:
    for _ in range(MAX_PINS):
        await node.pins.pin("run", None, 60)
    with pytest.raises(LimitReached, match=r"the list of audit pins of a/0 is full \(16\)"):
        await node.pins.pin("run", None, 60)
    node.clock.now_s += 60
    await node.pins.pin("run", None, 60)

    assert len(node.held()) == 1


@played_by(play)
async def test_a_restart_keeps_the_pins_and_starts_their_leases_again(node: Node) -> None:
    pin, given_up = await node.pins.pin("run", PhysicalOffset(100), 60), await node.pins.pin("up", None, 60)
    await node.pins.renew(pin.pin_id, 600)
    await node.pins.unpin(given_up.pin_id)
    node.machine.lose_power(all_unsynced=True)
    node.clock.now_s += 10_000
    node.start()
    await node.pins.load()

    assert node.held() == [("run", 100, 600_000)]
    assert await node.pins.renew(pin.pin_id, 60) == pin


@played_by(play)
async def test_a_pin_that_ended_does_not_come_back_with_a_restart(node: Node) -> None:
    await node.pins.pin("run", None, 60)
    node.clock.now_s += 60
    await node.pins.remove_ended()
    node.start()
    await node.pins.load()

    assert node.held() == []


@played_by(play)
async def test_pins_end_on_a_full_disk_and_that_is_recorded_later(node: Node) -> None:
    """They are released too; it is recorded when there is room."""
    await node.pins.pin("ended", None, 60)
    given_up = await node.pins.pin("up", None, 600)
    disk = node.machine.disk
    disk.capacity_bytes = disk.used_bytes()
    node.clock.now_s += 60

    await node.pins.remove_ended()
    assert await node.pins.unpin(given_up.pin_id)
    with pytest.raises(DiskFull):
        await node.pins.pin("new", None, 60)
    assert node.held() == []

    disk.capacity_bytes += 1 << 20
    await node.pins.remove_ended()
    node.start()
    await node.pins.load()
    assert node.held() == []


@played_by(play)
async def test_a_damaged_file_costs_the_pins_and_not_the_start(node: Node) -> None:
    pin = await node.pins.pin("run", None, 60)
    node.machine.disk.names.files["dittomq/pins"].write(memoryview(b"?"), 30, node.machine.chance)
    node.start()
    await node.pins.load()

    with pytest.raises(SessionExpired):
        await node.pins.renew(pin.pin_id, 60)


@played_by(play)
async def test_a_pin_that_could_not_be_written_down_is_not_granted(node: Node) -> None:
    node.machine.faults.failing_syncs = 1
    with pytest.raises(StorageFailure):
        await node.pins.pin("run", None, 60)
    assert node.held() == []


@played_by(play)
async def test_no_pin_is_granted_between_a_decision_to_drop_and_the_drop(node: Node) -> None:
    refusals: list[DittoError] = []

    async def late() -> None:
        try:
            await node.pins.pin("late", PhysicalOffset(0), 60)
        except OffsetOutOfRange as refused:
            refusals.append(refused)

    async with asyncio.TaskGroup() as tasks, node.pins.still:
        tasks.create_task(late())
        await asyncio.sleep(0)
        node.store.min_offset = PhysicalOffset(100)
    assert len(refusals) == 1
