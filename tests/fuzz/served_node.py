"""A nameserver and a master without slaves, served by a thread of this process."""

import asyncio
import random
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import structlog

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.role import FIRST_START
from dittomq.client import Client
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.doors.memory import memory_bytes
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.metadata.rows import GroupConfig
from dittomq.rpc.health import Phase
from dittomq.settings import configured
from dittomq.testing.ports import choose_ports
from services import logs
from services.master.life import compose
from services.nameserver.config import NameserverConfig
from services.nameserver.wiring import Nameserver

CLUSTER = "local-5f2a"
"""What the examples of docs/rpc.md call it."""


class ServedNode:
    """`ports` maps the usual port of each service to the one here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        nameserver, broker = choose_ports(1, random.Random(), usual=False)  # a free port is no secret
        self.ports = {9876: nameserver.clients, 10911: broker.clients, 10912: broker.replication}
        self._is_ready = threading.Event()
        self._defects: list[Any] = []
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> None:
        """Return when topic "orders" and group "billing" are there."""
        self._thread.start()
        self._is_ready.wait(60)
        self.check()
        with Client(f"127.0.0.1:{self.ports[9876]}") as mq:
            mq.admin.create_topic("orders", 4)
            mq.admin.create_group(GroupConfig("billing"))
            with mq.producer(on_weak="return") as orders:
                for number in range(20):
                    orders.publish("orders", b"%d" % number, queue=3)

    def check(self) -> None:
        """AssertionError when it serves no more, or has logged an error."""
        assert self._thread.is_alive(), f"the servers ended: {self._problem!r}"
        assert not self._defects, f"they logged {self._defects}"

    def _record_defect(self, _: Any, level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if level == "error":
            self._defects.append(event)
        return event

    def _serve(self) -> None:
        logs.configure()
        processors = structlog.get_config()["processors"]
        structlog.configure(processors=[self._record_defect, *processors])
        try:
            asyncio.run(self._serve_both())
        except BaseException as raised:
            self._problem = raised
            raise

    async def _serve_both(self) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            names = [f"listen.clients=127.0.0.1:{self.ports[9876]}"]
            config = configured(NameserverConfig, "fuzzed", self._flags("nameserver", names), {})
            tasks.create_task(Nameserver(config.value, self._doors("nameserver")).run(stop), name="nameserver")
            addresses = [f"listen.clients=127.0.0.1:{self.ports[10911]}", f"listen.replication=127.0.0.1:{self.ports[10912]}"]
            addresses += [f"node.nameservers=127.0.0.1:{self.ports[9876]}", f"advertise.default=127.0.0.1:{self.ports[10911]}"]
            flags = self._flags("master", [*addresses, "node.broker=a", "node.broker_id=0"])
            loaded = configured(BrokerConfig, "fuzzed", flags, {})
            master = compose(loaded, self._doors("master"), start=FIRST_START, coordination=None)
            tasks.create_task(master.run(stop), name="master")
            while master.vitals.state[0] is not Phase.READY:  # noqa: ASYNC110  # it has no event for that
                await asyncio.sleep(0.1)
            self._is_ready.set()

    def _flags(self, name: str, settings: list[str]) -> list[str]:
        data = self._folder / name
        data.mkdir(parents=True)
        return [word for each in (f"node.cluster={CLUSTER}", f"node.data_dir={data}", *settings) for word in ("--set", each)]

    def _doors(self, name: str) -> BrokerDoors:
        storage = OsStorage(self._folder / name)
        return BrokerDoors(GrpcTransport(None, None), storage, OsClock(), os_chance(), ThreadWorkers(), memory_bytes())
