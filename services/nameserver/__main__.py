"""`python -m services.nameserver --config FILE`."""

import os
import sys

from dittomq.rpc.polling import wait_with_fewer_threads

if __name__ == "__main__":
    wait_with_fewer_threads(os.environ)
    import contextlib
    from pathlib import Path

    from dittomq.broker.doors import BrokerDoors
    from dittomq.commitlog.disk.storage import OsStorage
    from dittomq.doors.chance import os_chance
    from dittomq.doors.clock import OsClock
    from dittomq.doors.memory import memory_bytes
    from dittomq.doors.workers import ThreadWorkers
    from dittomq.settings import Loaded
    from services.access import access_gate
    from services.encryption import encrypted_transport
    from services.nameserver.config import NameserverConfig
    from services.nameserver.wiring import Nameserver
    from services.process import main

    workers = ThreadWorkers()
    doors_open = contextlib.ExitStack()

    def composed(loaded: Loaded[NameserverConfig]) -> Nameserver:
        """It, on real doors."""
        storage = OsStorage(Path(loaded.value.node.data_dir))
        transport = doors_open.enter_context(encrypted_transport(loaded.value.tls, loaded.value.access.own_token_file))
        listens = (loaded.value.listen.clients,)
        gate = access_gate(loaded.value.access, listens, clock=OsClock(), workers=workers, chance=os_chance())
        doors = BrokerDoors(*(transport, storage, OsClock(), os_chance(), workers, memory_bytes()), gate=doors_open.enter_context(gate))
        return Nameserver(loaded.value, doors)

    with doors_open:
        status = main("dittomq serve nameserver", NameserverConfig, composed)
    workers.close()
    sys.exit(status)
