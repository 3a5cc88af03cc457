"""The nameserver, put together in the order in which it starts."""

import asyncio
import contextlib
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from dittomq.broker.doors import BrokerDoors
from dittomq.rpc.call_room import CallRoom
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, RpcServer, bind
from dittomq.rpc.vitals import Phase, Vitals
from services.metrics import CallMetrics
from services.nameserver.config import NameserverConfig
from services.nameserver.keeping import Keeper
from services.nameserver.names import Names
from services.nameserver.openings import Openings
from services.nameserver.openings_file import opened
from services.nameserver.servicers import name_server_service

_GRACE_S: Final = 2.0

log = structlog.get_logger()


class Nameserver:
    """One nameserver on the doors it is given."""

    def __init__(self, config: NameserverConfig, doors: BrokerDoors) -> None:
        self.vitals = Vitals()
        self.registry = CollectorRegistry()
        self._config = config
        self._doors = doors
        calls = CallMetrics(self.registry)
        self._interceptor = CallInterceptor(lambda: Answerer("nameserver", config.node.cluster, 0), doors.clock, doors.chance, calls)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; calls that run then get 2 s.

        Raises StoreLocked, UnreadableStore, PortInUse, and StoreFailed when a sync of its disk fails.
        """
        doors, config = self._doors, self._config
        lane = doors.workers.lane("openings")
        with contextlib.ExitStack() as disk:
            found = await lane.call(lambda: disk.enter_context(opened(doors.storage, config.node.data_dir)))
            openings = Openings(found)
            keeper = Keeper(openings, doors.storage, lane, doors.clock)
            names = Names(config, doors.clock, doors.chance, openings, keeper)
            self._measure(names, openings)
            listen = Listen("listen.clients", config.listen.clients)
            service = name_server_service(names, CallRoom(doors.memory_bytes))
            server = await bind(doors.transport, listen, [service], [self._interceptor], self.vitals)
            await server.start()
            await self.vitals.become(Phase.READY)
            log.info("nameserver_started", cluster=config.node.cluster, port=server.port, epochs=len(found))
            await self._serve(server, names, keeper, stop)
        log.info("nameserver_stopped")

    async def _serve(self, server: RpcServer, names: Names, keeper: Keeper, stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [tasks.create_task(names.expire_forever(), name="expiry"), tasks.create_task(keeper.run(), name="keeper")]
                await stop.wait()
                await self._drain(server, _GRACE_S)  # who is answered last still waits for the keeper
                for duty in duties:
                    duty.cancel()
        finally:
            await self._drain(server, 0)

    async def _drain(self, server: RpcServer, grace_s: float) -> None:
        await self.vitals.become(Phase.DRAINING, "draining")
        await server.stop(grace_s)

    def _measure(self, names: Names, openings: Openings) -> None:
        Gauge("dittomq_nameserver_nodes", "Nodes registered now.", registry=self.registry).set_function(lambda: names.nodes)
        unkept = Gauge("dittomq_nameserver_epochs_not_kept", "Groups whose newest epoch is not on its disk.", registry=self.registry)
        unkept.set_function(lambda: openings.unkept)


async def serve(config: NameserverConfig, doors: BrokerDoors, stop: asyncio.Event) -> None:
    """Run a nameserver until `stop` is set."""
    await Nameserver(config, doors).run(stop)
