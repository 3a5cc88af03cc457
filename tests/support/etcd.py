"""A real etcd on loopback, of one or three members that a test kills and starts again."""

import contextlib
import functools
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.testing.ports import Ports, choose_ports, give_back
from tests.support.go_tools import NotBuiltError, built
from tests.support.waiting import PATIENCE_S

_PACKAGE = "go.etcd.io/etcd/server/v3"


@functools.cache
def etcd_program() -> Path:
    """It, built the first time, which takes minutes; where that cannot be, the test is skipped, and the reason says why."""
    try:
        return built("etcd", _PACKAGE)
    except NotBuiltError as why:
        pytest.skip(str(why))


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What members show their clients, and whose certificates they take; files in PEM."""

    certificate: Path
    key: Path
    ca: Path


class Etcd:
    """An etcd of some members. `endpoints`: "host:port" of each."""

    def __init__(self, folder: Path, ports: Sequence[Ports], tls: ServerTls | None = None) -> None:
        self._folder = folder
        self._ports = ports
        self._tls = tls
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.endpoints = tuple(f"127.0.0.1:{each.clients}" for each in ports)

    def start(self, *members: int) -> None:
        """Start these members, or all that do not run; they answer a little later."""
        for member in members or range(len(self._ports)):
            if member not in self._processes:
                log = (self._folder / f"etcd-{member}.log").open("ab")
                with log:
                    self._processes[member] = subprocess.Popen(self._command(member), stdout=log, stderr=log)

    def kill(self, *members: int) -> None:
        """SIGKILL to these members, or to all."""
        for member in members or tuple(self._processes):
            process = self._processes.pop(member)
            process.kill()
            process.wait(PATIENCE_S)

    def freeze(self, member: int) -> None:
        """SIGSTOP: its connections stay open and it says nothing."""
        self._processes[member].send_signal(signal.SIGSTOP)

    def thaw(self, member: int) -> None:
        """It goes on."""
        self._processes[member].send_signal(signal.SIGCONT)

    def _command(self, member: int) -> list[str]:
        peers = [f"http://127.0.0.1:{each.replication}" for each in self._ports]
        clients = f"{'http' if self._tls is None else 'https'}://{self.endpoints[member]}"
        settings = {
            "name": f"m{member}",
            "data-dir": self._folder / f"member-{member}",
            "listen-client-urls": clients,
            "advertise-client-urls": clients,
            "listen-peer-urls": peers[member],
            "initial-advertise-peer-urls": peers[member],
            "initial-cluster": ",".join(f"m{number}={peer}" for number, peer in enumerate(peers)),
            "initial-cluster-token": str(self._folder),
            "log-level": "error",
        }
        if self._tls is not None:
            settings |= {"cert-file": self._tls.certificate, "key-file": self._tls.key, "trusted-ca-file": self._tls.ca}
            settings |= {"client-cert-auth": "true"}
        return [str(etcd_program()), *(f"--{name}={value}" for name, value in settings.items())]


@contextlib.contextmanager
def etcd_members(folder: Path, number: int, tls: ServerTls | None = None) -> Iterator[Etcd]:
    """A new etcd of so many members, which runs while the block does. Skips the test where there is no etcd."""
    etcd_program()
    folder.mkdir(exist_ok=True)
    unused, *ports = choose_ports(number, random.SystemRandom(), usual=False)
    etcd = Etcd(folder, ports, tls)
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.kill()
        for each in (unused, *ports):
            give_back(each)
