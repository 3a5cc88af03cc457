"""The lives of one broker process: what it is now, and what each change of its role makes of it.

Role is a process, not a flag: each life is composed anew, on a loop of its own, and begins when the one before has closed its store and
released the lock. What goes on is the process, with its id, its arguments, and the modules that it has imported.
"""

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import Final, NoReturn, Protocol, TypeVar, cast

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import BrokerService, ComeBack
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.memory import memory_bytes
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.errors import ConfigError
from dittomq.settings import Loaded
from services.disk_metrics import SyncMetrics
from services.disk_watch import disk_watched
from services.process import Node, hurry, main


class Life(Protocol):
    """One life of a process; the first is the one that first opens the store."""

    def __call__(self, *, is_first: bool) -> int:
        """The status to exit with; raises ComeBack."""
        ...


B = TypeVar("B", bound=BrokerConfig)

_IMPORTS_AFTER_S: Final = 20.0
_OF_A_STORE: Final = ("node.cluster", "node.broker", "node.broker_id", "node.data_dir", "store.segment_bytes")


def lives(service: BrokerService) -> NoReturn:
    """Live as `service`, and after each ComeBack as what that names; exit with the status of the last life.

    Every life runs the code that the process was started with: what is on the disk may be a newer version when the role changes.
    """
    hurry()
    importing = threading.Timer(_IMPORTS_AFTER_S, lambda: [life_as(each) for each in BrokerService])
    importing.daemon = True
    importing.start()
    is_first = True
    while True:
        try:
            sys.exit(life_as(service)(is_first=is_first))
        except ComeBack as back:
            service, is_first = back.service, is_first and not back.served


def life_as(service: BrokerService) -> Life:
    """One life as that service; found by name, because services meet on the wire and do not import each other.

    The first call imports the service's modules, some 0.1 s of work: it is made when a start is over, or before anybody waits for a change.
    """
    return cast("Life", importlib.import_module(f"services.{service}.life").life)


def import_life(service: BrokerService, _now: BrokerConfig) -> None:
    """Be ready for a life as that service, which reads no configuration anew."""
    life_as(service)


def check_life_as(service: BrokerService, now: BrokerConfig) -> None:
    """The same of a life that is to go on with what this one has, whose configuration is `now`.

    Raises ConfigError where its own, which it reads anew, does not let it begin, or is another node's or another store's.
    """
    found = cast("BrokerConfig", importlib.import_module(f"services.{service}.life").check())
    for key in _OF_A_STORE:
        before, after = (attrgetter(key)(config) for config in (now, found))
        if before != after:
            raise ConfigError(key, f"it is {after} there, and {before} in this process; put it back")


def live(program: str, config_class: type[B], compose: Callable[[Loaded[B], BrokerDoors], Node], *, is_first: bool) -> int:
    """One life on real doors: the status to exit with, when what its threads began on the disk has run to its end; or raises ComeBack."""
    with contextlib.ExitStack() as doors_open:

        def composed(loaded: Loaded[B]) -> Node:
            workers = ThreadWorkers()
            storage = OsStorage(Path(loaded.value.node.data_dir))
            doors = BrokerDoors(GrpcTransport(), storage, OsClock(), os_chance(), workers, memory_bytes())
            doors_open.enter_context(disk_watched(program, loaded.value.store.disk_timeout_ms / 1000, storage.under_way, doors))
            doors_open.callback(workers.close)
            node = compose(loaded, doors)
            storage.under_way.timed = SyncMetrics(loaded.value.node.data_dir, doors.clock, node.registry).timed
            return node

        return main(program, config_class, composed, is_first=is_first)
