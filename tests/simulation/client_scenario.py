"""A client among scripted brokers and a nameserver, over the simulated network in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from tests.simulation.world import Power, World
from tests.support.fake_broker import NAMESERVER, FakeBroker, FakeNameserver, Log, node_of

Story = Callable[["ClientTown", AsyncClient], Awaitable[None]]


class ClientTown:
    """Group a has a/0 and its slaves a/1, a/2 and so on, group b, where it is wanted, b/0. The topic "orders" has 4 queues in each."""

    def __init__(self, *, groups: tuple[str, ...] = ("a",), slaves: int = 1) -> None:
        self.world = World(seed=1)
        self.nameserver = FakeNameserver()
        self.brokers: dict[str, FakeBroker] = {}
        self.logs = {group: Log() for group in groups}
        for group in groups:
            self.nameserver.queues["orders"][group] = 4
            for broker_id in range(1 + slaves) if group == "a" else (0,):
                self._add(group, broker_id)
        self.world.node("ns", self.nameserver.serve)

    def _add(self, group: str, broker_id: int) -> None:
        broker = self.brokers[f"{group}/{broker_id}"] = FakeBroker(f"{group}/{broker_id}", self.logs[group])
        self.nameserver.nodes.append(node_of(group, broker_id))
        self.world.node(f"{group}-{broker_id}", broker.serve)

    @property
    def master(self) -> FakeBroker:
        return self.brokers["a/0"]

    @property
    def log(self) -> Log:
        return self.logs["a"]

    @property
    def now(self) -> float:
        return self.world.loop.time()

    def kill(self, machine: str) -> None:
        self.world.nodes[machine].crash(Power.KILL)

    def restart(self, machine: str) -> None:
        self.world.nodes[machine].start()

    def forget(self, name: str) -> None:
        """The nameserver no longer knows this node."""
        self.nameserver.nodes = [node for node in self.nameserver.nodes if node.name != name]

    def play(self, story: Story) -> None:
        """Run a client's story; whatever it raises, raises here."""

        async def client(doors: BrokerDoors, _: asyncio.Event) -> None:
            async with AsyncClient(NAMESERVER, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
                await story(self, mq)

        failed: list[BaseException] = []

        async def guarded(doors: BrokerDoors, stop: asyncio.Event) -> None:
            try:
                await client(doors, stop)
            except Exception as error:  # noqa: BLE001  # handed to the test
                failed.append(error)

        async def whole() -> None:
            for node in self.world.nodes.values():
                node.start()
            await asyncio.sleep(0.1)
            runner = self.world.node("client", guarded)
            runner.start()
            async with asyncio.timeout(600):
                while runner.running:  # noqa: ASYNC110  # it cannot tell
                    await asyncio.sleep(0.1)

        try:
            self.world.run(whole())
        finally:
            self.world.close()
        if failed:
            raise failed[0]
        assert self.world.findings == [], self.world.findings


def play(story: Story, *, groups: tuple[str, ...] = ("a",), slaves: int = 1) -> None:
    """Run a client's story in a town of its own."""
    ClientTown(groups=groups, slaves=slaves).play(story)
