"""Processes of ours, told apart from any other process that later gets the same pid."""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dittomq
from dittomq.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot; a pid that was given to another process does not match."""

    pid: int
    start_ticks: int
    boot_id: str


def checkout_root() -> Path:
    """The folder that holds `services` and `spark`; ConfigError where only the library is installed."""
    root = Path(dittomq.__file__).resolve().parents[1]
    if not (root / "services").is_dir():
        raise ConfigError("services", f"not beside the library in {root}; run dittomq from a checkout (make demo) or from an image")
    return root


def module_environment() -> dict[str, str]:
    """This process's environment, with `services` and `spark` importable and without settings that were meant for this command."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DITTOMQ_")}
    paths = [str(checkout_root()), *filter(None, [inherited.get("PYTHONPATH", "")])]
    return {"GRPC_VERBOSITY": "NONE"} | inherited | {"PYTHONPATH": os.pathsep.join(paths)}


def spawn_module(module: str, arguments: Sequence[str], log: Path) -> ProcessIdentity:
    """Start `python -m module` in a session of its own; what it prints is appended to `log`."""
    log_mode = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", module, *arguments],
        module_environment(),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), log_mode, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    # Our own child: its pid is not given away before it is waited for, so it is there, if only as a zombie.
    return identify(pid)


def identify(pid: int) -> ProcessIdentity:
    """The process that has this pid now. Raises FileNotFoundError where none has."""
    return ProcessIdentity(pid, _start_ticks(pid), _boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether that very process still runs."""
    with _ProcessHandle(identity) as pidfd:
        return pidfd is not None and not _has_ended(pidfd, 0)


def end(identity: ProcessIdentity, *, grace_s: float) -> None:
    """Have that process ended before returning: SIGTERM first, SIGKILL after `grace_s`."""
    send(identity, signal.SIGTERM)
    if not wait_ended(identity, timeout_s=grace_s):
        send(identity, signal.SIGKILL)
        wait_ended(identity, timeout_s=10.0)


def send(identity: ProcessIdentity, number: signal.Signals) -> None:
    """Send a signal to that very process; nothing happens when it has ended."""
    with _ProcessHandle(identity) as pidfd, contextlib.suppress(ProcessLookupError):
        if pidfd is not None:
            signal.pidfd_send_signal(pidfd, number)


def wait_ended(identity: ProcessIdentity, *, timeout_s: float) -> bool:
    """Whether the process ended within the time."""
    with _ProcessHandle(identity) as pidfd:
        ended = pidfd is None or _has_ended(pidfd, timeout_s)
    if ended:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
    return ended


class _ProcessHandle:
    """A descriptor of the process, or None when it is gone: a pid that is held so cannot become another's between check and signal."""

    def __init__(self, identity: ProcessIdentity) -> None:
        self._identity = identity
        self._pidfd: int | None = None

    def __enter__(self) -> int | None:
        try:
            self._pidfd = os.pidfd_open(self._identity.pid)
            same = _start_ticks(self._identity.pid) == self._identity.start_ticks and _boot_id() == self._identity.boot_id
        except (ProcessLookupError, FileNotFoundError):
            return None
        return self._pidfd if same else None

    def __exit__(self, *_: object) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)


def _has_ended(pidfd: int, timeout_s: float) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def _start_ticks(pid: int) -> int:
    # The command's name, in brackets, may itself hold spaces and brackets; field 22 is counted from behind it.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
