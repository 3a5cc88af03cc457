"""A local cluster whose nodes are containers of the image that `make images` builds, on two networks. It needs root.

this process ──┬── talk ──┬── nameserver      registration, clients, administration, the audit
               │          ├── a/0
               │          └── a/1 …
               └── cut ───┬── etcd            replication, elections, the group record
                          ├── a/0
                          └── a/1 …           A cut is a rule in a node's own network namespace, or a cable that is pulled.
"""

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from docker.types import EndpointConfig, IPAMConfig, IPAMPool
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

from dittomq.testing import LocalCluster, Shape, processes
from dittomq.testing.configs import config_text
from dittomq.testing.state import NAMESERVER, read_state, write_state
from tests.support.containers import engine, need_engine
from tests.support.etcd import etcd_program
from tests.support.mounts import demand_root
from tests.support.own_engine import reach

STORE: Final = "etcd"
"""The coordination store, where a cut names what a node is cut off from."""

_OWNER: Final = "dittomq.tests.pid"
_USER: Final = 10001
_NETWORKS: Final = 512  # of 256 addresses each, from the range for measurements: no host of the internet has one of these
_STORE_AT: Final = 250
_STORE_PORT: Final = 2379
_STARTS_S: Final = 180.0
_API: Final = "1.41"

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Bridge:
    """One network of containers."""

    network: Network
    prefix: str

    @property
    def subnet(self) -> str:
        """All its addresses."""
        return f"{self.prefix}0/24"

    def address(self, at: int) -> str:
        """Of the container with that number."""
        return f"{self.prefix}{at + 2}"

    def endpoint(self, address: str) -> dict[str, Any]:
        """What a container that is to have this address is made with."""
        name = self.network.name
        return {"network": name, "networking_config": {name: EndpointConfig(_API, ipv4_address=address)}}

    def plug(self, container: str, address: str) -> None:
        """Connect a container."""
        engine("network", "connect", "--ip", address, self.network.name, container)

    def unplug(self, container: str) -> None:
        """Take its interface from it."""
        engine("network", "disconnect", self.network.name, container)


@dataclass(frozen=True, slots=True)
class TwoNetworks:
    """`talk` is never cut; over `cut` go replication, elections and the group record."""

    talk: Bridge
    cut: Bridge

    @property
    def store(self) -> str:
        """Where the coordination store is."""
        return self.cut.address(_STORE_AT)


@contextlib.contextmanager
def two_networks() -> Iterator[TwoNetworks]:
    """They are there during the block. Skips the test without an engine, or without root."""
    need_engine()
    demand_root()
    testcontainers_config.ryuk_disabled = True  # its image is in a registry; what is left behind goes with the next run
    _forget_the_dead()
    with _bridge() as talk, _bridge() as cut:
        yield TwoNetworks(talk, cut)


@contextlib.contextmanager
def etcd_container(networks: TwoNetworks, image: str) -> Iterator[str]:
    """An etcd on the network that is cut, in a container of any image; where it answers. Skips the test where there is no etcd."""
    client, peer = f"http://{networks.store}:{_STORE_PORT}", f"http://{networks.store}:{_STORE_PORT + 1}"
    settings = {
        "data-dir": "/tmp/etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    container = (
        DockerContainer(image)
        .with_volume_mapping(etcd_program(), "/etcd", "ro")
        .with_tmpfs_mount("/tmp")  # where everybody may write
        .with_command([f"--{name}={value}" for name, value in settings.items()])
        .with_kwargs(entrypoint="/etcd", labels=_labels(), **networks.cut.endpoint(networks.store))
        .waiting_for(LogMessageWaitStrategy("ready to serve client requests"))
    )
    with container:
        yield f"{networks.store}:{_STORE_PORT}"


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What the nodes' containers are made of. `memory_bytes`: limits, of those that have one."""

    image: str
    memory_bytes: Mapping[str, int] = field(default_factory=dict)


