"""Slaves that come once and never again, each under another name: what a master remembers of them has an end."""

import asyncio
from collections.abc import Awaitable, Callable

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import NeedsOperator
from dittomq.ha_status import HaStatus
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import PROTOCOL_VERSION, Handshake, HandshakeResult, SyncAction
from dittomq.rpc.channel import Channels
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from services.slave.connection import ReplicationConnection
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.support.virtual_time import played_by

MOST = 64
ONE_COPY = Shape(1, ReplicationTable(mode=Mode.ASYNC_MASTER, replicas_expected=1), FlushMode.SYNC_FLUSH)
NOTHING = PhysicalOffset(0)


def stranger(like: HaStatus, node_id: int, segment_bytes: int) -> Handshake:
    uuid = f"00000000-0000-4000-8000-{node_id:012}"
    offsets = NOTHING, NOTHING, NOTHING, NOTHING
    return Handshake(like.cluster, like.broker, node_id, uuid, PROTOCOL_VERSION, *offsets, (), (), NOTHING, "", segment_bytes)


async def taken_in(channels: Channels, handshake: Handshake) -> ReplicationConnection:
    """A stream that its master lets follow."""
    line = ReplicationConnection(channels, "a0:10912")
    await line.write(handshake)
    handshake_result = await line.read()
    assert isinstance(handshake_result, HandshakeResult)
    assert handshake_result.action is SyncAction.STREAM
    return line


async def why_not(channels: Channels, handshake: Handshake) -> NeedsOperator | None:
    """Why its master does not let it follow, None where it does."""
    try:
        await taken_in(channels, handshake)
    except NeedsOperator as refused:
        return refused
    return None


def of_strangers(status: HaStatus) -> list[str]:
    return [view.node for view in status.nodes if view.node not in ("a/0", "a/1")]


async def strange(group: Group, mq: AsyncClient, story: Callable[[Channels, HaStatus], Awaitable[None]]) -> None:
    """A machine of its own lives that."""
    like = await mq.admin.ha_status("a/0")
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def live(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            try:
                await story(channels, like)
            except Exception as error:  # noqa: BLE001  # handed to the test
                ended.set_exception(error)
            else:
                ended.set_result(None)

    group.world.node("strange", live).start()
    await ended


@played_by(play, ONE_COPY)
async def test_master_remembers_the_newest_64_passing_slaves_only(group: Group, mq: AsyncClient) -> None:
    """Each comes once, under another name."""

    async def come_and_go(channels: Channels, like: HaStatus) -> None:
        for node_id in range(100, 200):
            (await taken_in(channels, stranger(like, node_id, group.shape.segment_bytes))).hang_up()
            await asyncio.sleep(1)

    await group.kill("a1")
    await strange(group, mq, come_and_go)
    await asyncio.sleep(30)

    status = await mq.admin.ha_status("a/0")
    assert of_strangers(status) == [f"a/{node_id}" for node_id in range(200 - MOST, 200)]


@played_by(play, ONE_COPY)
async def test_one_slave_more_than_64_is_refused_by_name_where_one_copy_is_asked_for(group: Group, mq: AsyncClient) -> None:
    async def come_and_stay(channels: Channels, like: HaStatus) -> None:
        lines = [await taken_in(channels, stranger(like, node_id, group.shape.segment_bytes)) for node_id in range(100, 99 + MOST)]
        refused = [str(error) for error in (await why_not(channels, stranger(like, 200, group.shape.segment_bytes)),) if error]
        assert len(refused) == 1
        assert "as many slaves as a master has, 64: a/1, a/100, " in refused[0]
        lines[0].hang_up()
        await asyncio.sleep(16)
        await taken_in(channels, stranger(like, 200, group.shape.segment_bytes))

    await strange(group, mq, come_and_stay)
