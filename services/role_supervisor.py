"""One broker process: what it serves as now, and what each change of its role makes of it.

Each service is composed for itself, on a loop of its own, and begins when the one before has closed its store and released the lock.
What goes on is the process, with its id, its configuration, and the modules that it has imported.
"""

import asyncio
import contextlib
import functools
import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NoReturn, Protocol, TypeVar, cast

from dittomq.broker.config import BrokerConfig, TracesTable
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import FIRST_START, BrokerService, RoleChanged, RoleStart
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.coordination.made import make_coordination
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.coordination import CoordinationStore
from dittomq.doors.memory import memory_bytes
from dittomq.doors.traces import Traces
from dittomq.doors.workers import ThreadWorkers
from dittomq.settings import Loaded, configured
from services.access import access_gate
from services.disk_metrics import SyncMetrics
from services.disk_watchdog import disk_watched
from services.encryption import encrypted_transport
from services.process import RunnableService, hurry, run
from services.traces import exported_traces

_IMPORTS_AFTER_S: Final = 3.0

B = TypeVar("B", bound=BrokerConfig)


class ServiceModule(Protocol):
    """`services.master.life` or `services.slave.life`."""

    config_class: type[BrokerConfig]

    def compose(
        self, loaded: Loaded[BrokerConfig], doors: BrokerDoors, *, start: RoleStart, coordination: CoordinationStore | None
    ) -> RunnableService:
        """The service on these doors, ready to run."""
        ...


def lives(named: BrokerService | None) -> NoReturn:
    """Serve as `named`, and after each RoleChanged as what it says; exit with the status of the last service.

    None: it begins as `first_service` of its configuration says. Every service runs the code and the configuration that the process was
    started with: what lies on the disk may be newer when the role changes.
    """
    hurry()
    importing = threading.Timer(_IMPORTS_AFTER_S, lambda: [service_module(each) for each in BrokerService])
    importing.daemon = True
    importing.start()
    program = f"dittomq serve {named or 'broker'}"
    loaded: Loaded[BrokerConfig] | None = None

    def load() -> Loaded[BrokerConfig]:
        nonlocal loaded
        if loaded is None:
            environment = os.environ  # a composition root
            config_class = StartConfig if named is None else service_module(named).config_class
            loaded = cast("Loaded[BrokerConfig]", configured(config_class, program, sys.argv[1:], environment))
        return loaded

    service, start, asked_to_end = named, FIRST_START, asyncio.Event()
    with contextlib.ExitStack() as process:
        # Made once for all that the process serves as: a collector that does not answer must not be waited for when the role changes.
        traces = functools.cache(lambda settings, node: process.enter_context(exported_traces(settings, node, os.environ)))
        while True:
            try:
                sys.exit(_serve(program, load, traces, asked_to_end, service=service, start=start))
            except RoleChanged as changed:
                service, start = changed.service, changed.start


def first_service(config: BrokerConfig) -> BrokerService:
    """What a process begins as that is told to be no service: with a group record it follows first, and without one node 0 leads."""
    follows = config.replication.replicas_expected or config.node.broker_id
    return BrokerService.SLAVE if follows else BrokerService.MASTER


@dataclass(frozen=True, slots=True)
class StartConfig(BrokerConfig):
    """What `dittomq serve broker` is told; the rules are those of the service that it begins as."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        return service_module(first_service(self)).config_class.problems(self)


def service_module(service: BrokerService) -> ServiceModule:
    """Found by name, because services meet on the wire and do not import each other.

    The first call imports the service's modules, some 0.1 s of work: it is made when a start is over, or before a role changes.
    """
    return cast("ServiceModule", importlib.import_module(f"services.{service}.life"))


def configured_as(loaded: Loaded[BrokerConfig], config_class: type[B]) -> Loaded[B]:
    """The same configuration as another service reads it."""
    tables = {table.name: getattr(loaded.value, table.name) for table in fields(BrokerConfig)}
    return Loaded(config_class(**tables), loaded.origins)


TracesMaker = Callable[[TracesTable, str], Traces | None]


def _serve(  # as what
    program: str,
    load: "_ConfigLoader",
    traces: TracesMaker,
    asked_to_end: asyncio.Event,
    *,
    service: BrokerService | None,
    start: RoleStart,
) -> int:
    """Serve on real doors, None as `first_service`: the status to exit with, when what its threads began on the disk has run to its end.

    Or raises RoleChanged.
    """
    with contextlib.ExitStack() as doors_open:

        def composed(loaded: Loaded[BrokerConfig]) -> RunnableService:
            config = loaded.value
            workers = ThreadWorkers()
            storage = OsStorage(Path(config.node.data_dir))
            transport = doors_open.enter_context(encrypted_transport(config.tls, config.access.own_token_file))
            listens = (config.listen.clients, config.listen.replication)
            gate = access_gate(config.access, listens, clock=OsClock(), workers=workers, chance=os_chance())
            doors = BrokerDoors(
                *(transport, storage, OsClock(), os_chance(), workers, memory_bytes()),
                gate=doors_open.enter_context(gate),
                traces=traces(config.traces, config.name),
            )
            doors_open.enter_context(disk_watched(program, config.store.disk_timeout_ms / 1000, storage.under_way, doors))
            doors_open.callback(workers.close)
            coordination = make_coordination(
                config.coordination,
                config.coordination_endpoints,
                transport=doors.transport,
                clock=doors.clock,
                workers=workers,
                environment=os.environ,  # a composition root
            )
            node = service_module(service or first_service(config)).compose(loaded, doors, start=start, coordination=coordination)
            storage.under_way.timed = SyncMetrics(config.node.data_dir, doors.clock, node.registry).timed
            return node

        return run(program, load, composed, asked_to_end=asked_to_end)


class _ConfigLoader(Protocol):
    def __call__(self) -> Loaded[BrokerConfig]: ...
