"""Every line of docs/rpc.md does what it says, on a real cluster."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.testing import LocalCluster, Shape
from tests.support.command_line import CommandLine
from tests.support.documents import Shown, commands
from tests.support.grpcurl import grpcurl_command
from tools.rpc_lines import LINES

_SHOWN = commands("docs/rpc.md")
_CALLS = [shown for shown in _SHOWN if shown.command.startswith("grpcurl ")]


@dataclass(frozen=True, slots=True)
class Call:
    """A grpcurl line, taken apart. `method` None: list the services."""

    address: str
    method: str | None
    request: str


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """What the page's first two lines make, on ports that are free."""
    folder: Path = tmp_path_factory.mktemp("rpc")
    command = CommandLine(folder)
    with LocalCluster(folder / ".dittomq", Shape(slaves=2, usual_ports=False)) as running:
        command.run("context", "add", "local", running.nameserver)
        command.run("context", "use", "local")
        made = command.shell(_SHOWN[1].command)
        assert made.code == 0, made.err
        yield running


def test_the_page_has_a_line_for_every_rpc() -> None:
    assert {method for shown in _CALLS if (method := call_of(shown).method)} == {*LINES, "grpc.health.v1.Health/Check"}


@pytest.mark.parametrize("shown", _CALLS, ids=lambda shown: shown.command.rpartition(" ")[2])
def test_a_line_works_as_it_is_written(shown: Shown, cluster: LocalCluster) -> None:
    tool = grpcurl_command()
    call = call_of(shown)
    line = LINES.get(call.method or "")

    done = tool.call(_here(call.address, cluster), call.method, _request(call, cluster))

    said = f"{tool.why}\n{done.stdout}\n{done.stderr}"
    if line is not None and line.refused:
        assert done.returncode != 0, said
        assert line.refused in said or tool.kind == "buf", said  # buf shows the sentence, not the reason
    else:
        assert done.returncode == 0, said


def call_of(shown: Shown) -> Call:
    words = shlex.split(shown.command)
    assert words[:2] == ["grpcurl", "-plaintext"]
    if words[-1] == "list":
        return Call(words[-2], None, "{}")
    _, _, flag, request, address, method = words
    assert flag == "-d"
    return Call(address, method, request)


def _request(call: Call, cluster: LocalCluster) -> str:
    return call.request.replace("local-5f2a", cluster.settled().cluster)


def _here(address: str, cluster: LocalCluster) -> str:
    """The address in this cluster that a line names by its usual port."""
    master = cluster.node("a/0").ports
    ports = {"9876": cluster.node("nameserver").ports.clients, "10911": master.clients, "10912": master.replication}
    return f"127.0.0.1:{ports[address.rpartition(':')[2]]}"
