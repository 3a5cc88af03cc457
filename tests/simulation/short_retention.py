"""A group whose master keeps 20 s of its log, in a simulated world without faults but those of the story."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from dittomq.broker.config import RetentionTable, StoreTable
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import BrokerService, RoleStart
from dittomq.client import Ack, AsyncClient
from dittomq.client.replica_reader import ReplicaReader
from dittomq.errors import DittoError, Unavailable
from dittomq.ha_status import HaStatus
from dittomq.routes import Role
from dittomq.rpc.channel import Channels
from dittomq.rpc.replica_client import ReplicaClient
from services.master import wiring as master
from services.master.config import MasterConfig, Mode, NodeTable, ReplicationTable
from services.nameserver import wiring as nameserver
from services.nameserver.config import NameserverConfig
from services.slave import wiring as slave
from services.slave.config import SlaveConfig
from tests.simulation.cluster import coordination, serve_first
from tests.simulation.shapes import NAMESERVER
from tests.simulation.world import ServeAs, World

SEGMENT = 65_536
RETENTION = RetentionTable(max_age_ms=20_000, check_period_ms=1_000)
HOLD_BYTES = 6 * SEGMENT
OLD_S = 40.0


class Group:
    """A nameserver, a master that keeps 20 s of its log, a slave that keeps all of its own; and a client."""

    def __init__(self, world: World, mq: AsyncClient, channels: Channels) -> None:
        self.world = world
        self.mq = mq
        self.copies = ReplicaReader(channels, 5.0)
        self.replicas = ReplicaClient(channels, "dittomq", "a")
        self.sent = 0

    async def publish(self, segments: int) -> None:
        async with self.mq.producer(Ack.MASTER_FLUSHED) as producer:
            for _ in range(segments * 8):
                await producer.publish("orders", b"%08d" % self.sent + bytes(8_000), queue=0)
                self.sent += 1

    async def status(self, name: str) -> HaStatus:
        return await self.mq.admin.ha_status(f"{name}:10911")

    async def switch_over(self, node: str) -> None:
        await self.mq.admin.switchover(node)
        await self._leads(node)

    async def fail_over(self, node: str, *, allow_data_loss: bool = False) -> None:
        await self.mq.admin.failover(node, allow_data_loss=allow_data_loss)
        await self._leads(node)

    async def _leads(self, node: str) -> None:
        while True:
            with contextlib.suppress(DittoError):
                status = await self.status(node.replace("/", ""))
                if status.role != Role.SLAVE and status.writable:
                    return
            await asyncio.sleep(0.1)

    async def equal(self, within_s: float = 60.0) -> None:
        async with asyncio.timeout(within_s):
            while True:
                await asyncio.sleep(0.5)
                if await self._is_equal():
                    return

    async def _is_equal(self) -> bool:
        try:
            return (await self.status("a0")).end == (await self.status("a1")).flushed
        except Unavailable:
            return False

    async def drop_reason(self) -> str:
        return next(view.last_drop_reason for view in (await self.status("a0")).nodes if view.node == "a/1")


def play(world: World, story: Callable[[Group], Awaitable[None]], *, on_slave: RetentionTable = RetentionTable()) -> None:  # noqa: B008
    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        try:
            async with (
                AsyncClient(NAMESERVER, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq,
                Channels(doors.transport) as channels,
            ):
                group = Group(world, mq, channels)
                await asyncio.sleep(5)
                await mq.admin.create_topic("orders", 1)
                await group.publish(1)
                await group.equal()
                await story(group)
        finally:
            done.set()

    async def whole() -> None:
        for node in world.nodes.values():
            node.start()
        await done.wait()

    def services(number: int, retention: RetentionTable) -> Mapping[BrokerService, ServeAs]:
        """Of the machine with that broker id, whichever role it has."""
        tables: dict[str, Any] = {
            "node": NodeTable(broker_id=number, nameservers=(NAMESERVER,)),
            "advertise": {"default": f"a{number}:10911"},
            "advertise_replication": {"default": f"a{number}:10912"},
            "store": StoreTable(segment_bytes=SEGMENT, min_free_bytes=0),
            "retention": retention,
            "replication": ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1, max_slot_bytes=HOLD_BYTES),
        }
        leading, following = MasterConfig(**tables), SlaveConfig(**tables)

        async def lead(doors: BrokerDoors, stop: asyncio.Event, start: RoleStart) -> None:
            await master.serve(leading, doors, stop, start=start, coordination=coordination(leading, doors))

        async def follow(doors: BrokerDoors, stop: asyncio.Event, start: RoleStart) -> None:
            await slave.serve(following, doors, stop, start=start, coordination=coordination(following, doors))

        return {BrokerService.MASTER: lead, BrokerService.SLAVE: follow}

    done = asyncio.Event()
    world.node("ns", lambda doors, stop: nameserver.serve(NameserverConfig(), doors, stop))
    for number, retention in enumerate((RETENTION, on_slave)):
        offered = services(number, retention)
        first = offered[BrokerService.SLAVE if number else BrokerService.MASTER]
        world.node(f"a{number}", partial(serve_first, first)).services = offered
    world.node("client", serve)
    world.run(whole())
