"""Programs that tests run and that are built here, once, from pinned Go modules."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[2]
_SMALL: Final = ("-gcflags=all=-dwarf=false", "-ldflags=-s -w")  # nobody debugs them
_COLLECTS_AT: Final = "400"  # percent: with Go's own 100 the compiler collects garbage for an eighth of its time


class NotBuiltError(Exception):
    """Why there is no such program here, in words."""


def place(name: str) -> Path:
    """Where the program is that the module in tests/support/<name>_build makes, once it was built; or the folder of its programs."""
    pins = b"".join(
        path.read_bytes() for path in sorted(_module(name).rglob("*")) if path.name == "go.mod" or path.suffix in {".go", ".sum"}
    )
    return ROOT / ".tools" / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"


def built(name: str, *packages: str, timeout_s: int = 600) -> Path:
    """The program that the package of the module in tests/support/<name>_build makes; a folder of programs, if there are several packages.

    The first build takes minutes. Raises NotBuiltError.
    """
    go = shutil.which("go")
    if go is None:
        raise NotBuiltError(f"no go on PATH to build {name} with")
    program, module = place(name), _module(name)
    program.parent.mkdir(exist_ok=True)
    with (program.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers build it once between them
        if not program.exists():
            fresh = program.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            if len(packages) > 1:
                fresh.mkdir()
            command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", *_SMALL, "-o", str(fresh), *packages]
            environment = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOGC": _COLLECTS_AT}
            try:
                subprocess.run(command, cwd=module, env=environment, check=True, capture_output=True, timeout=timeout_s)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                said = (error.stderr or b"").decode(errors="replace").strip()
                raise NotBuiltError(f"go could not build {name} ({said[-300:] or error})") from error
            fresh.rename(program)
    return program


def _module(name: str) -> Path:
    return Path(__file__).parent / f"{name}_build"
