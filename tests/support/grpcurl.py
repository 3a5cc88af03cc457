"""grpcurl, built once from its pinned Go module; where that cannot be, `buf curl`, and the reason why."""

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[2]
_MODULE = Path(__file__).parent / "grpcurl_build"
_PACKAGE = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
_BUILD_TIMEOUT_S = 600
_CALL_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Grpcurl:
    """A program that makes gRPC calls from JSON, finding the schema by reflection."""

    kind: Literal["grpcurl", "buf"]
    program: Path
    why: str  # a sentence for the test's output

    def argv(self, address: str, method: str | None = None, request: str = "{}") -> list[str]:
        """The command line that calls `method` ("package.Service/Method") in plain text; without one, that lists the services."""
        match self.kind, method:
            case "grpcurl", None:
                return [str(self.program), "-plaintext", address, "list"]
            case "grpcurl", str(name):
                return [str(self.program), "-plaintext", "-d", request, address, name]
            case _, None:
                return [*self._buf_curl, "--list-services", f"http://{address}"]
            case _, name:
                return [*self._buf_curl, "--data", request, f"http://{address}/{name}"]

    def call(self, address: str, method: str | None = None, request: str = "{}") -> subprocess.CompletedProcess[str]:
        """Run it to its end, whatever its exit code."""
        return _run(self.argv(address, method, request), "")

    def stream(self, address: str, method: str, requests: str) -> subprocess.CompletedProcess[str]:
        """The same with one request a line on its standard input."""
        return _run(self.argv(address, method, "@" if self.kind == "grpcurl" else "@-"), requests)

    @property
    def _buf_curl(self) -> list[str]:
        return [str(self.program), "curl", "--protocol", "grpc", "--http2-prior-knowledge"]


@functools.cache
def grpcurl_command() -> Grpcurl:
    """The best tool that this machine can have; builds grpcurl the first time, which takes about a minute."""
    go = shutil.which("go")
    if go is None:
        return _buf("no go on PATH to build grpcurl with, so `buf curl` makes the calls")
    try:
        return Grpcurl("grpcurl", _built(go), "grpcurl, built from its pinned Go module")
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip()
        return _buf(f"go could not build grpcurl ({said[-300:] or error}), so `buf curl` makes the calls")


def _run(command: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_CALL_TIMEOUT_S)


def _built(go: str) -> Path:
    pins = b"".join((_MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    program = ROOT / ".tools" / f"grpcurl-{hashlib.sha256(pins).hexdigest()[:12]}"
    program.parent.mkdir(exist_ok=True)
    with (program.parent / "grpcurl.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers build it once between them
        if not program.exists():
            fresh = program.with_suffix(".new")
            command = [go, "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(fresh), _PACKAGE]
            environment = os.environ | {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
            subprocess.run(command, cwd=_MODULE, env=environment, check=True, capture_output=True, timeout=_BUILD_TIMEOUT_S)
            fresh.rename(program)
    return program


def _buf(why: str) -> Grpcurl:
    return Grpcurl("buf", Path(sys.executable).with_name("buf"), why)
