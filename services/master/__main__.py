"""`python -m services.master --config FILE`."""

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
from services.master.config import MasterConfig
from services.master.wiring import Master
from services.process import lives, main


def _run() -> int:
    """The process's status, when what its threads began on the disk has run to its end."""
    with contextlib.closing(ThreadWorkers()) as workers:

        def compose(loaded: Loaded[MasterConfig]) -> Master:
            storage = OsStorage(Path(loaded.value.node.data_dir))
            doors = BrokerDoors(GrpcTransport(), storage, OsClock(), os_chance(), workers)
            watch_disk("dittomq serve master", loaded.value.store.disk_timeout_ms / 1000, storage.under_way, doors)
            return Master(loaded, doors)

        return main("dittomq serve master", MasterConfig, compose)


if __name__ == "__main__":
    lives(_run)
