"""A cluster that a program started for itself: it does not outlive the program, and says what it waits for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from dittomq.errors import Unavailable
from dittomq.testing import LocalCluster, Shape, processes
from tests.support.waiting import PATIENCE_S, eventually

PROGRAM = """
import sys, time
from pathlib import Path
from dittomq.testing import LocalCluster, Shape

with LocalCluster(Path(sys.argv[1]), Shape(slaves=0, usual_ports=False)):
    print("up", flush=True)
    time.sleep(600)
"""


def test_a_cluster_ends_when_the_program_that_started_it_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    program = subprocess.Popen(command, env=processes.module_environment(), stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    cluster = LocalCluster(tmp_path)
    running = [node.process for node in cluster.nodes if node.process is not None]
    assert [processes.is_alive(process) for process in running] == [True, True]

    program.kill()
    program.communicate(timeout=PATIENCE_S)

    eventually(lambda: not any(map(processes.is_alive, running)), "the nameserver and the master have ended")
    eventually(lambda: [node.process for node in cluster.nodes] == [None, None], "they were stopped, and are known to be")


def test_a_cluster_that_is_started_without_a_guard_outlives_the_program(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from dittomq.testing import LocalCluster, Shape; "
    program += "LocalCluster(Path(sys.argv[1]), Shape(slaves=0, usual_ports=False)).start()"
    cluster = LocalCluster(tmp_path, Shape(slaves=0, usual_ports=False))

    subprocess.run([sys.executable, "-c", program, str(tmp_path)], env=processes.module_environment(), check=True, timeout=PATIENCE_S)

    try:
        assert cluster.is_alive("nameserver")
        assert cluster.is_alive("a/0")
    finally:
        cluster.stop()


def test_a_cluster_that_is_not_in_sync_in_time_names_the_slave_that_is_late(tmp_path: Path) -> None:
    def late() -> str:
        try:
            cluster.wait_in_sync(timeout_s=0.5)
        except Unavailable as problem:
            return str(problem)
        return ""  # its master hears for a while that it was in sync

    with LocalCluster(tmp_path, Shape(slaves=1, usual_ports=False)) as cluster:
        os.kill(cluster.pid("a/1"), signal.SIGSTOP)
        said = eventually(late, "it is not in sync")
        os.kill(cluster.pid("a/1"), signal.SIGCONT)

    assert "the slave of a is not in sync; a/1: " in said
    assert "does not answer" in said
