"""A container engine, as its command line drives it: one that answers, or one that the tests start until they end."""

import contextlib
import functools
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.own_engine import NoEngineError, answers, own_engine
from tests.support.tree import ROOT

LIMITS: Final = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")
"""What the images promise to run with."""

_BUILD_TIMEOUT_S: Final = 900
_running: Final = contextlib.ExitStack()


def engine(*arguments: str, timeout_s: float = 60, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command `docker …`, with what it printed. Raises AssertionError with that where `check` and it failed."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False)
    assert not (check and done.returncode), f"docker {' '.join(arguments)} exited with {done.returncode}: {done.stderr[-2000:]}"
    return done


def need_engine() -> None:
    """Start one where none answers; where that cannot be, the test is skipped, and the reason says why."""
    if problem := _no_engine():
        pytest.skip(problem)


@functools.cache
def _no_engine() -> str:
    """Why there is none; empty where one answers, until the test process ends."""
    if not answers():
        try:
            os.environ["DOCKER_HOST"] = _running.enter_context(own_engine())
        except NoEngineError as why:
            return f"no container engine answers, and {why}"
    return ""


def pytest_sessionfinish() -> None:
    """End the engine that was started for these tests."""
    _running.close()


@functools.cache
def images(tag: str, *targets: str) -> dict[str, str]:
    """The images of these targets, or both, built now from this tree. The first build of both takes minutes."""
    _build(ROOT, tag, " ".join(targets or ("broker", "audit")))
    return {"broker": f"dittomq:{tag}", "audit": f"dittomq-audit:{tag}"}


def previous_image(folder: Path) -> str:
    """A broker's image of the last tag, or where there is none of the commit before this one, built in that folder."""
    last_tag = subprocess.run(["git", "describe", "--tags", "--abbrev=0"], cwd=ROOT, capture_output=True, text=True, check=False)
    umask = ("-c", "tar.umask=0022")  # modes as of a checkout: what is built once is not built again
    archive = subprocess.run(["git", *umask, "archive", last_tag.stdout.strip() or "HEAD^"], cwd=ROOT, capture_output=True, check=True)
    subprocess.run(["tar", "--extract"], cwd=folder, input=archive.stdout, check=True)
    wheels = Path("deploy", "docker", "wheels")
    shutil.copytree(ROOT / wheels, folder / wheels)  # the same, unless a lock has changed: then others are fetched
    (folder / ".venv").symlink_to(ROOT / ".venv")
    _build(folder, "previous", "broker")
    return "dittomq:previous"


def _build(tree: Path, tag: str, targets: str) -> None:
    need_engine()
    command = ["sh", str(tree / "deploy" / "docker" / "build.sh")]
    environment = os.environ | {"TAG": tag, "TARGETS": targets}
    built = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False, env=environment)
    assert built.returncode == 0, built.stderr[-2000:]


@contextlib.contextmanager
def container(image: str, *command: str, options: tuple[str, ...] = (), network: str = "none") -> Iterator[str]:
    """The name of a container that runs meanwhile, within the limits that the images promise to run with."""
    name = f"dittomq-test-{uuid.uuid4().hex[:12]}"
    engine("run", "--detach", "--name", name, "--network", network, *LIMITS, *options, image, *command)
    try:
        yield name
    finally:
        engine("rm", "--force", "--volumes", name, check=False)


def audit(image: str, nameserver: str, network: str) -> tuple[int, str]:
    """What a container of the audit's image finds in the cluster: its exit code, and all it printed."""
    arguments = ("run", "--nameserver", nameserver, "--out", "/reports", "--history", "/reports/history", "--master", "local[1]")
    quick_start = ("--env", "JAVA_TOOL_OPTIONS=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    with container(image, *arguments, options=(*quick_start, "--tmpfs", "/reports:uid=10001,gid=10001"), network=network) as name:
        code = int(engine("wait", name, timeout_s=300).stdout)
        printed = engine("logs", name)
    return code, printed.stdout + printed.stderr[-2000:]


def python_in(name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`python3 …` within a container that runs."""
    return engine("exec", name, "python3", *arguments, check=check)
