"""`dittomq local`, as in the README's first minute."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.testing import LocalCluster
from tests.support.command_line import CommandLine
from tests.support.real_group import RealGroup


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    yield CommandLine(tmp_path)
    LocalCluster(tmp_path / ".dittomq").stop(grace_s=0.0)


@pytest.mark.tier("nightly")  # test_readme.py does the same
def test_the_first_minute_of_the_readme(command: CommandLine) -> None:
    up = command.run("local", "up", "--slaves", "2")
    assert up.code == 0
    assert up.out.startswith("local: nameserver :")
    assert "· a/2 slave :" in up.out
    assert command.run("topic", "create", "orders").code == 0

    published = command.shell("seq 1000 | dittomq publish orders --timeout 60s")
    assert published.code == 0
    stored, copies = published.out.split(" flushed on ")
    assert stored == "1,000 stored · 1,000"
    assert copies[0] in "23"  # the third copy may be late
    assert copies[1:].startswith(" or more copies · 0 weaker · 0 not stored · 0 unknown")

    cluster = LocalCluster(command.folder / ".dittomq")
    with Client(cluster.nameserver) as mq:
        RealGroup(cluster, mq).wait_equal()
    os.kill(int(command.run("local", "status", "--pid", "a/0").out), signal.SIGKILL)
    assert command.run("local", "status").code == 3
    read = command.run("consume", "orders", "--from", "earliest", "--max", "1000")
    assert (read.code, len(read.out.splitlines())) == (0, 1000)
    assert command.run("ha", "status").code == 3

    again = command.run("local", "up")
    assert again.code == 0
    assert "in sync after" in again.out
    assert command.run("ha", "status", "--wait", "in-sync", "--timeout", "30s").code == 0
    assert "everything runs already" in command.run("local", "up").out


@pytest.mark.tier("nightly")
def test_a_cluster_that_was_stopped_starts_again_in_its_shape_with_its_data(command: CommandLine) -> None:
    assert command.run("local", "up", "--slaves", "1").code == 0
    assert command.run("topic", "create", "orders").code == 0
    assert command.shell("seq 10 | dittomq publish orders").code == 0
    assert command.run("local", "down").code == 0
    assert command.run("local", "status").code == 3

    assert command.run("local", "up").code == 0

    nodes = json.loads(command.run("local", "status", "--json").out)["nodes"]
    assert [node["node"] for node in nodes] == ["nameserver", "a/0", "a/1"]
    assert all(node["pid"] for node in nodes)
    assert len(command.run("consume", "orders").out.splitlines()) == 10


def test_encrypted_cluster_serves_who_shows_its_certificate_and_nobody_else(command: CommandLine) -> None:
    assert command.run("local", "up", "--slaves", "1", "--tls").code == 0
    assert command.run("topic", "create", "orders").code == 0
    assert command.shell("seq 10 | dittomq publish orders").out.startswith("10 stored · 10 flushed on 2 or more copies")
    assert len(command.run("consume", "orders").out.splitlines()) == 10
    assert command.run("ha", "status", "--wait", "in-sync", "--timeout", "60s").code == 0

    nameserver = LocalCluster(command.folder / ".dittomq").nameserver
    refused = command.run("topic", "list", "--nameserver", nameserver)

    assert (refused.code, refused.out) != (0, "")
    assert "does not answer" in refused.err


def test_down_with_delete_leaves_nothing_of_the_cluster(command: CommandLine) -> None:
    assert command.run("local", "up", "--slaves", "0").code == 0

    assert command.run("local", "down", "--delete").code == 0

    assert sorted(path.name for path in (command.folder / ".dittomq").iterdir()) == ["local.lock"]
    assert command.run("local", "status").code == 64


def test_a_node_that_cannot_start_is_named_with_its_last_words(command: CommandLine) -> None:
    store = command.folder / ".dittomq" / "a-0" / "commitlog" / "00000000000000000000"
    store.parent.mkdir(parents=True)
    store.write_bytes(b"short")

    ran = command.run("local", "up", "--slaves", "0")

    assert ran.code == 5
    assert "a/0" in ran.err
    assert "cannot be opened" in ran.err
    assert "Traceback" not in ran.err


def test_a_piped_publish_sends_lines_as_they_come(command: CommandLine) -> None:
    assert command.run("local", "up", "--slaves", "0").code == 0
    assert command.run("topic", "create", "orders", "--queues", "1").code == 0

    ran = command.shell('(echo first; while [ -z "$(dittomq consume orders)" ]; do :; done; echo second) | dittomq publish orders')

    assert ran.code == 0
    assert ran.out.startswith("2 stored")
