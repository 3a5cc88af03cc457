"""The nameserver, put together in the order in which it starts."""

import asyncio
import random
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from dittomq.doors.clock import Clock
from dittomq.doors.transport import Transport
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, bind
from dittomq.rpc.vitals import Phase, Vitals
from services.metrics import CallMetrics
from services.nameserver.config import NameserverConfig
from services.nameserver.names import Names
from services.nameserver.servicers import name_server_service

_GRACE_S: Final = 2.0

log = structlog.get_logger()


class Nameserver:
    """One nameserver on the doors it is given."""

    def __init__(self, config: NameserverConfig, transport: Transport, clock: Clock, chance: random.Random) -> None:
        self.vitals = Vitals()
        self.registry = CollectorRegistry()
        self._config = config
        self._transport = transport
        self._names = Names(config, clock, chance)
        calls = CallMetrics(self.registry)
        self._interceptor = CallInterceptor(lambda: Answerer("nameserver", config.node.cluster, 0), clock, chance, calls)
        Gauge("dittomq_nameserver_nodes", "Nodes registered now.", registry=self.registry).set_function(lambda: self._names.nodes)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; calls that run then get 2 s. Raises PortInUse."""
        listen = Listen("listen.clients", self._config.listen.clients)
        server = await bind(self._transport, listen, [name_server_service(self._names)], [self._interceptor], self.vitals)
        await server.start()
        await self.vitals.become(Phase.READY)
        log.info("nameserver_started", cluster=self._config.node.cluster, port=server.port)
        try:
            async with asyncio.TaskGroup() as tasks:
                expiry = tasks.create_task(self._names.expire_forever(), name="expiry")
                await stop.wait()
                expiry.cancel()
        finally:
            await self.vitals.become(Phase.DRAINING, "draining")
            await server.stop(_GRACE_S)
        log.info("nameserver_stopped")


async def serve(config: NameserverConfig, transport: Transport, clock: Clock, chance: random.Random, stop: asyncio.Event) -> None:
    """Run a nameserver until `stop` is set."""
    await Nameserver(config, transport, clock, chance).run(stop)
