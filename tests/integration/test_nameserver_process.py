"""`python -m services.nameserver` as a real process."""

import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.naming.route_cache import RouteCache
from dittomq.rpc.channel import Channels, call
from dittomq.testing.ports import choose_ports
from dittomq.wire import naming as wire
from tests.support.naming import master
from tests.support.tree import ROOT
from tests.support.unread_pages import refused_when_unread
from tests.support.virtual_time import played_by
from tests.support.waiting import PATIENCE_S


@dataclass
class Running:
    process: subprocess.Popen[str]
    clients: str
    ops: str

    def page(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection(self.ops, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def logged(self, event: str) -> dict[str, Any]:
        """The next log line of that event."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            entry: dict[str, Any] = json.loads(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the process ended without logging {event}")


def free_addresses() -> tuple[str, str]:
    """For clients and for ops; of ports that no outgoing connection takes meanwhile."""
    [ports] = choose_ports(0, random.SystemRandom(), usual=False)
    return f"127.0.0.1:{ports.clients}", f"127.0.0.1:{ports.ops}"


def command(*flags: str) -> list[str]:
    return [sys.executable, "-m", "services.nameserver", *flags]


def at(data_dir: Path, clients: str, ops: str) -> list[str]:
    settings = {"node.data_dir": data_dir, "listen.clients": clients, "listen.ops": ops}
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def start(data_dir: Path, *flags: str) -> Running:
    clients, ops = free_addresses()
    arguments = command(*at(data_dir, clients, ops), *flags)
    process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    running = Running(process, clients, ops)
    running.logged("nameserver_started")
    return running


@contextlib.contextmanager
def serving(data_dir: Path, *flags: str) -> Iterator[Running]:
    running = start(data_dir, *flags)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.fixture(scope="module")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("nameserver")) as running:
        yield running


def told(story: Callable[[Channels], Awaitable[None]]) -> None:
    async def tell() -> None:
        async with Channels(GrpcTransport()) as channels:
            await story(channels)

    asyncio.run(tell())


def refused(*flags: str, **environment: str) -> tuple[int, str]:
    ended = subprocess.run(
        command(*flags), cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stderr.splitlines()[-1]


def test_a_data_dir_that_another_nameserver_holds_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with serving(tmp_path):
        status, sentence = refused(*at(tmp_path, *free_addresses()))

    assert status == 1
    assert sentence == f"dittomq serve nameserver: the store {tmp_path} is held by another process; stop it or use another data_dir"


def test_a_data_dir_that_cannot_be_made_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    status, sentence = refused(*at(tmp_path / "file" / "data", *free_addresses()))

    assert status == 1
    assert sentence.startswith(f"dittomq serve nameserver: the store {tmp_path}/file/data cannot be opened: ")
    assert sentence.endswith("let this user read and write there, or set another node.data_dir")


def test_damaged_group_records_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "dittomq").mkdir()
    (tmp_path / "dittomq" / "groups").write_bytes(b"DTMQ")

    status, sentence = refused(*at(tmp_path, *free_addresses()))

    assert status == 1
    assert "dittomq/groups is damaged: it has 4 bytes; restore nothing older" in sentence


def test_a_process_may_open_as_many_files_as_its_hard_limit_allows(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))  # inherited
    try:
        with serving(tmp_path) as running:
            limits = resource.prlimit(running.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert limits == (hard, hard)


@pytest.mark.parametrize("path", ["/startupz", "/readyz", "/livez"])
def test_probes_are_well_on_the_ops_port(nameserver: Running, path: str) -> None:
    assert nameserver.page(path) == (200, "ok\n")


@played_by(told)
async def test_metrics_count_calls_and_nodes(channels: Channels, /, nameserver: Running) -> None:
    await RouteCache([nameserver.clients], channels, OsClock()).brokers()

    status, text = nameserver.page("/metrics")
    assert status == 200
    assert 'dittomq_rpc_calls_total{code="OK",method="ditto.naming.v1.NameServerService/ListBrokers"}' in text
    assert "dittomq_nameserver_nodes 0.0" in text


def test_another_page_of_the_ops_port_is_not_found(nameserver: Running) -> None:
    assert nameserver.page("/etc/passwd")[0] == 404


def test_an_ops_port_in_use_is_refused_in_one_sentence(nameserver: Running, tmp_path: Path) -> None:
    clients, _ = free_addresses()

    status, sentence = refused(*at(tmp_path, clients, nameserver.ops))

    assert status == 1
    assert sentence == f"dittomq serve nameserver: listen.ops: {nameserver.ops} is in use; stop what holds it or choose another port"


@pytest.mark.parametrize("setting", ["listen.clients", "listen.ops"])
def test_foreign_listen_address_is_not_reported_as_in_use(setting: str, tmp_path: Path) -> None:
    clients, ops = free_addresses()
    elsewhere = f"192.0.2.7:{clients.rpartition(':')[2]}"

    status, sentence = refused(*at(tmp_path, *((elsewhere, ops) if setting == "listen.clients" else (clients, elsewhere))))

    assert status == 1
    said = f"{setting}: {elsewhere} is no address of this machine; listen at one that it has, or at 0.0.0.0 for all of them"
    assert sentence == f"dittomq serve nameserver: {said}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_process_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    running = start(tmp_path)

    running.process.send_signal(number)

    _, rest = running.process.communicate(timeout=60)
    assert running.process.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "nameserver_stopped"


@pytest.mark.parametrize(
    ("method", "request_"),
    [("ListBrokers", pb.ListBrokersRequest(page_size=1_000)), ("GetRoute", pb.GetRouteRequest(topic="orders"))],
    ids=["a page of nodes", "a route"],
)
def test_unread_nameserver_answers_take_bounded_memory(tmp_path: Path, method: str, request_: Any) -> None:
    """Other clients are answered."""

    async def story(running: Running) -> None:
        address = running.clients
        async with Channels(GrpcTransport()) as channels:
            stub = channels.stub(NameServerServiceStub, address)
            for number in range(300):
                node = master(f"{number:032x}", host=f"{number:0>200}", broker=f"{number:0>100}")
                await call(stub.RegisterBroker, wire.registration_request(node), who=address, deadline_s=PATIENCE_S)
                running.logged("broker_registered")
        await refused_when_unread(address, f"ditto.naming.v1.NameServerService/{method}", request_)

    with serving(tmp_path) as running:
        asyncio.run(story(running))