class ContainerCluster(LocalCluster):
    """A local cluster each of whose nodes is a container on both networks, from `serve broker` or `serve nameserver`.

    A folder that is mounted into it holds its data. It ends with its process, and the same container is started again.
    """

    def __init__(self, folder: Path, shape: Shape, networks: TwoNetworks, made_of: MadeOf) -> None:
        nodes = 1 + len(shape.brokers) * (shape.slaves + 1)
        super().__init__(folder, replace(shape, hosts=tuple(map(networks.talk.address, range(nodes)))))
        self._networks = networks
        self._made_of = made_of
        self._containers: dict[str, DockerContainer] = {}

    def close(self) -> None:
        """Remove the containers; their data stays."""
        for container in self._containers.values():
            container.stop()

    def wait_in_sync(self, timeout_s: float = _STARTS_S) -> float:
        """As that of any cluster; ten containers that start at once have a core for some seconds each."""
        return super().wait_in_sync(timeout_s)

    def log_file(self, name: str) -> Path:
        """What the node's present container has printed."""
        path = super().log_file(name)
        if name in self._containers:
            path.write_bytes(b"".join(self._containers[name].get_logs()))
        return path

    def replace_image(self, name: str, image: str) -> None:
        """End a node as an orchestrator does, and start it from another image with the same data."""
        self.stop_node(name)
        self._containers.pop(name).stop()
        self._start_made_of(name, image)

    def was_out_of_memory(self, name: str) -> bool:
        """Whether the kernel has ended the node's newest process because it hit the container's limit."""
        return engine("inspect", "--format", "{{.State.OOMKilled}}", self.container(name)).stdout.strip() == "true"

    def container(self, name: str) -> str:
        """The id of the node's container."""
        return self._containers[name].get_container_id()

    @contextlib.contextmanager
    def paused(self, name: str) -> Iterator[None]:
        """The container stands still during the block."""
        engine("pause", self.container(name))
        try:
            yield
        finally:
            engine("unpause", self.container(name))

    def hit_memory_limit(self, name: str) -> None:
        """Something else in the container takes more memory than there is; the kernel ends the node for it."""
        Path(f"/proc/{self.pid(name)}/oom_score_adj").write_text("1000")
        engine("exec", self.container(name), "python3", "-c", "b'x' * (1 << 32)", check=False)

    @contextlib.contextmanager
    def unplugged(self, name: str) -> Iterator[None]:
        """The container has no interface to the network that is cut, during the block, and no other way there: not over its gateway."""
        detour = "OUTPUT", "--destination", self._networks.cut.subnet, "--jump", "DROP"
        self._filter(name, "--append", *detour)
        self._networks.cut.unplug(self.container(name))
        try:
            yield
        finally:
            self._networks.cut.plug(self.container(name), self._cut_address(name))
            self._filter(name, "--delete", *detour)

    def part(self, node: str, others: Sequence[str], *, there: bool = True, back: bool = True) -> None:
        """Drop all that a node sends to others, and what they send back, silently and until it is healed."""
        for address in map(self._cut_address, others):
            for wanted, rule in ((there, ("OUTPUT", "--destination")), (back, ("INPUT", "--source"))):
                if wanted:
                    self._filter(node, "--append", *rule, address, "--jump", "DROP")

    def heal(self) -> None:
        """Let everything through again."""
        for name in filter(self.is_alive, self._containers):
            self._filter(name, "--flush")

    def _filter(self, name: str, *rule: str) -> None:
        command = ["nsenter", "--target", str(self.pid(name)), "--net", "iptables", "--wait", *rule]
        subprocess.run(command, check=True, capture_output=True, text=True)

    def _cut_address(self, name: str) -> str:
        return self._networks.store if name == STORE else self._networks.cut.address([node.name for node in self.nodes].index(name))

    def _start_node(self, name: str) -> None:
        if name in self._containers:
            self._containers[name].get_wrapped_container().start()
            self._write_process(name)
        else:
            self._start_made_of(name, self._made_of.image)

    def _start_made_of(self, name: str, image: str) -> None:
        container = self._containers[name] = self._new_container(name, image)
        container.start()
        self._networks.cut.plug(container.get_container_id(), self._cut_address(name))  # before any Python has been imported
        self._write_process(name)

    def _new_container(self, name: str, image: str) -> DockerContainer:
        state = self.settled()
        node, data = state.node(name), self.data_dir(name)
        data.mkdir(mode=0o700, exist_ok=True)
        os.chown(data, _USER, _USER)
        config = self.folder / f"{node.file_stem}.toml"
        config.write_text(config_text(state, node, Path("/data"), self._certified(state, node.file_stem, node.host)))
        command = ["nameserver", "--config", "/node.toml"]
        if name != NAMESERVER:
            replication = f"{self._cut_address(name)}:{node.ports.replication}"
            separate = (f"listen.replication=0.0.0.0:{node.ports.replication}", f"advertise_replication.default={replication}")
            command = ["broker", "--config", "/node.toml", *itertools.chain(*(("--set", setting) for setting in separate))]
        limit = self._made_of.memory_bytes.get(name)
        limits: dict[str, Any] = {"mem_limit": limit, "memswap_limit": limit} if limit else {}
        rights = {"read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"]}
        return (
            DockerContainer(image)
            .with_volume_mapping(config, "/node.toml", "ro")
            .with_volume_mapping(data, "/data", "rw")
            .with_tmpfs_mount("/tmp")  # of the container
            .with_command(command)
            .with_kwargs(labels=_labels(), **rights, **limits, **self._networks.talk.endpoint(node.host))
        )

    def _write_process(self, name: str) -> None:
        container = self._containers[name].get_wrapped_container()
        container.reload()
        state = read_state(self.folder)
        assert state is not None, "a node is started only in a settled shape"
        identity = processes.identify(container.attrs["State"]["Pid"])
        write_state(self.folder, state.with_node(replace(state.node(name), process=identity)))

    def _end(self, name: str, how: Callable[[processes.ProcessIdentity], None]) -> None:
        super()._end(name, how)
        if name in self._containers:
            self._containers[name].wait()  # the engine notices it a little later, and starts nothing before


@contextlib.contextmanager
def _bridge() -> Iterator[Bridge]:
    number = (os.getpid() * 8 + next(_numbers)) % _NETWORKS
    prefix = f"198.{18 + number // 256}.{number % 256}."
    ipam = IPAMConfig(pool_configs=[IPAMPool(subnet=f"{prefix}0/24", gateway=f"{prefix}1")])
    with Network(docker_network_kw={"ipam": ipam, "labels": _labels()}) as network:
        reach(f"{prefix}0/24")
        yield Bridge(network, prefix)


def _labels() -> dict[str, str]:
    return {_OWNER: str(os.getpid())}


def _forget_the_dead() -> None:
    """Containers and networks of test processes that were killed before they could remove them."""
    for kind, remove in (("container", ("rm", "--force", "--volumes")), ("network", ("rm",))):
        every = ("--all",) if kind == "container" else ()
        listed = engine(kind, "ls", *every, "--filter", f"label={_OWNER}", "--format", f'{{{{.ID}}}} {{{{.Label "{_OWNER}"}}}}').stdout
        for identifier, pid in (line.split() for line in listed.splitlines()):
            if not Path("/proc", pid).exists():
                engine(kind, *remove, identifier, check=False)
