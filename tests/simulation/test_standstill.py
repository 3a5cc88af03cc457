"""A process that stands still, in the simulated world: nothing of it happens, time passes for it, and its peers find out."""

import asyncio

import pytest

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, PutStatus
from dittomq.errors import NotPermitted
from dittomq.routes import Role
from tests.simulation.echo import PORT, EchoServer
from tests.simulation.group import Group, bodies, play
from tests.simulation.network import ConnectFailed
from tests.simulation.test_outdated_masters import TWO_SLAVES, is_followed
from tests.simulation.world import Power, World


def test_a_process_does_nothing_while_it_stands_still_and_then_all_that_was_due_in_its_order() -> None:
    world, ticks = World(1), list[float]()
    began: list[float] = []

    async def ticking(doors: BrokerDoors, __: asyncio.Event) -> None:
        for _ in range(4):
            await asyncio.sleep(1.0)
            ticks.append(doors.clock.monotonic() - began[0])

    async def story() -> None:
        node = world.node("one", ticking)
        began.append(node.clock.monotonic())
        node.start()
        await asyncio.sleep(1.5)
        node.freeze()
        await asyncio.sleep(5.0)
        assert len(ticks) == 1
        node.thaw()
        await asyncio.sleep(2.5)

    world.run(story())
    world.close()
    assert ticks == pytest.approx([1.0, 6.5, 7.5, 8.5])


@pytest.mark.parametrize(("still_s", "breaks"), [(5.0, False), (25.0, True)])
def test_a_connection_to_a_process_that_stands_still_breaks_when_a_keepalive_misses_it(still_s: float, breaks: bool) -> None:
    world = World(1)
    seen: list[object] = []

    async def story() -> None:
        world.network.machine("client")
        server = world.node("server", EchoServer().serve)
        server.start()
        await asyncio.sleep(0.1)
        socket = await world.network.connect("client", f"server:{PORT}")
        socket.broken = seen.append
        server.freeze()
        with pytest.raises(ConnectFailed, match="did not answer") if breaks else pytest.raises(TimeoutError):
            async with asyncio.timeout(still_s - 1.0):
                await world.network.connect("client", f"server:{PORT}")
        server.thaw()
        await asyncio.sleep(30.0)
        await world.network.connect("client", f"server:{PORT}")

    world.run(story())
    world.close()
    assert seen == (["keepalive"] if breaks else [])


def test_a_process_that_stands_still_can_be_killed() -> None:
    world = World(1)

    async def story() -> None:
        server = world.node("server", EchoServer().serve)
        for _ in range(2):
            server.start()
            await asyncio.sleep(0.1)
            server.freeze()
            server.crash(Power.KILL)
            await world.buried()
            assert not server.running

    world.run(story())
    world.close()


def test_a_master_that_stood_still_while_another_was_promoted_answers_nobody_more_and_follows() -> None:
    async def story(group: Group, mq: AsyncClient) -> None:
        await mq.admin.create_topic("orders", 1)
        async with mq.producer(timeout_s=20.0, retry_s=60.0) as producer:
            await producer.publish("orders", b"before", queue=0)
            await group.in_sync(mq)
            group.node("a0").freeze()
            late = asyncio.create_task(producer.publish("orders", b"late", queue=0))
            with pytest.raises(NotPermitted, match=r"may still be writing.*a/1 lacks nothing confirmed by 2 copies"):
                await mq.admin.change_role("a/1")
            await mq.admin.change_role("a/1", accept_loss=True)
            await is_followed(mq, "a1:10911", "a/2")

            group.node("a0").thaw()
            receipt = await late

        await group.in_sync(mq, "a/1")
        assert (receipt.epoch, receipt.status) == (2, PutStatus.PUT_OK)
        assert (await mq.admin.ha_status("a0:10911")).role == Role.SLAVE
        await asyncio.sleep(11.0)
        for node in ("a/0", "a/1", "a/2"):
            assert await bodies(mq, node) == [b"before", b"late"]

    play(story, TWO_SLAVES)
