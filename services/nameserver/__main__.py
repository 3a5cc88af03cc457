"""`python -m services.nameserver --config FILE`."""

import sys

from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.settings import Loaded
from services.nameserver.config import NameserverConfig
from services.nameserver.wiring import Nameserver
from services.process import main


def _compose(loaded: Loaded[NameserverConfig]) -> Nameserver:
    return Nameserver(loaded.value, GrpcTransport(), OsClock(), os_chance())


if __name__ == "__main__":
    sys.exit(main("dittomq serve nameserver", NameserverConfig, _compose))
