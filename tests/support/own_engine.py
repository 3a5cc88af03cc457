"""A container engine of the tests' own, where no other answers: Debian's docker.io, which they install, start and end. It needs root.

this process ── link ── namespace of the engine ──┬── bridge of a network ── containers
                                                  └── …
Its bridges lie in a network namespace, so it makes no rule and no bridge in the machine's own; its images stay in .tools for the next
run. It reaches no registry.
"""

import contextlib
import fcntl
import hashlib
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from tests.support.partitioned_network import enter_namespace, ip
from tests.support.tree import ROOT

_TOOLS: Final = (ROOT / ".tools").resolve()
_NAME: Final = f"dmq-engine-{hashlib.sha256(bytes(_TOOLS)).hexdigest()[:6]}"
_LINK: Final = _NAME.replace("-engine-", "")
_KEPT: Final = _TOOLS / "engine"
_RUN: Final = Path("/run", _NAME)  # the path of a socket is short
_HOST: Final = f"unix://{_RUN}/docker.sock"
_OURS: Final = "169.254.77.1"  # of the link
_ITS: Final = "169.254.77.2"
_PACKAGES: Final = {"dockerd": "docker.io", "mmdebstrap": "mmdebstrap"}
_INSTALLS_S: Final = 300
_STARTS_S: Final = 60.0
_ENDS_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1


class NoEngineError(Exception):
    """Why there is none here, in words."""


@contextlib.contextmanager
def own_engine() -> Iterator[str]:
    """Where it answers during the block. Processes that use it at once share it, and the last one ends it. Raises NoEngineError."""
    if os.geteuid() != 0:
        raise NoEngineError("only root can start one")
    _KEPT.mkdir(parents=True, exist_ok=True)
    with (_TOOLS / "engine.users").open("w") as users:
        with _alone():
            _install()
            if not answers(_HOST):
                _forget()
                _start()
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield _HOST
        finally:
            _leave(users)


def _leave(users: TextIO) -> None:
    """End it, unless another process uses it."""
    with _alone(), contextlib.suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _end()
        _forget()


def answers(host: str | None = None) -> bool:
    """Whether a container engine does: at `host`, or where docker looks for it."""
    if shutil.which("docker") is None:
        return False
    environment = os.environ | ({"DOCKER_HOST": host} if host else {})
    return subprocess.run(["docker", "version"], env=environment, capture_output=True, timeout=60, check=False).returncode == 0


def reach(subnet: str) -> None:
    """Let this process reach the containers of a network, where it is one of the tests' own engine."""
    if os.environ.get("DOCKER_HOST") == _HOST:
        ip(f"route replace {subnet} via {_ITS} dev {_LINK} onlink src {_OURS}")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    with (_TOOLS / "engine.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install() -> None:
    missing = [package for program, package in _PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    apt = shutil.which("apt-get")
    if apt is None:
        raise NoEngineError(f"no apt-get on PATH to install {' and '.join(missing)} with")
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *missing]):
        done = subprocess.run(
            [apt, "--quiet", *command],
            env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            timeout=_INSTALLS_S,
            check=False,
        )
        if done.returncode:
            raise NoEngineError(f"apt-get {' '.join(command)} failed: {done.stderr.strip()[-300:]}")


def _start() -> None:
    """A daemon of the engine that answers."""
    _make_namespace()
    _RUN.mkdir(mode=0o700)
    (_RUN / "daemon.json").write_text("{}")  # not the machine's
    places = {"data-root": _KEPT, "exec-root": _RUN / "exec", "pidfile": _pid_file(), "host": _HOST, "config-file": _RUN / "daemon.json"}
    settings = places | {"bridge": "none", "iptables": "false", "ip-masq": "false", "ip-forward": "false", "log-level": "warn"}
    command = ["dockerd", *(f"--{name}={value}" for name, value in settings.items())]
    log = _RUN / "log"
    with log.open("wb") as to:
        daemon = enter_namespace(_NAME, lambda: subprocess.Popen(command, stdout=to, stderr=to, start_new_session=True))
    deadline = time.monotonic() + _STARTS_S
    while not answers(_HOST):
        if daemon.poll() is not None or time.monotonic() > deadline:
            daemon.kill()
            daemon.wait()
            raise NoEngineError(f"the tests' own has not started: {log.read_text(errors='replace').strip()[-500:]}")
        time.sleep(_LOOK_EVERY_S)


def _make_namespace() -> None:
    ip(f"netns add {_NAME}", f"-n {_NAME} link set lo up", f"link add {_LINK} type veth peer name outside netns {_NAME}")
    ip(f"addr add {_OURS}/32 dev {_LINK}", f"link set {_LINK} up")
    ip(f"-n {_NAME} addr add {_ITS}/32 dev outside", f"-n {_NAME} link set outside up", f"-n {_NAME} route add {_OURS}/32 dev outside")
    subprocess.run(["ip", "netns", "exec", _NAME, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True, capture_output=True)


def _end() -> None:
    """End the daemon, whichever process of the tests has started it, and wait until it is gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        pid = int(_pid_file().read_text())
        daemon = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(daemon, signal.SIGTERM)
            if not select.select([daemon], [], [], _ENDS_S)[0]:
                signal.pidfd_send_signal(daemon, signal.SIGKILL)
        finally:
            os.close(daemon)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _forget() -> None:
    """What a daemon leaves that has ended: mounts, its sockets, the namespace with its bridges."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if Path(mount).is_relative_to(_KEPT) or Path(mount).is_relative_to(_RUN)]):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
    shutil.rmtree(_RUN, ignore_errors=True)
    ip(f"link del {_LINK}", f"netns del {_NAME}", check=False)


def _pid_file() -> Path:
    return _RUN / "pid"
