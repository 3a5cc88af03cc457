"""A master whose disk is slow when a slave asks for its place: what it has begun is not called back, and is waited for."""

import asyncio

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import ChangeUnknown, DittoError
from dittomq.replication.standings import StepDownOrder, SteppedDown
from dittomq.rpc.channel import Channels
from dittomq.rpc.replicas import RemoteReplicas
from tests.simulation.group import Group, bodies, play
from tests.simulation.test_promotions import follows, topic, until

HEARD_OF_ALL_S = 12.0
SYNCS_OF_SOME_SECONDS = (4_000.0, 8_000.0)


async def begin(mq: AsyncClient) -> None:
    """A message, and a slave that has heard of its topic."""
    await topic(mq)
    async with mq.producer() as producer:
        await producer.publish("orders", b"before", queue=0)
    await asyncio.sleep(HEARD_OF_ALL_S)


@pytest.mark.parametrize("slowness", SYNCS_OF_SOME_SECONDS)
def test_a_master_whose_disk_takes_longer_for_its_demotion_than_the_slave_waits_makes_room_all_the_same(slowness: float) -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        disk = group.node("a0").faults
        disk.slowness = slowness
        began = group.now

        change = await mq.admin.change_role("a/1")

        assert group.now - began > 5.0, "the first answer came in time"
        disk.slowness = 1.0
        async with mq.producer(retry_s=60.0, on_weak="return") as producer:
            assert (await producer.publish("orders", b"after", queue=0)).epoch == change.epoch
        assert change.may_be_lost == ""
        await group.in_sync(mq, "a/1")
        assert await bodies(mq, "a/1") == [b"before", b"after"]

    play(story)


def test_a_master_whose_disk_takes_even_longer_leaves_open_what_became_of_the_change_and_the_same_command_ends_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        disk = group.node("a0").faults
        disk.slowness = 20_000.0

        with pytest.raises(ChangeUnknown, match="did not hear whether that one did; give the command again"):
            await mq.admin.change_role("a/1")
        disk.slowness = 1.0
        await until(follows(mq, "a0:10911"))
        change = await mq.admin.change_role("a/1")

        assert change.may_be_lost == ""
        await group.in_sync(mq, "a/1")
        async with mq.producer() as producer:
            assert (await producer.publish("orders", b"after", queue=0)).status is PutStatus.PUT_OK
        assert await bodies(mq, "a/1") == [b"before", b"after"]

    play(story)


def test_whoever_gives_a_command_again_while_it_is_obeyed_hears_what_became_of_it() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)
        group.node("a0").faults.slowness = SYNCS_OF_SOME_SECONDS[0]

        first = asyncio.create_task(mq.admin.change_role("a/1"))
        await asyncio.sleep(1.0)
        with pytest.raises(DittoError, match="another change of its role is under way"):
            await mq.admin.change_role("a/1", accept_loss=True)
        second = asyncio.create_task(mq.admin.change_role("a/1"))

        assert await first == await second
        group.node("a0").faults.slowness = 1.0
        await group.in_sync(mq, "a/1")

    play(story)


async def order_that_was_long_under_way(group: Group) -> SteppedDown | DittoError:
    """The slave's, when it has long forgotten that it gave it: what its master answers."""
    answered: asyncio.Future[SteppedDown | DittoError] = asyncio.get_running_loop().create_future()

    async def deliver(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            replicas = RemoteReplicas(channels, "dittomq", "a")
            slave = await replicas.standing("a1:10912")
            order = StepDownOrder(slave.node, slave.replica_uuid, slave.wire_id, slave.topics, timeout_s=3.0)
            try:
                answered.set_result(await replicas.step_down("a0:10912", order))
            except DittoError as refused:
                answered.set_result(refused)

    group.world.node("wire", deliver).start()
    return await answered


def test_an_order_to_step_down_that_comes_when_its_slave_is_not_told_to_lead_any_more_demotes_nobody() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await begin(mq)

        refused = await order_that_was_long_under_way(group)

        assert "a/1 is not told to lead any more" in str(refused)
        await asyncio.sleep(5.0)
        status = await mq.admin.ha_status("a0:10911")
        assert (status.writable, status.epoch) == (True, 1)

    play(story)
