"""The command line as people use it: a process of its own, in a folder of its own."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    def one_sentence(self) -> str:
        """What it said on stderr: one line, and no traceback anywhere."""
        assert "Traceback" not in self.out + self.err
        [sentence] = self.err.splitlines()
        return sentence


class CommandLine:
    """Runs `dittomq …` in `folder`, with contexts of its own and these variables more."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("DITTOMQ_")}
        self._environment |= {"PYTHONPATH": str(ROOT), "DITTOMQ_CONFIG": str(folder / "contexts.toml"), "NO_COLOR": "1", "COLUMNS": "200"}
        self._environment |= variables

    def run(self, *arguments: str, stdin: bytes = b"", timeout_s: float = 240) -> Ran:
        """Run one command to its end."""
        done = subprocess.run(
            [sys.executable, "-m", "dittomq.cli", *arguments],
            cwd=self.folder,
            env=self._environment,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def shell(self, line: str, *, timeout_s: float = 240) -> Ran:
        """Run one line as it is typed, `dittomq` being this one."""
        script = f'dittomq() {{ "{sys.executable}" -m dittomq.cli "$@"; }}; {line}'
        done = subprocess.run(
            ["/bin/bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> "subprocess.Popen[str]":
        """Start a command that is to be interrupted."""
        return subprocess.Popen(
            [sys.executable, "-m", "dittomq.cli", *arguments],
            cwd=self.folder,
            env=self._environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def interrupt(self, process: "subprocess.Popen[str]", number: signal.Signals, *, timeout_s: float = 240) -> Ran:
        """Signal a started command and wait for its end."""
        process.send_signal(number)
        out, err = process.communicate(timeout=timeout_s)
        return Ran(process.returncode, out, err)
