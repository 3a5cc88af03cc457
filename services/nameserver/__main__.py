"""`python -m services.nameserver --config FILE`."""

import os
import sys

from dittomq.rpc.polling import wait_with_fewer_threads

if __name__ == "__main__":
    wait_with_fewer_threads(os.environ)
    from dittomq.doors.chance import os_chance
    from dittomq.doors.clock import OsClock
    from dittomq.doors.transport import GrpcTransport
    from services.nameserver.config import NameserverConfig
    from services.nameserver.wiring import Nameserver
    from services.process import main

    sys.exit(
        main("dittomq serve nameserver", NameserverConfig, lambda loaded: Nameserver(loaded.value, GrpcTransport(), OsClock(), os_chance()))
    )
