"""Processes of peers: each in a folder of its own, on ports that were free, ended with whoever started them."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_END_S = 20.0
_LOOK_EVERY_S = 0.05


class NotInstalled(Exception):
    """The peer is not on this machine; the text says how to get it."""


class PeerFailed(Exception):
    """The peer did not do what it was asked; the text is its own, shortened."""


def program(name: str, package: str, *folders: str) -> str:
    """The path of an executable, looked for in `folders` too; NotInstalled names the Debian package."""
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise NotInstalled(f"no {name} here; on Debian: apt-get install {package}")
    return found


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def servant(name: str) -> str | None:
    """The user that a server refuses to run without when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(name).pw_name
    except KeyError:
        raise NotInstalled(f"there is no user {name}, as whom its server runs") from None


@contextmanager
def running(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, name: str = ""
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own that logs to `folder`; its whole session is ended at exit."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name or Path(argv[0]).name}.log").open("ab") as log:
        process = subprocess.Popen(
            argv, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=folder,
            env=os.environ | dict(environment or {}), start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        end(process)


@contextmanager
def standing_still(pids: Iterable[int]) -> Iterator[None]:
    """Stop these processes and all that they started, until left: whoever is measured meanwhile has the machine for itself."""
    stopped = with_descendants(pids)
    try:
        for pid in stopped:
            _signal(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            _signal(pid, signal.SIGCONT)


def with_descendants(pids: Iterable[int]) -> list[int]:
    """These processes, and those that they and theirs have started."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = list(pids)
    for pid in found:
        found += children.get(pid, [])
    return found


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL, to the process and what it started."""
    for number, patience_s in ((signal.SIGTERM, _END_S), (signal.SIGKILL, _END_S)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def run(argv: Sequence[str], timeout_s: float = 120.0, **options: object) -> str:
    """What a command printed; PeerFailed with its last words when it failed."""
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False, **options)  # type: ignore[call-overload]
    if ran.returncode != 0:
        raise PeerFailed(f"{Path(argv[0]).name} ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-600:]}")
    return str(ran.stdout)


def wait_until(true: Callable[[], bool], told: str, within_s: float = 60.0) -> None:
    """Return when it is so; PeerFailed with `told` when it is not in time."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            raise PeerFailed(f"{told} within {within_s:g} s")
        time.sleep(_LOOK_EVERY_S)


def listens(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
