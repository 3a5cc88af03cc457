"""`python -m services.slave --config FILE`."""

import contextlib
from pathlib import Path

from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.settings import Loaded
from services.disk_watch import watch_disk
from services.process import lives, main
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave


def _run() -> int:
    """The process's status, when what its threads began on the disk has run to its end."""
    with contextlib.closing(ThreadWorkers()) as workers:

        def compose(loaded: Loaded[SlaveConfig]) -> Slave:
            storage = OsStorage(Path(loaded.value.node.data_dir))
            doors = BrokerDoors(GrpcTransport(), storage, OsClock(), os_chance(), workers)
            watch_disk("dittomq serve slave", loaded.value.store.disk_timeout_ms / 1000, storage.under_way, doors)
            return Slave(loaded, doors)

        return main("dittomq serve slave", SlaveConfig, compose)


if __name__ == "__main__":
    lives(_run)
