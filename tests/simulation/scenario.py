"""Nameservers, brokers that do nothing but register, and a client, in one simulated world."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from dittomq.broker.doors import BrokerDoors
from dittomq.errors import DittoError
from dittomq.naming.registrar import Registrar, RouteUpdate
from dittomq.naming.route_cache import RouteCache
from dittomq.routes import Registration
from dittomq.rpc.channel import Channels
from services.nameserver.config import NameserverConfig
from services.nameserver.wiring import serve
from tests.simulation.simulated_process import Life
from tests.simulation.transport import SimulatedTransport
from tests.simulation.world import Power, World

CONFIG = NameserverConfig()


class Broker:
    """A process that does nothing but register."""

    def __init__(self, world: World, registration: Registration, nameservers: list[str]) -> None:
        self.registration = registration
        self.nameservers = nameservers
        self.news: list[RouteUpdate] = []
        self.failure: BaseException | None = None
        self.node = world.node(registration.addresses["default"].partition(":")[0], self._serve)

    @property
    def last(self) -> RouteUpdate:
        return self.news[-1]

    async def _serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        async with Channels(doors.transport) as channels:
            self.registrar = Registrar(self.nameservers, lambda: self.registration, self.news.append, channels, doors.clock, doors.chance)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._run())
                await stop.wait()
                await self.registrar.goodbye()

    async def _run(self) -> None:
        try:
            await self.registrar.run()
        except* DittoError as failed:
            self.failure = failed.exceptions[0]


class Town:
    """Nameservers n0, n1, … and whoever registers there."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.nameservers: list[str] = []
        self.client = Life("client")
        world.network.machine("client")
        transport = SimulatedTransport(world.network, self.client, lambda where, error: world.unexpected("client", where, error))
        self.channels = Channels(transport)

    def nameserver(self, config: NameserverConfig = CONFIG) -> str:
        name = f"n{len(self.nameservers)}"
        self.world.node(name, lambda doors, stop: serve(config, doors, stop)).start()
        self.nameservers.append(f"{name}:9876")
        return name

    def restart_nameserver(self, name: str, config: NameserverConfig) -> None:
        """It was killed, and comes back with another configuration."""
        node = self.world.nodes[name]
        node.crash(Power.KILL)
        node.serve = lambda doors, stop: serve(config, doors, stop)
        node.start()

    def broker(self, registration: Registration) -> Broker:
        broker = Broker(self.world, registration, list(self.nameservers))
        broker.node.start()
        return broker

    def routes(self, nameservers: list[str] | None = None) -> RouteCache:
        return RouteCache(nameservers or self.nameservers, self.channels, self.world.nodes["n0"].clock)


def play(world: World, story: Callable[[Town], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        town = Town(world)
        try:
            await story(town)
        finally:
            await town.channels.close()

    world.run(told())
