"""A node's service once more, beside it or in its place, on another disk or on a copy of its own."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dittomq.testing.processes import module_environment
from tests.support.real_group import RealGroup
from tests.support.waiting import PATIENCE_S


def second_command(group: RealGroup, name: str, data_dir: Path) -> list[str]:
    """The node's service once more: the same configuration, free ports, another data directory."""
    config = group.cluster.folder / f"{group.cluster.node(name).file_stem}.toml"
    overrides = {
        "node.data_dir": str(data_dir),
        "listen.clients": "127.0.0.1:0",
        "listen.replication": "127.0.0.1:0",
        "listen.ops": "127.0.0.1:0",
    }
    flags = [part for key, value in overrides.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", f"services.{group.cluster.node(name).role}", "--config", str(config), *flags]


def second_process(group: RealGroup, name: str, data_dir: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Run it to its end."""
    command = [*second_command(group, name, data_dir), *flags]
    return subprocess.run(command, env=module_environment(), capture_output=True, text=True, timeout=60, check=False)


@contextlib.contextmanager
def beside(command: list[str], log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """It runs while the block does, and writes to `log`."""
    with log.open("wb") as into, subprocess.Popen(command, env=module_environment(), stdout=into, stderr=into) as running:
        try:
            yield running
        finally:
            running.terminate()
            running.wait(PATIENCE_S)
