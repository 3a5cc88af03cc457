"""A network that is split: an old master with a nameserver on one side, all slaves, one of which takes its place, on the other."""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable

from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group
from tests.simulation.shapes import Shape

THREE_SLAVES = Shape(3, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=3, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)
THREE_OF_TWO_NAMESERVERS = THREE_SLAVES.named_twice()


async def begin(group: Group, mq: AsyncClient) -> None:
    """One message is on all copies, and all know that."""
    [created] = await mq.admin.create_topic("orders", 1)
    assert created.error is None
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)
    await asyncio.sleep(11)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait."""
    while True:
        with contextlib.suppress(DittoError):
            if await holds():
                return
        await asyncio.sleep(0.1)


async def leads_in(mq: AsyncClient, machine: str, epoch: int) -> None:
    async def does() -> bool:
        status = await mq.admin.ha_status(f"{machine}:10911")
        return status.writable and status.epoch == epoch

    await until(does)


def wall(group: Group, some: list[str], others: list[str]) -> None:
    for one in some:
        for other in others:
            group.world.network.cut(one, other)


def pull_down(group: Group, some: list[str], others: list[str]) -> None:
    for one in some:
        for other in others:
            group.world.network.heal(one, other)


async def split(group: Group, mq: AsyncClient, *, starts: int) -> None:
    """The master starts again, so often, with a nameserver of its own, out of reach of all slaves, and a/1 takes its place among these."""
    await start_apart(group, mq, starts=starts)
    await take_its_place(mq)


async def start_apart(group: Group, mq: AsyncClient, *, starts: int) -> None:
    wall(group, ["a0", "ns2"], ["a1", "a2", "a3", "ns"])
    for start in range(starts):
        await group.kill("a0")
        group.node("a0").start()
        await until(functools.partial(opened, mq, "a0", start + 2))


async def take_its_place(mq: AsyncClient) -> None:
    assert (await mq.admin.change_role("a/1", old_master_is_stopped=True)).may_be_lost == ""
    await leads_in(mq, "a1", 2)


async def opened(mq: AsyncClient, machine: str, epoch: int) -> bool:
    status = await mq.admin.ha_status(f"{machine}:10911")
    return status.epoch == epoch and not status.waiting_for.startswith("recovering")


async def copies_in_sync(mq: AsyncClient, machine: str, copies: int) -> bool:
    return (await mq.admin.ha_status(f"{machine}:10911")).in_sync_now == copies


async def all_in_sync(group: Group, mq: AsyncClient) -> bool:
    """Whether some node leads with all others in sync."""
    for machine in group.cluster.brokers:
        status = await mq.admin.ha_status(f"{machine}:10911")
        if status.writable and status.in_sync_now == len(group.cluster.brokers):
            return True
    return False
