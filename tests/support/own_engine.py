"""A container engine of the tests' own, where no other answers: Debian's docker.io, which they unpack, start and end. It needs root.

this process ── link ── namespace of the engine ──┬── bridge of a network ── containers
                                                  └── …
Its bridges lie in a network namespace, so it makes no rule and no bridge in the machine's own; its programs and its images stay in .tools
for the next run. No package is installed: that could start a daemon of the machine's. It reaches no registry.
"""

import contextlib
import fcntl
import hashlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TextIO

from tests.support.debian_programs import TOOLS, NoProgramError, find_programs, their_environment, words_of
from tests.support.partitioned_network import enter_namespace, ip
from tests.support.tree import ROOT

_OURS: Final = "169.254.77.1"  # of the link
_ITS: Final = "169.254.77.2"
_STARTS_S: Final = 60.0
_ENDS_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.1
_GUARD_EVERY_S: Final = 1.0


class NoEngineError(Exception):
    """Why there is none here, in words."""


@contextlib.contextmanager
def own_engine(tools: Path = TOOLS) -> Iterator[str]:
    """Where it answers during the block. Processes that use it at once share it, and the last one ends it. Raises NoEngineError.

    Where the last one is killed, a guardian ends it. Another folder than .tools has another engine.
    """
    if os.geteuid() != 0:
        raise NoEngineError("only root can start one")
    engine = OwnEngine(tools)
    tools.mkdir(exist_ok=True)
    with engine.users() as users:
        with _problems_in_words(), engine.alone():
            fcntl.flock(users, fcntl.LOCK_SH)  # the process that ends it takes this lock alone
            find_programs("dockerd", "mmdebstrap", tools=tools)
            if not answers(engine.host):
                engine.end()
                engine.start()
        try:
            yield engine.host
        finally:
            engine.leave(users)


def answers(host: str | None = None) -> bool:
    """Whether a container engine does: at `host`, or where docker looks for it."""
    if shutil.which("docker") is None:
        return False
    environment = os.environ | ({"DOCKER_HOST": host} if host else {})
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(["docker", "version"], env=environment, capture_output=True, timeout=60, check=False).returncode == 0
    return False


def reach(subnet: str) -> None:
    """Let this process reach the containers of a network, where it is one of the tests' own engine."""
    engine = OwnEngine(TOOLS)
    if os.environ.get("DOCKER_HOST") == engine.host:
        ip(f"route replace {subnet} via {_ITS} dev {engine.link} onlink src {_OURS}")


