"""A nameserver, masters and their slaves as real processes, all of whose state lies in one folder."""

import contextlib
import fcntl
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dittomq.errors import ConfigError, DittoError, Unavailable
from dittomq.security.certificate_files import NO_CERTIFICATES, CertificateFiles
from dittomq.testing import processes
from dittomq.testing.configs import config_text
from dittomq.testing.guard import guarded
from dittomq.testing.ports import all_free, choose_ports, give_back
from dittomq.testing.state import (
    CLIENT,
    LOOPBACK,
    NAMESERVER,
    STATE_FILE,
    TLS_FOLDER,
    ClusterState,
    LocalNode,
    Shape,
    read_state,
    write_state,
)

if TYPE_CHECKING:  # the client brings gRPC, which a command that only looks must not wait for
    from dittomq.client.access import ClusterAccess

_GRACE_S = 15.0
_LOOK_EVERY_S = 0.1


class LocalCluster:
    """Starts and ends the processes of one cluster; two objects on one folder see the same cluster.

    As a context manager it is started at entry, and whatever of it still runs is ended at exit, or when this process dies before.
    """

    def __init__(self, folder: Path, shape: Shape | None = None) -> None:
        self.folder = folder.resolve()
        self._asked = shape
        self._guard = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._guard.enter_context(guarded(self.folder))
        try:
            self.start()
            self.wait_in_sync()
        except BaseException:
            self.stop(grace_s=0.0)
            self._guard.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._guard:
            self.stop()

    @property
    def state(self) -> ClusterState | None:
        """What the folder says now; None where nothing was ever started."""
        return read_state(self.folder)

    @property
    def nodes(self) -> tuple[LocalNode, ...]:
        """All nodes in the order in which they start; none where nothing was ever started."""
        state = self.state
        return state.nodes if state else ()

    @property
    def nameserver(self) -> str:
        """Address of the nameserver."""
        return self.node(NAMESERVER).address

    @property
    def access(self) -> "ClusterAccess":
        """How clients reach it."""
        from dittomq.client.access import ClusterAccess

        return ClusterAccess(self.nameserver, self._certified(self.settled(), CLIENT, LOOPBACK))

    def node(self, name: str) -> LocalNode:
        """The node "a/0", "a/1", … or "nameserver"; ConfigError when there is none of that name."""
        return self.settled().node(name)

    def settled(self) -> ClusterState:
        """What the folder says; ConfigError where nothing was ever started."""
        state = self.state
        if state is None:
            raise ConfigError(str(self.folder), "holds no local cluster; start one: dittomq local up")
        return state

    def roles(self) -> dict[str, str]:
        """What each node is now: nameserver, master or slave; what a node was started as where no nameserver knows it."""
        from dittomq.testing.in_sync import registered_roles

        found = {node.name: node.role for node in self.nodes}
        if self.is_alive(NAMESERVER):
            found |= {name: role for name, role in registered_roles(self.access).items() if name in found}
        return found

    def is_alive(self, name: str) -> bool:
        """Whether the node's process runs."""
        process = self.node(name).process
        return process is not None and processes.is_alive(process)

    def pid(self, name: str) -> int:
        """The node's process id; Unavailable when it does not run."""
        process = self.node(name).process
        if process is None or not processes.is_alive(process):
            raise Unavailable(name, "its process does not run; start it: dittomq local up")
        return process.pid

    def data_dir(self, name: str) -> Path:
        """The node's store."""
        return self.folder / self.node(name).file_stem

    def log_file(self, name: str) -> Path:
        """What the node printed."""
        return self.folder / f"{self.node(name).file_stem}.log"

    def start(self) -> tuple[str, ...]:
        """Start every node that does not run, in the shape the folder has or was asked for; return their names."""
        with self._held():
            state = self._settle_shape()
            missing = tuple(node.name for node in state.nodes if not self._runs(node))
            for name in missing:
                self._start_node(name)
            return missing

    def start_node(self, name: str) -> None:
        """Start one node; nothing happens when it runs."""
        with self._held():
            if not self.is_alive(name):
                self._start_node(name)

    def kill(self, name: str) -> int:
        """SIGKILL a node and return the pid it had; the process is gone before this returns."""
        pid = self.pid(name)
        self._end(name, lambda process: processes.send(process, signal.SIGKILL))
        return pid

    def stop_node(self, name: str) -> None:
        """End one node cleanly."""
        self._end(name, lambda process: processes.end(process, grace_s=_GRACE_S))

    def stop(self, *, grace_s: float = _GRACE_S) -> tuple[str, ...]:
        """End every node that runs, slaves first and the nameserver last; return their names. SIGKILL after `grace_s` each."""
        state = self.state
        running = [node.name for node in state.nodes if self._runs(node)] if state else []
        for name in reversed(running):
            self._end(name, lambda process: processes.end(process, grace_s=grace_s))
        for node in state.nodes if state else ():
            give_back(node.ports)
        return tuple(running)

    def delete(self) -> None:
        """Forget the cluster and all of its data; only files that were made for it go. Nothing of it may run."""
        with self._held():
            for node in self.nodes:
                assert not self._runs(node), "a cluster is stopped before it is deleted"
                shutil.rmtree(self.folder / node.file_stem, ignore_errors=True)
                for suffix in (".toml", ".log"):
                    (self.folder / f"{node.file_stem}{suffix}").unlink(missing_ok=True)
            shutil.rmtree(self.folder / TLS_FOLDER, ignore_errors=True)
            (self.folder / STATE_FILE).unlink(missing_ok=True)

    def wait_in_sync(self, timeout_s: float = 60.0) -> float:
        """Wait until every master takes writes and every slave is in sync; return the seconds it took.

        Raises Unavailable with what it still waits for, at once when a process ended.
        """
        from dittomq.testing.in_sync import missing_for_sync, why_late

        state = self.settled()
        began = time.monotonic()
        while True:
            for node in self.nodes:
                if not self._runs(node):
                    raise Unavailable(node.name, f"its process has ended: {self._last_words(node.name)}")
            try:
                missing = missing_for_sync(self.access, state)
            except DittoError as error:
                missing = str(error)
            took = time.monotonic() - began
            if not missing:
                return took
            if took > timeout_s:
                with contextlib.suppress(DittoError):
                    missing += why_late(self.access)
                raise Unavailable("the local cluster", f"not in sync after {timeout_s:.0f} s: {missing}")
            time.sleep(_LOOK_EVERY_S)

    def _settle_shape(self) -> ClusterState:
        state = self.state
        running = bool(state) and any(self._runs(node) for node in self.nodes)
        if state is None or (self._asked not in (None, state.shape) and not running):
            state = self._new_state(self._asked or Shape())
        elif self._asked not in (None, state.shape):
            shape = f"{state.shape.slaves} slaves{' and TLS' if state.shape.tls else ''}"
            raise ConfigError(str(self.folder), f"runs with {shape}; stop it before you change its shape: dittomq local down")
        elif not running and not all(all_free(node.ports.all()) for node in state.nodes):
            state = self._new_state(state.shape)
        write_state(self.folder, state)
        return state

    def _new_state(self, shape: Shape) -> ClusterState:
        chance = random.SystemRandom()
        earlier = self.state
        cluster = earlier.cluster if earlier else f"local-{chance.getrandbits(16):04x}"
        brokers = [f"{broker}/{number}" for broker in shape.brokers for number in range(shape.slaves + 1)]
        names = [NAMESERVER, *brokers]
        ports = choose_ports(len(brokers), chance, usual=shape.usual_ports)
        hosts = [*shape.hosts, *[LOOPBACK] * len(names)]
        nodes = (LocalNode(name, each, host=host) for name, each, host in zip(names, ports, hosts, strict=False))
        return ClusterState(cluster, shape, tuple(nodes))

    def _start_node(self, name: str) -> None:
        state = read_state(self.folder)
        assert state is not None, "a node is started only in a settled shape"
        node = state.node(name)
        data_dir = self.folder / node.file_stem
        data_dir.mkdir(mode=0o700, exist_ok=True)
        config = self.folder / f"{node.file_stem}.toml"
        config.write_text(config_text(state, node, data_dir, self._certified(state, node.file_stem, node.host)))
        process = processes.spawn_module(f"services.{node.role}", ["--config", str(config)], self.folder / f"{node.file_stem}.log")
        write_state(self.folder, state.with_node(replace(node, process=process)))

    def _certified(self, state: ClusterState, holder: str, host: str) -> CertificateFiles:
        """Files of that one's certificate, which are made at the first time; none where nothing is encrypted."""
        if not state.shape.tls:
            return NO_CERTIFICATES
        from dittomq.testing.authority import CertificateAuthority

        authority = CertificateAuthority(self.folder / TLS_FOLDER)
        files = authority.files_of(holder)
        if not Path(files.key).exists():
            authority.issue(holder, (host, "localhost"))
        return files

    def _end(self, name: str, how: Callable[[processes.ProcessIdentity], None]) -> None:
        process = self.node(name).process
        if process is None:
            return
        how(process)
        processes.wait_ended(process, timeout_s=_GRACE_S)
        with self._held():
            state = read_state(self.folder)
            if state is not None and state.node(name).process == process:
                write_state(self.folder, state.with_node(replace(state.node(name), process=None)))

    def _last_words(self, name: str) -> str:
        try:
            lines = self.log_file(name).read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            lines = []
        return lines[-1] if lines else "it printed nothing"

    @staticmethod
    def _runs(node: LocalNode) -> bool:
        return node.process is not None and processes.is_alive(node.process)

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Nobody else changes this folder's cluster meanwhile."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "local.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
