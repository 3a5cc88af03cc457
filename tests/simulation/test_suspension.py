"""A process that stands still, in the simulated world: nothing of it happens, time passes for it, and its peers find out."""

import asyncio

import pytest

from dittomq.broker.doors import BrokerDoors
from tests.simulation.echo import PORT, EchoServer
from tests.simulation.network import ConnectFailed
from tests.simulation.world import Power, World


def test_suspended_process_catches_up_on_due_work_in_order() -> None:
    """It does nothing while it is suspended."""
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
def test_connection_to_a_suspended_process_breaks_at_a_missed_keepalive(still_s: float, breaks: bool) -> None:
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


def test_a_process_that_is_suspended_can_be_killed() -> None:
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