class OwnEngine:
    """The one whose images and locks lie in `tools`; its sockets in `run`, as the path of a socket is short."""

    def __init__(self, tools: Path, run: Path = Path("/run")) -> None:
        digest = hashlib.sha256(bytes(tools)).hexdigest()[:6]
        self.name = f"dmq-engine-{digest}"
        self.link = f"dmq-{digest}"
        self.pid_file = run / self.name / "pid"
        self.host = f"unix://{run / self.name}/docker.sock"
        self._tools = tools
        self._run = run / self.name
        self._kept = tools / "engine"

    def users(self) -> TextIO:
        """The file that each process which uses it holds a shared lock of."""
        return (self._tools / "engine.users").open("w")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """No other process starts it or ends it during the block."""
        with (self._tools / "engine.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def leave(self, users: TextIO) -> None:
        """End it, unless another process uses it."""
        with self.alone(), contextlib.suppress(BlockingIOError):
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.end()

    def guard(self) -> None:
        """End it when all that used it are gone, one of them by a kill perhaps, and return when it has ended."""
        while self.pid_file.exists():
            with self.users() as users:
                self.leave(users)
            time.sleep(_GUARD_EVERY_S)

    def start(self) -> None:
        """A daemon that answers, and its guardian; or none of it."""
        try:
            self._make_namespace()
            self._start_daemon()
        except BaseException:
            self.end()
            raise
        guardian = [sys.executable, "-m", "tests.support.own_engine", str(self._tools)]
        subprocess.Popen(guardian, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def end(self) -> None:
        """End the containers, then the daemon, whichever process has started it, and remove what it leaves."""
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            pid = int(self.pid_file.read_text())
            daemon = os.pidfd_open(pid)
            try:
                if self._is_daemon(pid):
                    self._end_containers()
                    self._end_daemon(pid, daemon)
            finally:
                os.close(daemon)
        self._forget()

    def _is_daemon(self, pid: int) -> bool:
        """Whether it is, and not a later process that got its number."""
        return f"--pidfile={self.pid_file}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")

    def _end_containers(self) -> None:
        docker = ["docker", "--host", self.host, "container"]
        with contextlib.suppress(subprocess.SubprocessError):
            listed = subprocess.run([*docker, "ls", "--quiet"], capture_output=True, text=True, timeout=_ENDS_S, check=True).stdout.split()
            subprocess.run([*docker, "rm", "--force", "--volumes", *listed], capture_output=True, timeout=_ENDS_S, check=bool(listed))

    @staticmethod
    def _end_daemon(pid: int, daemon: int) -> None:
        """Wait until it is gone."""
        signal.pidfd_send_signal(daemon, signal.SIGTERM)
        if not select.select([daemon], [], [], _ENDS_S)[0]:
            signal.pidfd_send_signal(daemon, signal.SIGKILL)
            select.select([daemon], [], [], _ENDS_S)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)

    def _forget(self) -> None:
        """What a daemon leaves that has ended: mounts, its sockets, the namespace with its bridges."""
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in reversed(
            [mount for mount in mounts if Path(mount).is_relative_to(self._kept) or Path(mount).is_relative_to(self._run)]
        ):
            subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
        shutil.rmtree(self._run, ignore_errors=True)
        ip(f"link del {self.link}", f"netns del {self.name}", check=False)

    def _make_namespace(self) -> None:
        name, link = self.name, self.link
        ip(f"netns add {name}", f"-n {name} link set lo up", f"link add {link} type veth peer name outside netns {name}")
        ip(f"addr add {_OURS}/32 dev {link}", f"link set {link} up")
        ip(f"-n {name} addr add {_ITS}/32 dev outside", f"-n {name} link set outside up", f"-n {name} route add {_OURS}/32 dev outside")
        subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True, capture_output=True)

    def _start_daemon(self) -> None:
        """And wait until it answers."""
        self._run.mkdir(mode=0o700)
        (self._run / "daemon.json").write_text("{}")  # not the machine's
        places = {"data-root": self._kept, "exec-root": self._run / "exec", "pidfile": self.pid_file, "host": self.host}
        settings = places | {"config-file": self._run / "daemon.json", "bridge": "none", "log-level": "warn"}
        settings |= dict.fromkeys(("iptables", "ip-masq", "ip-forward"), "false")
        command = ["dockerd", *(f"--{name}={value}" for name, value in settings.items())]
        environment = their_environment(self._tools)
        log = self._run / "log"
        with log.open("wb") as to:
            daemon = enter_namespace(
                self.name, lambda: subprocess.Popen(command, env=environment, stdout=to, stderr=to, start_new_session=True)
            )
        deadline = time.monotonic() + _STARTS_S
        while not answers(self.host):
            if daemon.poll() is not None or time.monotonic() > deadline:
                daemon.kill()
                daemon.wait()
                raise NoEngineError(f"the tests' own has not started: {log.read_text(errors='replace').strip()[-500:]}")
            time.sleep(_LOOK_EVERY_S)


@contextlib.contextmanager
def _problems_in_words() -> Iterator[None]:
    try:
        yield
    except NoProgramError as why:
        raise NoEngineError(str(why)) from why
    except (OSError, subprocess.SubprocessError) as problem:
        raise NoEngineError(f"none can be started: {words_of(problem)}") from problem


if __name__ == "__main__":
    OwnEngine(Path(sys.argv[1])).guard()
