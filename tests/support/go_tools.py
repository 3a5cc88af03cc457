"""Programs that tests run and that are built here, once, from pinned Go modules."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BUILD_TIMEOUT_S = 600


class NotBuiltError(Exception):
    """Why there is no such program here, in words."""


def built(name: str, package: str) -> Path:
    """The program that `package` of the module in tests/support/<name>_build makes. The first build takes minutes. Raises NotBuiltError."""
    go = shutil.which("go")
    if go is None:
        raise NotBuiltError(f"no go on PATH to build {name} with")
    module = Path(__file__).parent / f"{name}_build"
    pins = b"".join((module / file).read_bytes() for file in ("go.mod", "go.sum"))
    program = ROOT / ".tools" / f"{name}-{hashlib.sha256(pins).hexdigest()[:12]}"
    program.parent.mkdir(exist_ok=True)
    with (program.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers build it once between them
        if not program.exists():
            fresh = program.with_suffix(".new")
            command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(fresh), package]
            environment = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
            try:
                subprocess.run(command, cwd=module, env=environment, check=True, capture_output=True, timeout=_BUILD_TIMEOUT_S)
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                said = (error.stderr or b"").decode(errors="replace").strip()
                raise NotBuiltError(f"go could not build {name} ({said[-300:] or error})") from error
            fresh.rename(program)
    return program
