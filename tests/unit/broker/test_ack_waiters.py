"""Who is released when, under virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dittomq.broker.ack_waiters import AckWaiters
from dittomq.doors.coordination import Written
from dittomq.errors import FencedEpoch
from dittomq.message import Ack, PutStatus
from dittomq.replication.progress import ConfirmRules
from tests.simulation.clock import SimulatedClock
from tests.simulation.loop import SimulatedLoop
from tests.support.confirming_group import ASYNC, RULES, ConfirmingGroup, at
from tests.support.virtual_time import played_by


class Group:
    """A master with one slave, as far as acks go."""

    def __init__(self, clock: SimulatedClock, rules: ConfirmRules) -> None:
        self.clock = clock
        self.confirming = ConfirmingGroup(rules, streaming=("a/1",))
        self.acks = AckWaiters(self.confirming.confirmed, clock)

    def master(self, written: int, flushed: int) -> None:
        self.confirming.master(written, flushed, now=self.clock.monotonic())
        self.acks.moved()

    def slave(self, received: int, flushed: int) -> None:
        self.confirming.slave("a/1", received, flushed, now=self.clock.monotonic())
        self.acks.moved()

    def decide(self) -> None:
        """Write the members that are wanted into the record."""
        now = self.clock.monotonic()
        self.confirming.confirmed.tick(now)
        if self.confirming.membership.decide(now, write="w") is not None:
            self.confirming.membership.write_ended(Written("v2"), now)
        self.acks.moved()


def play(story: Callable[[Group], Coroutine[Any, Any, None]], rules: ConfirmRules = RULES) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(story(Group(SimulatedClock(loop), rules)))
    finally:
        loop.close()


@played_by(play)
async def test_callers_that_have_left_are_not_kept_for_one_that_stays(group: Group) -> None:
    group.master(10_000, 10_000)
    stays = asyncio.ensure_future(group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3_600.0))
    for number in range(100):
        leave = [asyncio.ensure_future(group.acks.wait(at(0), at(101 + number), Ack.REPLICA_FLUSHED, 1.0)) for _ in range(100)]
        assert {await each for each in leave} == {PutStatus.FLUSH_SLAVE_TIMEOUT}

    assert group.acks.kept <= 2_048
    group.slave(10_000, 10_000)
    assert await stays is PutStatus.PUT_OK


@played_by(play)
async def test_each_level_is_released_by_its_own_position(group: Group) -> None:
    waits = {level: asyncio.ensure_future(group.acks.wait(at(0), at(100), level, 3.0)) for level in Ack}
    await asyncio.sleep(0)
    done: list[set[Ack]] = []
    for move, first, second in ((group.master, 100, 0), (group.master, 100, 100), (group.slave, 100, 0), (group.slave, 100, 100)):
        move(first, second)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        done.append({level for level, wait in waits.items() if wait.done()})

    assert done[0] == {Ack.MASTER_RECEIVED}
    assert done[1] == {Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}
    assert done[2] == {Ack.MASTER_RECEIVED, Ack.MASTER_FLUSHED}
    assert done[3] == set(Ack)


@played_by(play)
async def test_a_waiter_further_ahead_does_not_hold_up_one_behind_it(group: Group) -> None:
    ahead = asyncio.ensure_future(group.acks.wait(at(0), at(200), Ack.REPLICA_FLUSHED, 60.0))
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 60.0))
    await asyncio.sleep(0)
    group.master(200, 200)
    group.slave(100, 100)

    assert await behind is PutStatus.PUT_OK
    assert not ahead.done()
    ahead.cancel()


@played_by(play)
async def test_silence_of_the_slave_ends_a_wait_after_the_timeout_and_not_before(group: Group) -> None:
    group.master(100, 100)
    began = group.clock.monotonic()

    status = await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0)

    assert status is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert group.clock.monotonic() - began == 3.0


@pytest.mark.parametrize("level", [Ack.MASTER_FLUSHED, Ack.REPLICA_FLUSHED])
@played_by(play)
async def test_a_level_reached_in_the_moment_of_the_timeout_is_no_missed_deadline(group: Group, /, level: Ack) -> None:
    group.master(100, 0)
    wait = asyncio.ensure_future(group.acks.wait(at(0), at(100), level, 3.0))
    await asyncio.sleep(0)

    def reach() -> None:
        group.slave(100, 100)
        group.master(100, 100)

    asyncio.get_running_loop().call_later(3.0, reach)  # runs behind the waiter's end and before its caller

    assert await wait is PutStatus.PUT_OK
    assert [each.missed for each in group.confirming.confirmed.progress] == [0]


@played_by(play)
async def test_a_close_in_the_moment_of_the_timeout_ends_the_call(group: Group) -> None:
    group.master(100, 0)
    wait = asyncio.ensure_future(group.acks.wait(at(0), at(100), Ack.MASTER_FLUSHED, 3.0))
    await asyncio.sleep(0)

    asyncio.get_running_loop().call_later(3.0, group.acks.close, FencedEpoch("the master of epoch 1", "a/1 leads"))

    with pytest.raises(FencedEpoch):
        await wait


@played_by(play)
async def test_a_master_that_does_not_flush_is_named_before_a_silent_slave(group: Group) -> None:
    group.master(100, 0)

    assert await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0) is PutStatus.FLUSH_DISK_TIMEOUT


@played_by(play)
async def test_a_degraded_write_is_answered_at_once_as_slave_not_available(group: Group) -> None:
    group.master(100, 100)
    await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0)
    await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0)
    waits = asyncio.ensure_future(group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0))
    await asyncio.sleep(0)
    group.decide()
    assert await waits is PutStatus.SLAVE_NOT_AVAILABLE
    group.master(200, 200)
    began = group.clock.monotonic()

    assert await group.acks.wait(at(0), at(200), Ack.REPLICA_FLUSHED, 3.0) is PutStatus.SLAVE_NOT_AVAILABLE
    assert group.clock.monotonic() == began


@played_by(play, ASYNC)
async def test_a_dead_slave_of_an_asynchronous_master_costs_two_deadlines(group: Group) -> None:
    statuses = []
    for number in range(1, 5):
        group.master(100 * number, 100 * number)
        statuses.append(await group.acks.wait(at(0), at(100 * number), Ack.REPLICA_FLUSHED, 3.0))
        group.decide()

    assert statuses == [PutStatus.FLUSH_SLAVE_TIMEOUT] * 2 + [PutStatus.SLAVE_NOT_AVAILABLE] * 2
    assert group.clock.monotonic() == 6.0


@played_by(play, ASYNC)
async def test_a_slave_that_joins_again_makes_a_copy(group: Group) -> None:
    group.master(100, 100)
    for _ in range(2):
        await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0)
    group.decide()
    group.slave(100, 100)
    await asyncio.sleep(1.0)
    group.decide()
    group.master(200, 200)
    waits = asyncio.ensure_future(group.acks.wait(at(100), at(200), Ack.REPLICA_FLUSHED, 3.0))
    await asyncio.sleep(0)

    group.slave(200, 200)

    assert await waits is PutStatus.PUT_OK


@played_by(play)
async def test_an_ack_that_is_there_before_the_wait_is_answered_at_once(group: Group) -> None:
    group.master(100, 100)
    group.slave(100, 100)

    assert await group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 0.0) is PutStatus.PUT_OK


@played_by(play)
async def test_close_ends_all_calls_and_every_later_one(group: Group) -> None:
    group.master(100, 100)
    waits = asyncio.ensure_future(group.acks.wait(at(0), at(100), Ack.REPLICA_FLUSHED, 3.0))
    await asyncio.sleep(0)

    group.acks.close(FencedEpoch("the master of epoch 1", "a/1 leads"))
    group.slave(100, 100)

    for wait in (waits, group.acks.wait(at(0), at(100), Ack.MASTER_RECEIVED, 3.0)):
        with pytest.raises(FencedEpoch):
            await wait


@played_by(play)
async def test_a_wait_for_copies_of_what_no_slave_was_sent_ends_and_holds_up_no_other(group: Group) -> None:
    group.slave(0, 0)
    group.master(300, 300)
    frames = ((0, 100), (100, 200), (200, 300))
    waits = [asyncio.ensure_future(group.acks.wait(at(start), at(end), Ack.REPLICA_FLUSHED, 3.0)) for start, end in frames]
    await asyncio.sleep(0)

    group.confirming.confirmed.record_skipped("a/1", at(100), at(200))
    group.slave(300, 300)

    assert [await each for each in waits] == [PutStatus.PUT_OK, PutStatus.SLAVE_NOT_AVAILABLE, PutStatus.PUT_OK]
    assert await group.acks.wait(at(100), at(200), Ack.REPLICA_FLUSHED, 3.0) is PutStatus.SLAVE_NOT_AVAILABLE
