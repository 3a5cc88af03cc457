"""A broker group of the product's own services and one client, in a simulated world without faults but those of the story."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.routes import Role
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.cluster import Cluster
from tests.simulation.operator import as_client
from tests.simulation.service_logs import log_into
from tests.simulation.shapes import Shape, machine_of
from tests.simulation.world import Node, Power, World

SYNC = Shape(1, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=1), FlushMode.SYNC_FLUSH)

Story = Callable[["Group", AsyncClient], Awaitable[None]]


class Group:
    """Master a0 and its slaves, one unless the shape says otherwise, all in sync when the story begins."""

    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.cluster = Cluster(world, shape)
        self._orders = 0

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def node(self, name: str) -> Node:
        return self.world.nodes[name]

    async def start(self) -> None:
        for name in (*self.cluster.shape.name_machines, *self.cluster.brokers):
            self.node(name).start()

    async def in_sync(self, mq: AsyncClient, master: str = "a/0") -> None:
        """Wait until the master takes writes and has its slaves in sync: as many as it expects, where it expects fewer than there are."""
        copies = min(len(self.cluster.brokers), 1 + (self.shape.replication.replicas_expected or len(self.cluster.brokers)))
        while True:
            with contextlib.suppress(DittoError):
                status = await mq.admin.ha_status(master)
                if status.writable and status.in_sync_now == copies:
                    return
            await asyncio.sleep(0.1)

    async def kill(self, name: str) -> None:
        self.node(name).crash(Power.KILL)
        await self.world.buried()

    async def switch_over(self, node: str) -> None:
        """That slave takes its master's place; this returns when it takes writes."""
        await self._leads(node, lambda mq: mq.admin.switchover(node))

    async def fail_over(self, node: str, *, allow_data_loss: bool = False) -> None:
        """That node is elected, whoever is silent; this returns when it takes writes."""
        await self._leads(node, lambda mq: mq.admin.failover(node, allow_data_loss=allow_data_loss))

    async def _leads(self, node: str, order: Callable[[AsyncClient], Awaitable[object]]) -> None:
        async def work(mq: AsyncClient) -> None:
            epoch = (await mq.admin.ha_status(f"{machine_of(node)}:10911")).epoch
            await order(mq)
            while True:
                with contextlib.suppress(DittoError):
                    status = await mq.admin.ha_status(f"{machine_of(node)}:10911")
                    if status.role != Role.SLAVE and status.epoch > epoch and status.writable:
                        return
                await asyncio.sleep(0.05)

        self._orders += 1
        await as_client(self, f"operator{self._orders}", work)

    async def replace_disk(self, name: str) -> None:
        """The machine comes back with an empty disk."""
        self.node(name).crash(Power.LOSS)
        await self.world.buried()
        self.node(name).lose_disk()
        self.node(name).start()


async def bodies(mq: AsyncClient, node: str) -> list[bytes]:
    """What that node lets read of queue 0 of "orders", from its first message on."""
    page = await mq.reader("orders", queue=0, node=node, max_messages=100).pull(0)
    return [message.body for message in page.messages]


def play(story: Story, shape: Shape = SYNC, seed: int = 1) -> None:
    """Let a client live the story; what it raises, raises here."""
    world = World(seed)
    log_into(world)
    group = Group(world, shape)
    failed: list[BaseException] = []
    ended = asyncio.Event()

    async def client(doors: BrokerDoors, _: asyncio.Event) -> None:
        try:
            async with AsyncClient(shape.nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
                await group.in_sync(mq)
                await story(group, mq)
        except Exception as error:  # noqa: BLE001  # handed to the test
            failed.append(error)
        ended.set()

    async def whole() -> None:
        await group.start()
        world.node("client", client).start()
        async with asyncio.timeout(600):
            await ended.wait()

    try:
        world.run(whole())
    finally:
        structlog.reset_defaults()
        world.close()
    if failed:
        raise failed[0]
    assert world.findings == [], world.findings
