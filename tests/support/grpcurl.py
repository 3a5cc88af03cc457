"""grpcurl, built once from its pinned Go module; where that cannot be, `buf curl`, and the reason why."""

import functools
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.go_tools import NotBuiltError, built

_PACKAGE = "github.com/fullstorydev/grpcurl/cmd/grpcurl"
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
    try:
        return Grpcurl("grpcurl", built("grpcurl", _PACKAGE), "grpcurl, built from its pinned Go module")
    except NotBuiltError as why:
        return Grpcurl("buf", Path(sys.executable).with_name("buf"), f"{why}, so `buf curl` makes the calls")


def _run(command: list[str], stdin: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_CALL_TIMEOUT_S)
