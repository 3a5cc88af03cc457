"""The demo itself: it passes on a working product, ends every process in every case, and uses free ports where the usual ones are taken."""

import contextlib
import re
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.testing import LocalCluster, processes
from tests.support.command_line import CommandLine
from tests.support.waiting import eventually

RECORDS = "20000"


@pytest.fixture
def taken_port() -> Iterator[int]:
    """The master's usual port, held by somebody else."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # held by somebody else: taken all the same
            holder.bind(("127.0.0.1", 10_911))
            holder.listen()
        yield 10_911


@pytest.mark.spark
def test_the_demo_passes_and_leaves_no_process(tmp_path: Path, taken_port: int) -> None:
    ran = CommandLine(tmp_path).run("demo", "--records", RECORDS, timeout_s=280)

    assert ran.code == 0, ran.out + ran.err
    lines = ran.out.splitlines()
    assert [line[1:6] for line in lines if line.startswith("[")] == [f"{number:2}/10" for number in range(1, 11)]
    assert f"a/0 master :{taken_port} " not in ran.out
    assert re.search(r"20,000 flushed on [23]\+ copies, 0 weaker, 0 unknown", ran.out)
    assert "flipped, audited again: found, a/2, flights queue 5 offset 100, byte " in ran.out
    assert lines[-2].startswith("PASS in ")
    assert stat.S_IMODE((tmp_path / ".dittomq" / "demo" / "audit" / "audit.html").stat().st_mode) == 0o600


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    command = CommandLine(tmp_path)
    demo, started = at_its_third_step(command)

    ran = command.interrupt(demo, number)

    assert ran.code == 130
    assert not any(processes.is_alive(process) for process in started)
    assert "Traceback" not in ran.err


@pytest.mark.tier("nightly")
def test_a_killed_demo_leaves_no_process(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    demo, started = at_its_third_step(command)

    assert command.interrupt(demo, signal.SIGKILL).code == -signal.SIGKILL

    eventually(lambda: not any(processes.is_alive(process) for process in started), "every process has ended")


def at_its_third_step(command: CommandLine) -> "tuple[subprocess.Popen[str], list[processes.ProcessIdentity]]":
    """A demo that publishes now, and the processes of its cluster."""
    demo = command.start("demo", "--records", RECORDS)
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("[ 3/10]"):
            break
    started = [node.process for node in LocalCluster(command.folder / ".dittomq" / "demo").nodes if node.process]
    assert len(started) == 4
    return demo, started
