"""A container engine, as its command line drives it; a test that needs one is skipped, by name, where none answers."""

import contextlib
import functools
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.tree import ROOT

LIMITS: Final = ("--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp")
"""What the images promise to run with."""

_BUILD_TIMEOUT_S: Final = 900


def engine(*arguments: str, timeout_s: float = 60, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command `docker …`, with what it printed. Raises CalledProcessError where `check` and it failed."""
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout_s, check=check)


@functools.cache
def need_engine() -> None:
    """Skip the test where no engine answers."""
    if shutil.which("docker") is None:
        pytest.skip("no docker on PATH")
    if engine("version", check=False).returncode:
        pytest.skip("no container engine answers `docker version`")


@functools.cache
def images(tag: str) -> dict[str, str]:
    """The images, by target, built now from this tree. The first build takes minutes; without a registry it needs mmdebstrap and root."""
    need_engine()
    command = ["sh", str(ROOT / "deploy" / "docker" / "build.sh")]
    built = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S, check=False, env=os.environ | {"TAG": tag})
    assert built.returncode == 0, built.stderr[-2000:]
    return {"broker": f"dittomq:{tag}", "audit": f"dittomq-audit:{tag}"}


@contextlib.contextmanager
def container(image: str, *command: str, options: tuple[str, ...] = (), network: str = "none") -> Iterator[str]:
    """The name of a container that runs meanwhile, within the limits that the images promise to run with."""
    name = f"dittomq-test-{uuid.uuid4().hex[:12]}"
    engine("run", "--detach", "--name", name, "--network", network, *LIMITS, *options, image, *command)
    try:
        yield name
    finally:
        engine("rm", "--force", "--volumes", name, check=False)


def python_in(name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """`python3 …` within a container that runs."""
    return engine("exec", name, "python3", *arguments, check=check)
