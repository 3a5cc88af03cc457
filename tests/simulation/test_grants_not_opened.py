"""A node is granted an epoch by a change of places and loses power before it opens it, while another one opens one of that number."""

import asyncio

import pytest

from dittomq.client import AsyncClient, PutStatus
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, bodies, play
from tests.simulation.shapes import Shape
from tests.simulation.splits import all_in_sync, begin, copies_in_sync, leads_in, pull_down, start_apart, until, wall
from tests.simulation.world import Power


def three_slaves(*, in_sync_replicas: int, min_in_sync_replicas: int) -> Shape:
    table = ReplicationTable(
        mode=Mode.SYNC_MASTER,
        replicas_expected=3,
        in_sync_replicas=in_sync_replicas,
        min_in_sync_replicas=min_in_sync_replicas,
    )
    return Shape(3, table, FlushMode.SYNC_FLUSH).named_twice()


async def loses_power_when_granted(group: Group, mq: AsyncClient, machine: str) -> None:
    """It is told to lead, and goes down when its grant is on its disk."""
    asking = asyncio.create_task(mq.admin.change_role(f"{machine}:10911"))
    async with asyncio.timeout(60):
        while "dittomq/role" not in group.node(machine).disk.names.files:  # noqa: ASYNC110  # nodes tell nobody
            await asyncio.sleep(0.0001)
    await asyncio.sleep(0.001)
    group.node(machine).crash(Power.LOSS)
    await group.world.buried()
    await asyncio.wait([asking])
    asking.exception()  # the answer may be lost with it


async def all_lead_to_the_same(group: Group, mq: AsyncClient, messages: list[bytes]) -> None:
    async with asyncio.timeout(200):
        await until(lambda: all_in_sync(group, mq))
    async with mq.producer(retry_s=60.0) as producer:
        assert (await producer.publish("orders", b"after", queue=0)).status is PutStatus.PUT_OK
    await asyncio.sleep(11)
    for machine in group.cluster.brokers:
        assert await bodies(mq, f"a/{machine[1:]}") == [*messages, b"after"]


def test_who_has_not_opened_its_grant_follows_a_node_that_was_promoted_in_an_epoch_of_that_number_and_nothing_confirmed_is_lost() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        wall(group, ["a0", "a1", "ns"], ["a2", "a3", "ns2"])
        assert (await mq.admin.change_role("a2:10911", old_master_is_stopped=True)).epoch == 2
        await leads_in(mq, "a2", 2)
        await until(lambda: copies_in_sync(mq, "a2", 2))
        await loses_power_when_granted(group, mq, "a1")

        pull_down(group, ["a0", "a1", "ns"], ["a2", "a3", "ns2"])
        group.node("a1").start()

        await all_lead_to_the_same(group, mq, [b"before"])

    play(story, three_slaves(in_sync_replicas=3, min_in_sync_replicas=2))


@pytest.mark.parametrize("floor", [1, 2])
def test_who_has_not_opened_its_grant_and_meets_an_old_master_that_opened_one_of_that_number_costs_nothing_confirmed(floor: int) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(group, mq)
        await start_apart(group, mq, starts=2)
        await mq.admin.change_role("a1:10911", old_master_is_stopped=True)
        await leads_in(mq, "a1", 2)
        await until(lambda: copies_in_sync(mq, "a1", 3))
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"confirmed", queue=0)).status is PutStatus.PUT_OK
        await loses_power_when_granted(group, mq, "a3")

        pull_down(group, ["a0", "ns2"], ["a1", "a2", "a3", "ns"])
        group.node("a3").start()

        await all_lead_to_the_same(group, mq, [b"before", b"confirmed"])

    play(story, three_slaves(in_sync_replicas=2, min_in_sync_replicas=floor))
