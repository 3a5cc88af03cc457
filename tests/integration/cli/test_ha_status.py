"""`dittomq ha status` beside a real cluster that loses a slave."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.testing import LocalCluster
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture
def command(tmp_path: Path) -> Iterator[CommandLine]:
    yield CommandLine(tmp_path)
    LocalCluster(tmp_path / ".dittomq").stop(grace_s=0.0)


def test_a_lost_slave_is_seen_by_who_watches_and_named_to_who_waits(command: CommandLine) -> None:
    assert command.run("local", "up", "--slaves", "1").code == 0
    watching = command.start("ha", "status", "--watch", "--json")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["schema"], first["in_sync"], first["missing"], first["last_audit"]) == (1, True, None, None)

    os.kill(int(command.run("local", "status", "--pid", "a/1").out), signal.SIGKILL)
    seen = next(document for line in watching.stdout if not (document := json.loads(line))["in_sync"])
    assert seen["missing"].startswith("the slave of a is not in sync")

    late = command.run("ha", "status", "--wait", "in-sync", "--timeout", "2s")
    assert late.code == 3
    assert late.err == "not in sync after 2 s: the slave of a is not in sync, a/1 does not answer\n"
    assert "1 needs attention" in late.out
    [row] = [line for line in late.out.splitlines() if line.startswith("   a/1")]
    assert row.split()[:3] == ["a/1", "slave", "unknown"]
    assert "does not answer since" in row

    assert command.run("local", "up").code == 0
    assert command.run("ha", "status", "--wait", "in-sync", "--timeout", "30s").code == 0
    back = next(document for line in watching.stdout if (document := json.loads(line))["in_sync"])
    assert back["groups"][0]["nodes"][1]["last_drop_ms"] is not None
    ended = command.interrupt(watching, signal.SIGINT)
    assert "Traceback" not in ended.err


def test_waiting_and_watching_exclude_each_other(command: CommandLine) -> None:
    refused = command.run("ha", "status", "--watch", "--wait", "in-sync", "--nameserver", "127.0.0.1:1")

    assert refused.code == 64
    assert "--watch" in refused.err


def test_a_wait_in_vain_for_a_nameserver_ends_as_any_wait_in_vain(command: CommandLine) -> None:
    late = command.run("ha", "status", "--wait", "in-sync", "--timeout", "1s", "--nameserver", "127.0.0.1:1")

    assert (late.code, late.out) == (3, "")
    assert late.one_sentence().startswith("not in sync after 1 s, as far as anybody can tell: nameserver 127.0.0.1:1 does not answer")


def test_a_wait_in_vain_for_a_nameserver_that_is_silent_ends_in_time(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        late = command.run("ha", "status", "--wait", "in-sync", "--timeout", "4s", "--nameserver", address)

    assert (late.code, late.out) == (3, "")
    assert late.one_sentence().startswith(f"not in sync after 4 s, as far as anybody can tell: nameserver {address} does not answer")
    assert time.monotonic() - began < 7


@pytest.mark.parametrize("options", [("--timeout", "5s"), ("--timeout", "5s", "--watch")])
def test_a_time_to_wait_without_a_condition_is_refused(command: CommandLine, options: tuple[str, ...]) -> None:
    refused = command.run("ha", "status", *options, "--nameserver", "127.0.0.1:1")

    assert refused.code == 64
    assert "--timeout" in refused.one_sentence()
    assert "--wait" in refused.err


def test_a_time_that_is_none_is_refused_by_the_name_of_its_option(command: CommandLine) -> None:
    refused = command.run("ha", "status", "--wait", "in-sync", "--timeout", "soon", "--nameserver", "127.0.0.1:1")

    assert refused.code == 64
    assert "--timeout" in refused.one_sentence()
