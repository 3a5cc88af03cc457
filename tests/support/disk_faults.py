"""Real processes on disks that harm them: what is preloaded into them (`disk_faults.c`), and what that wrote down."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
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


def build_shim(folder: Path, name: str = "disk_faults") -> Path:
    """The library to preload; skips the test where nothing can build it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on PATH to build the library with that is to be preloaded")
    library = folder / f"{name}.so"
    source = ROOT / "tests" / "support" / f"{name}.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o", library, source, "-ldl"], check=True)
    return library


def harming(under: Path, **what: str | int | Path) -> dict[str, str]:
    """What the library finds in a process's environment: `when`, `calls`, `nth`, `kind`, `ms` and `trace`."""
    return {"HARM_UNDER": f"{under}/"} | {f"HARM_{name.upper()}": f"{value}" for name, value in what.items()}


@contextlib.contextmanager
def preloading(shim: Path, harm: Mapping[str, str]) -> Iterator[None]:
    """Processes that are started by this one in the block have the library preloaded."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {"LD_PRELOAD": f"{shim}", **harm}.items():
            environment.setenv(name, value)
        yield


def calls_in(trace: Path) -> list[Call]:
    """All that was written down."""
    return [Call.parse(line) for line in trace.read_text().splitlines()] if trace.exists() else []


class Actors:
    """Processes with the library preloaded that do the deeds of `store_process`: forked from one, so that each starts at once."""

    def __init__(self, shim: Path) -> None:
        command = [sys.executable, "-m", "tests.support.store_process"]
        environment = {**os.environ, "LD_PRELOAD": f"{shim}"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def act(self, deed: str, root: Path, harm: Mapping[str, str], switch: Path | None = None) -> Ended:
        """Let a new process do the deed; `harm` as from `harming`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        json.dump([deed, f"{root}", f"{switch}", dict(harm)], self._process.stdin)
        self._process.stdin.write("\n")
        status, said = json.loads(self._process.stdout.readline())
        return Ended(status, said)

    def end(self) -> None:
        """No more of them."""
        self._process.communicate()


@contextlib.contextmanager
def actors(shim: Path) -> Iterator[Actors]:
    """They are there while the block runs."""
    made = Actors(shim)
    try:
        yield made
    finally:
        made.end()
