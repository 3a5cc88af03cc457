"""Real processes on disks that harm them: what is preloaded into them (`harmed_disk.c`), and what that wrote down."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, Self

import pytest

from tests.support.tree import ROOT


class Ended(NamedTuple):
    """How a process ended: its exit status, below 0 when a signal killed it, and the lines that it printed."""

    status: int
    said: list[str]


class Call(NamedTuple):
    """A call that changes the disk; 0 is the number of one that does not count."""

    number: int
    harmed: bool
    name: str
    path: Path

    @classmethod
    def parse(cls, line: str) -> Self:
        """From a line of the trace."""
        number, what, name, path = line.split(" ", 3)
        return cls(int(number), what == "harmed", name, Path(path))


def build_shim(folder: Path) -> Path:
    """The library to preload; skips the test where nothing can build it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH to build the library with that harms disks")
    library = folder / "harmed_disk.so"
    source = ROOT / "tests" / "support" / "harmed_disk.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library


def harming(shim: Path, under: Path, **what: str | int | Path) -> dict[str, str]:
    """What a process needs in its environment for that: `when`, `calls`, `nth`, `kind` and `trace` of the library."""
    return {"LD_PRELOAD": f"{shim}", "HARM_UNDER": f"{under}/"} | {f"HARM_{name.upper()}": f"{value}" for name, value in what.items()}


def calls_in(trace: Path) -> list[Call]:
    """All that was written down."""
    return [Call.parse(line) for line in trace.read_text().splitlines()] if trace.exists() else []


def act(deed: str, root: Path, harm: dict[str, str], *arguments: str | Path) -> Ended:
    """Let a process do a deed of `store_process` on a disk that harms it."""
    command = [sys.executable, "-m", "tests.support.store_process", deed, root, *arguments]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **harm}, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout.splitlines())
