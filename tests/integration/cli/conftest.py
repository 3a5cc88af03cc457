"""One real cluster for all tests of the command line."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.testing import LocalCluster, Shape
from tests.support.command_line import CommandLine


@dataclass(frozen=True, slots=True)
class Bench:
    """A cluster of a master and a slave, and a command line whose current context it is; topic `orders` is there and holds 100 records."""

    cluster: LocalCluster
    command: CommandLine


@pytest.fixture(scope="package")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("cli")
    command = CommandLine(folder)
    with LocalCluster(folder / ".dittomq", Shape(slaves=1, usual_ports=False)) as cluster:
        assert command.run("context", "add", "local", cluster.nameserver).code == 0
        assert command.run("context", "use", "local").code == 0
        assert command.run("topic", "create", "orders", "--queues", "4").code == 0
        lines = "".join(f'{{"id":"o-{number}","customer":"c-{number % 7}"}}\n' for number in range(100))
        (folder / "orders.jsonl").write_text(lines)
        assert command.run("publish", "orders", "orders.jsonl", "--order-key", ".customer", "--keys", ".id", "--timeout", "60s").code == 0
        yield Bench(cluster, command)
