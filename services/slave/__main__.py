"""`python -m services.slave --config FILE`."""

import sys
from pathlib import Path

from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.storage import OsStorage
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.settings import Loaded
from services.process import main
from services.slave.config import SlaveConfig
from services.slave.wiring import Slave


def _compose(loaded: Loaded[SlaveConfig]) -> Slave:
    storage = OsStorage(Path(loaded.value.node.data_dir))
    return Slave(loaded, BrokerDoors(GrpcTransport(), storage, OsClock(), os_chance(), ThreadWorkers()))


if __name__ == "__main__":
    sys.exit(main("dittomq serve slave", SlaveConfig, _compose))
