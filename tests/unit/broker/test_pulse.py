"""A pulse wakes all who wait for it, once for all, and nobody waits longer than asked."""

import asyncio

from dittomq.broker.pulse import GrowthPulse
from tests.support.metadata_node import run
from tests.support.virtual_time import under


@under(run)
async def test_a_pulse_wakes_all_who_wait_and_holds_up_nobody_after() -> None:
    pulse, loop = GrowthPulse(), asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(pulse.wait(seconds)) for seconds in (None, 0.5, 60.0)]
        await asyncio.sleep(0)
        pulse.set()
    began = loop.time()
    await pulse.wait()

    assert all(task.done() for task in waiting)
    assert (pulse.is_set, loop.time() - began < 1) == (True, True)


@under(run)
async def test_a_wait_for_a_pulse_ends_after_its_time() -> None:
    pulse = GrowthPulse()
    await pulse.wait(0.01)

    assert not pulse.is_set


@under(run)
async def test_whoever_is_cancelled_waits_no_longer_for_a_pulse() -> None:
    pulse = GrowthPulse()
    waiting, stays = (asyncio.ensure_future(pulse.wait(60.0)) for _ in range(2))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    pulse.set()
    await stays

    assert waiting.cancelled()
