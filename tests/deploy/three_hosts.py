"""Three hosts in network namespaces, set up with the files of deploy/hosts as docs/operations.md says, and a fourth for one slave more."""

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from configparser import ConfigParser
from functools import partial
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.errors import DittoError
from dittomq.security.certificate_files import CertificateFiles
from tests.support.etcd import etcd_program
from tests.support.go_tools import NotBuiltError, built
from tests.support.partitioned_network import PartedNetwork, network_for_test
from tests.support.tree import ROOT
from tests.support.waiting import PATIENCE_S, eventually

FILES = ROOT / "deploy" / "hosts"
HOSTS = ("host-1", "host-2", "host-3")
SPARE = "host-4"  # has a broker only
_ALL = (*HOSTS, SPARE)
SERVICES = ("etcd", "nameserver", "broker")
_PROGRAMS = {"/opt/dittomq": str(ROOT)}


def unit(service: str) -> ConfigParser:
    """The systemd unit of that service."""
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names of settings keep their case
    parser.read_string((FILES / f"dittomq-{service}.service").read_text(encoding="utf-8"))
    return parser


class ThreeHosts:
    """`folder` holds of each host what lies in /etc/dittomq and /var/lib/dittomq there."""

    def __init__(self, folder: Path, network: PartedNetwork) -> None:
        self._folder = folder
        self._network = network
        self._processes: dict[tuple[str, str], subprocess.Popen[bytes]] = {}
        self._code: dict[str, Path] = {}
        for host in _ALL:
            self._set_up(host)

    @property
    def nameservers(self) -> str:
        """As clients are told."""
        return ",".join(f"{address}:9876" for address in self._network.addresses[: len(HOSTS)])

    def data(self, host: str, service: str = "broker") -> Path:
        """Where that service keeps its data."""
        return self._folder / host / "var" / service

    def start(self, host: str, *services: str) -> None:
        """As systemd does."""
        for service in services or SERVICES:
            start = partial(self._started, host, service)
            self._processes[host, service] = self._network.inside(host, start)

    def stop(self, host: str, *services: str) -> None:
        """SIGTERM, and wait."""
        self._end(host, services, signal.SIGTERM)

    def lose(self, host: str) -> None:
        """The machine is gone: all of its processes are killed."""
        self._end(host, SERVICES, signal.SIGKILL)

    def end(self) -> None:
        """Kill what runs."""
        for host in _ALL:
            self.lose(host)

    def address(self, host: str) -> str:
        """Of that host."""
        return self._network.addresses[_ALL.index(host)]

    def change(self, host: str, file: str, old: str, new: str) -> None:
        """Edit a file of /etc/dittomq there."""
        path = self._folder / host / "etc" / file
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{file} of {host} has no {old!r}"
        path.write_text(text.replace(old, new), encoding="utf-8")

    @contextlib.contextmanager
    def as_they_were(self) -> Iterator[None]:
        """After the block the settings, the code of what is started, and what runs are those of before, whether it fails or not."""
        files = {path: path.read_bytes() for path in self._folder.glob("*/etc/*")}
        running = set(self._processes)
        try:
            yield
        finally:
            self._code.clear()
            changed = [path for path, content in files.items() if path.read_bytes() != content]
            if changed or set(self._processes) != running:
                for host in _ALL:
                    self.stop(host, "broker", "nameserver")
                for path in changed:
                    path.write_bytes(files[path])
                for host, service in running - set(self._processes):
                    self.start(host, service)

    def run_code_of(self, host: str, tree: Path) -> None:
        """What is started there from now on is the code in that tree."""
        self._code[host] = tree

    def etcdctl(self, host: str, *arguments: str) -> str:
        """What it prints there; Go builds it the first time. Skips the test where that cannot be."""
        try:
            program = built("etcdctl", "go.etcd.io/etcd/etcdctl/v3")
        except NotBuiltError as why:
            pytest.skip(str(why))
        command = [str(program), f"--endpoints={self.address(host)}:2379", *(self._here(host, each) for each in arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout

    def log(self, host: str, service: str = "broker") -> str:
        """All that the service has logged there."""
        return (self._folder / host / f"{service}.log").read_text(encoding="utf-8")

    def master(self, tls: CertificateFiles | None = None) -> str:
        """Wait until a node takes writes and all brokers that run are in sync; the host that it runs on."""
        running = sum(service == "broker" for _, service in self._processes)

        def led(mq: Client) -> str:
            for host in HOSTS:
                with contextlib.suppress(DittoError):
                    status = mq.admin.ha_status(f"{self.address(host)}:10911")
                    if status.writable and status.in_sync_now == len(status.members) == running:
                        return host
            return ""

        with Client(self.nameservers, tls=tls) as mq:
            return eventually(lambda: led(mq), f"a node takes writes with {running} replicas in sync", within_s=2 * PATIENCE_S)

    def _started(self, host: str, service: str) -> subprocess.Popen[bytes]:
        command, environment = self._command(host, service)
        environment |= {"PYTHONPATH": str(self._code.get(host, ROOT))}
        with (self._folder / host / f"{service}.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | environment)

    def _end(self, host: str, services: tuple[str, ...], number: int) -> None:
        ended = [(host, service) for service in services if (host, service) in self._processes]
        for each in ended:
            self._processes[each].send_signal(number)
        for each in ended:
            with self._processes.pop(each) as process:
                try:
                    process.wait(PATIENCE_S)
                finally:
                    process.kill()  # nothing to one that has ended

    def _command(self, host: str, service: str) -> tuple[list[str], dict[str, str]]:
        """What the unit says, where this host has it."""
        section = unit(service)["Service"]
        environment: dict[str, str] = {}
        if file := section.get("EnvironmentFile"):
            lines = Path(self._here(host, file)).read_text(encoding="utf-8").splitlines()
            environment = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        return [self._here(host, word) for word in shlex.split(section["ExecStart"])], environment

    def _set_up(self, host: str) -> None:
        """Copy the files, and change what their first lines say."""
        etc, number = self._folder / host / "etc", _ALL.index(host)
        etc.mkdir(parents=True)
        for file in ("etcd.env", "nameserver.toml", "broker.toml"):
            lines = (FILES / file).read_text(encoding="utf-8").splitlines()
            (etc / file).write_text("\n".join(self._here(host, _of_host(line, host, number)) for line in lines) + "\n", encoding="utf-8")
        for service in SERVICES:
            self.data(host, service).mkdir(parents=True, mode=0o700)

    def _here(self, host: str, text: str) -> str:
        names = dict(zip(_ALL, self._network.addresses, strict=True))
        paths = {"/etc/dittomq": str(self._folder / host / "etc"), "/var/lib/dittomq": str(self._folder / host / "var")}
        for there, here in (paths | _PROGRAMS | {"/usr/local/bin/etcd": str(etcd_program())}).items():
            text = text.replace(there, here)
        for name, address in names.items():
            text = text.replace(f"{name}:", f"{address}:")
        return text


def _of_host(line: str, host: str, number: int) -> str:
    """Of lines that differ from host to host, that of `host`; the files are those of host-1."""
    if line.startswith("broker_id = 0"):
        return f"broker_id = {number}"
    is_own = line.startswith(("default = ", "ETCD_NAME", "ETCD_ADVERTISE", "ETCD_INITIAL_ADVERTISE"))
    return line.replace("host-1", host) if is_own else line


@contextlib.contextmanager
def three_hosts(folder: Path) -> Iterator[ThreeHosts]:
    """All services of all hosts run, until the block ends. Skips the test where there can be none."""
    etcd_program()
    with network_for_test(_ALL) as network:
        hosts = ThreeHosts(folder, network)
        try:
            for host in HOSTS:
                hosts.start(host)
            yield hosts
        finally:
            hosts.end()
