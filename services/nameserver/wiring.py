"""The nameserver, put together in the order in which it starts."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry, Gauge

from dittomq.broker.doors import BrokerDoors
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.headers import Answerer
from dittomq.rpc.health import Health, Phase
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, RpcServer, bind
from services.metrics import CallMetrics
from services.nameserver.config import NameserverConfig
from services.nameserver.group_records import GroupRecords
from services.nameserver.group_records_file import opened
from services.nameserver.key_values import KeyValues
from services.nameserver.key_values_file import load
from services.nameserver.service import NameServer
from services.nameserver.servicers import coordination_service, name_server_service

_GRACE_S: Final = 2.0

_Duty = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


class Nameserver:
    """One nameserver on the doors it is given."""

    def __init__(self, config: NameserverConfig, doors: BrokerDoors) -> None:
        self.vitals = Health()
        self.registry = CollectorRegistry()
        self._config = config
        self._doors = doors
        calls = CallMetrics(self.registry)
        here = Answerer("nameserver", config.node.cluster, 0)
        self._interceptor = CallInterceptor(lambda: here, doors.clock, doors.chance, calls, gate=doors.gate)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set; calls that run then get 2 s.

        Raises StoreLocked, StoreOpenFailed, PortInUse, and StorageFailure when a sync of its disk fails.
        """
        doors, config = self._doors, self._config
        lane = doors.workers.lane("group_records")
        with contextlib.ExitStack() as disk:
            found = await lane.call(lambda: disk.enter_context(opened(doors.storage, config.node.data_dir)))
            records = GroupRecords(config.node.cluster, found, doors.storage, lane, chance=doors.chance)
            kept = await lane.call(lambda: load(doors.storage, config.node.data_dir))
            values = KeyValues(kept, doors.storage, lane)
            names = NameServer(config, doors.clock, doors.chance, values)
            self._measure(names, records, values)
            listen = Listen("listen.clients", config.listen.clients, config.tls.clients_show_certificate)
            services = [name_server_service(names, values, AdmissionControl(doors.memory_bytes)), coordination_service(records)]
            server = await bind(doors.transport, listen, services, [self._interceptor], vitals=self.vitals)
            await server.start()
            await self.vitals.become(Phase.READY)
            log.info("nameserver_started", cluster=config.node.cluster, port=server.port, group_records=records.groups)
            ends = [records.end_watches, names.watches.end]
            await self._serve(server, [names.expire_forever, records.run, values.watch_disk], ends, stop)
        log.info("nameserver_stopped")

    async def _serve(self, server: RpcServer, runs: Sequence[_Duty], ends: Sequence[Callable[[], None]], stop: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                duties = [tasks.create_task(run(), name=run.__qualname__) for run in runs]
                await stop.wait()
                for end_watches in ends:
                    end_watches()
                await self._drain(server, _GRACE_S)  # who is answered last still waits for the disk
                for duty in duties:
                    duty.cancel()
        finally:
            await self._drain(server, 0)

    async def _drain(self, server: RpcServer, grace_s: float) -> None:
        await self.vitals.become(Phase.DRAINING, "draining")
        await server.stop(grace_s)

    def _measure(self, names: NameServer, records: GroupRecords, values: KeyValues) -> None:
        Gauge("dittomq_nameserver_nodes", "Nodes registered now.", registry=self.registry).set_function(lambda: names.nodes)
        groups = Gauge("dittomq_nameserver_group_records", "Groups whose record it keeps.", registry=self.registry)
        groups.set_function(lambda: records.groups)
        kept = Gauge("dittomq_nameserver_key_values", "Values that it keeps by namespace and key.", registry=self.registry)
        kept.set_function(lambda: values.values)


async def serve(config: NameserverConfig, doors: BrokerDoors, stop: asyncio.Event) -> None:
    """Run a nameserver until `stop` is set."""
    await Nameserver(config, doors).run(stop)
