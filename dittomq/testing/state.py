"""What a local cluster's folder says of it: its shape, its ports, its processes."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dittomq.errors import ConfigError
from dittomq.testing.ports import Ports
from dittomq.testing.processes import ProcessIdentity

STATE_FILE = "local.json"
TLS_FOLDER = "tls"
SCHEMA = 1
NAMESERVER = "nameserver"
CLIENT = "client"

Settings = Mapping[str, str | int | list[str]]

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Shape:
    """What a local cluster consists of: a nameserver, and for each broker group one master and `slaves` slaves.

    Settings go into the configuration of the node 0 of each group, of the other nodes or of the nameserver, by "table.key".
    `usual_ports` False: never those. `hosts`: where the nodes listen, in the order in which they start; 127.0.0.1 for those without.
    `tls`: all connections are encrypted, with certificates of an authority of the folder's own.
    """

    slaves: int = 2
    brokers: tuple[str, ...] = ("a",)
    mode: str = "SYNC_MASTER"
    master_settings: Settings = field(default_factory=dict)
    slave_settings: Settings = field(default_factory=dict)
    usual_ports: bool = True
    nameserver_settings: Settings = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    tls: bool = False


@dataclass(frozen=True, slots=True)
class LocalNode:
    """One process of the cluster; `name` is "nameserver" or "a/0". `process` is None when it was never started or was stopped."""

    name: str
    ports: Ports
    process: ProcessIdentity | None = None
    host: str = LOOPBACK

    @property
    def role(self) -> str:
        """nameserver, master or slave, as configured; the group record decides over it."""
        if self.name == NAMESERVER:
            return NAMESERVER
        return "master" if self.name.endswith("/0") else "slave"

    @property
    def file_stem(self) -> str:
        """The node's name in file names."""
        return self.name.replace("/", "-")

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"{self.host}:{self.ports.clients}"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """All of it; nodes in the order in which they start.

    `cluster` is like no other's, so that two clusters that were promised the same port at once never mix: one of them refuses to start.
    """

    cluster: str
    shape: Shape
    nodes: tuple[LocalNode, ...]

    def node(self, name: str) -> LocalNode:
        """The node of that name; ConfigError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes)
        raise ConfigError(name, f"no such node in the local cluster; it has {known}")

    def with_node(self, changed: LocalNode) -> "ClusterState":
        """The same cluster with one node changed."""
        return replace(self, nodes=tuple(changed if node.name == changed.name else node for node in self.nodes))


def read_state(folder: Path) -> ClusterState | None:
    """The cluster of a folder, None when it has none; ConfigError when the file cannot be understood."""
    path = folder / STATE_FILE
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
        if document["schema"] != SCHEMA:
            raise ConfigError(str(path), f"has schema {document['schema']}, this version reads {SCHEMA}; delete the folder")
        return ClusterState(document["cluster"], _decode_shape(document["shape"]), tuple(_decode_node(node) for node in document["nodes"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(str(path), "is not a local cluster's state; stop its processes by hand and delete the folder") from error


def write_state(folder: Path, state: ClusterState) -> None:
    """Replace the folder's state; a reader sees the old one or the new one."""
    path = folder / STATE_FILE
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps({"schema": SCHEMA} | asdict(state), indent=1))
    draft.replace(path)


def _decode_shape(document: dict[str, Any]) -> Shape:
    # JSON has no tuples; a folder of an older version names no broker groups and no hosts.
    tuples = {name: tuple(document.get(name, getattr(Shape(), name))) for name in ("brokers", "hosts")}
    return Shape(**document | tuples)


def _decode_node(document: dict[str, object]) -> LocalNode:
    ports = document["ports"]
    process = document["process"]
    if not isinstance(ports, dict) or not isinstance(process, dict | None):
        raise TypeError("ports and process are tables")
    identity = ProcessIdentity(**process) if process else None
    return LocalNode(str(document["name"]), Ports(**ports), identity, str(document.get("host", LOOPBACK)))
