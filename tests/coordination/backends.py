"""Every kind of coordination store, as the contract test uses it: doors to it, and what can happen to it."""

import contextlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from dittomq.coordination.made import make_coordination
from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from dittomq.doors.clock import OsClock
from dittomq.doors.coordination import CoordinationStore
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.security.tls import Certificates
from dittomq.testing.ports import choose_ports
from tests.support.etcd import Etcd, etcd_members
from tests.support.kubernetes_api import kubernetes_api
from tests.support.memory_coordination import Fate, MemoryCoordination
from tests.support.proxy import Proxy, Way
from tests.support.tree import ROOT
from tests.support.waiting import PATIENCE_S

CLUSTER = "test"


class Backend(Protocol):
    """One store that runs. It may be down when a test begins to use a door; then the door says so."""

    def door(self) -> CoordinationStore:
        """A new door, as another node has it."""
        ...

    def kill(self) -> None:
        """Nothing of it runs any more, or it is as if so."""
        ...

    def start(self) -> None:
        """It runs again, with what it had kept; it may answer a little later."""
        ...

    def loses_answers(self) -> AbstractContextManager[None]:
        """During the block requests of new doors arrive, and their answers do not."""
        ...

    def loses_requests(self) -> AbstractContextManager[None]:
        """During the block what doors send on a connection that is open does not arrive, and never will."""
        ...


class MemoryBackend:
    """In this process."""

    def __init__(self) -> None:
        self.store = MemoryCoordination()
        self._doors = 0

    def door(self) -> CoordinationStore:
        self._doors += 1
        return self.store.through(f"node {self._doors}")

    def kill(self) -> None:
        self.store.restart()
        self.store.is_down = True

    def start(self) -> None:
        self.store.is_down = False

    @contextlib.contextmanager
    def loses_answers(self) -> Iterator[None]:
        self.store.fates.append(Fate.UNANSWERED)
        yield

    @contextlib.contextmanager
    def loses_requests(self) -> Iterator[None]:
        self.store.fates.append(Fate.LOST)
        yield


class ProcessBackend:
    """A store of one process, behind a proxy."""

    def __init__(self, settings: CoordinationTable, proxy: Proxy, kill: Callable[[], None], start: Callable[[], None]) -> None:
        self._settings = settings
        self._proxy = proxy
        self.kill = kill
        self.start = start

    def door(self) -> CoordinationStore:
        return door_of(self._settings, self._proxy.address)

    @contextlib.contextmanager
    def loses_answers(self) -> Iterator[None]:
        self._proxy.swallow(Way.BACK)
        yield
        self._proxy.heal()

    @contextlib.contextmanager
    def loses_requests(self) -> Iterator[None]:
        self._proxy.swallow(Way.THERE)
        yield
        self._proxy.heal()


def door_of(settings: CoordinationTable, *endpoints: str, shown: Certificates | None = None) -> CoordinationStore:
    """A new door to these endpoints, of a node with these certificates."""
    made = make_coordination(settings, endpoints, transport=GrpcTransport(shown), clock=OsClock(), workers=ThreadWorkers(), environment={})
    assert made is not None
    return made


class NameserverProcess:
    """A nameserver that can be killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        [ports] = choose_ports(0, random.SystemRandom(), usual=False)
        self.data_dir = data_dir
        self.address = f"127.0.0.1:{ports.clients}"
        self._ops = f"127.0.0.1:{ports.ops}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        settings = {"node.cluster": CLUSTER, "node.data_dir": self.data_dir, "listen.clients": self.address, "listen.ops": self._ops}
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with (self.data_dir.parent / "nameserver.log").open("ab") as log:
            self._process = subprocess.Popen([sys.executable, "-m", "services.nameserver", *flags], cwd=ROOT, stdout=log, stderr=log)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)
        self._process = None

    def terminate(self) -> None:
        """SIGTERM: it stops in order."""
        assert self._process is not None
        self._process.terminate()

    @contextlib.contextmanager
    def running(self) -> Iterator["NameserverProcess"]:
        """It runs while the block does, unless it is killed."""
        self.start()
        try:
            yield self
        finally:
            if self._process is not None:
                self.kill()


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def memory(folder: Path) -> Iterator[Backend]:
    yield MemoryBackend()


@contextlib.contextmanager
def nameserver(folder: Path) -> Iterator[Backend]:
    process = NameserverProcess(folder / "data")
    with process.running(), Proxy(lambda: _place(process.address)).running() as proxy:
        yield ProcessBackend(CoordinationTable(), proxy, process.kill, process.start)


@contextlib.contextmanager
def etcd(folder: Path) -> Iterator[Backend]:
    with etcd_members(folder, 1) as members, Proxy(lambda: _place(members.endpoints[0])).running() as proxy:
        yield ProcessBackend(ETCD, proxy, members.kill, members.start)


@contextlib.contextmanager
def kubernetes(folder: Path) -> Iterator[Backend]:
    with kubernetes_api(folder) as api, Proxy(lambda: _place(api.address)).running() as proxy:
        yield ProcessBackend(api.settings, proxy, api.kill, api.start)


ETCD = CoordinationTable(backend=CoordinationBackend.ETCD)
BACKENDS: dict[str, Callable[[Path], AbstractContextManager[Backend]]] = {
    "memory": memory,
    "nameserver": nameserver,
    "etcd": etcd,
    "kubernetes": kubernetes,
}
__all__ = ["BACKENDS", "CLUSTER", "ETCD", "Backend", "Etcd", "NameserverProcess", "door_of"]
