"""A slave all of whose log is cut says nothing any more of what few copies had confirmed in it."""

import asyncio
import contextlib

from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from tests.simulation.group import Group, play
from tests.simulation.test_promotions import TWO_SLAVES
from tests.simulation.world import Power


async def publish(mq: AsyncClient) -> None:
    await mq.admin.create_topic("orders", 1)
    async with mq.producer(on_weak="return") as producer:
        for _ in range(8):
            await producer.publish("orders", b"x" * 500, queue=0)


async def degraded_bytes(mq: AsyncClient, machine: str) -> int:
    return (await mq.admin.ha_status(f"{machine}:10911")).degraded_bytes


def test_a_slave_all_of_whose_log_is_cut_knows_of_no_degraded_range_in_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        for machine in ("a1", "a2"):
            await group.kill(machine)
        await publish(mq)
        for machine in ("a1", "a2"):
            group.node(machine).start()
        await group.in_sync(mq)
        await asyncio.sleep(3)
        assert await degraded_bytes(mq, "a1") > 0
        for machine in ("a0", "a1", "a2"):
            group.node(machine).crash(Power.LOSS)
        await group.world.buried()
        for machine in ("a0", "a2"):
            group.node(machine).lose_disk()
            group.node(machine).start()
        await asyncio.sleep(10)
        for _ in range(2):
            with contextlib.suppress(DittoError):  # the first by a connection that is broken
                await mq.admin.change_role("a0:10911", accept_loss=True)
            await asyncio.sleep(10)

        group.node("a1").start()
        await group.in_sync(mq)
        await publish(mq)
        await asyncio.sleep(10)

        assert [await degraded_bytes(mq, machine) for machine in ("a0", "a2", "a1")] == [0, 0, 0]

    play(story, TWO_SLAVES)
