"""Nodes of a local cluster in network namespaces of their own, which a hub joins and parts: each direction by itself. It needs root.

this process ── hub ──┬── nameserver
                      ├── a/0         A cut is a rule of the hub that drops what comes from one node for another: silently,
                      └── a/1 …       in that direction only, also of connections that stand.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import TypeVar

import pytest

from dittomq.testing import LocalCluster, Shape

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_NAMESPACES = Path("/run/netns")
_FIRST = IPv4Address("100.64.0.0")  # shared address space: no host of the internet has one of these
_ADDRESSES_EACH = 32
_BLOCKS = (1 << 22) // _ADDRESSES_EACH
_GATEWAY = "169.254.1.1"


class NoNamespacesError(Exception):
    """Why no network namespace can be made here."""


@dataclass(frozen=True, slots=True)
class PartedNetwork:
    """A network of some nodes. Its cuts hold until they are healed. `addresses`: of each node, in the order of `names`."""

    names: tuple[str, ...]
    addresses: tuple[str, ...]
    prefix: str

    def cut(self, sender: str, receiver: str) -> None:
        """Drop all that `sender` sends to `receiver` from now on; the other direction stays."""
        at, to = self.names.index(sender), self.addresses[self.names.index(receiver)]
        ip(f"-n {self.prefix}hub rule add iif port{at} to {to}/32 blackhole")

    def part(self, nodes: Sequence[str], others: Sequence[str], *, there: bool = True, back: bool = True) -> None:
        """Drop all that `nodes` send to `others`, and what those send back."""
        pairs = list(itertools.product(nodes, others))
        for sender, receiver in [*pairs[: len(pairs) * there], *[pair[::-1] for pair in pairs[: len(pairs) * back]]]:
            self.cut(sender, receiver)

    def heal(self) -> None:
        """Let everything through again."""
        rules = subprocess.run(["ip", "-n", f"{self.prefix}hub", "rule"], capture_output=True, text=True, check=True).stdout
        for line in rules.splitlines():
            if line.endswith("blackhole"):
                ip(f"-n {self.prefix}hub rule del priority {line.partition(':')[0]}")

    def inside(self, name: str, act: Callable[[], T]) -> T:
        """Call `act` in the namespace of that node; the processes that it starts stay there."""

        return enter_namespace(f"{self.prefix}{self.names.index(name)}", act)


class PartedCluster(LocalCluster):
    """A local cluster each of whose nodes lives in its namespace of a parted network."""

    def __init__(self, folder: Path, shape: Shape, network: PartedNetwork) -> None:
        super().__init__(folder, replace(shape, hosts=network.addresses))
        self._network = network

    def _start_node(self, name: str) -> None:
        start = super()._start_node
        self._network.inside(name, lambda: start(name))


def enter_namespace(name: str, act: Callable[[], T]) -> T:
    """Call `act` in that network namespace; the processes that it starts stay there."""

    def entered() -> T:
        namespace = os.open(_NAMESPACES / name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
        finally:
            os.close(namespace)
        return act()

    with ThreadPoolExecutor(1) as thread:  # a thread that has entered it is not used again
        return thread.submit(entered).result()


def ip(*commands: str, check: bool = True) -> None:
    """Each of them as `ip …`. Raises CalledProcessError where `check` and one failed."""
    for command in commands:
        subprocess.run(["ip", *command.split()], check=check, capture_output=True, text=True)


@contextlib.contextmanager
def parted_network(names: Sequence[str]) -> Iterator[PartedNetwork]:
    """It is there during the block, and whole. Raises NoNamespacesError."""
    if os.geteuid() != 0:
        raise NoNamespacesError("only root can part nodes by network namespaces")
    if shutil.which("ip") is None:
        raise NoNamespacesError("nodes cannot be parted by network namespaces: no ip (iproute2) on PATH")
    _forget_the_dead()
    begin = _FIRST + os.getpid() % _BLOCKS * _ADDRESSES_EACH
    network = PartedNetwork(tuple(names), tuple(str(begin + 2 + at) for at in range(len(names))), f"dittomq-{os.getpid()}-")
    with contextlib.ExitStack() as made:
        try:
            _build(network, str(begin + 1), f"{begin}/27", made)
        except subprocess.CalledProcessError as refused:
            raise NoNamespacesError(f"nodes cannot be parted by network namespaces here: {refused.stderr.strip()}") from refused
        yield network


@contextlib.contextmanager
def network_for_test(names: Sequence[str]) -> Iterator[PartedNetwork]:
    """The same; where there can be none, the test is skipped."""
    with contextlib.ExitStack() as entered:
        try:
            network = entered.enter_context(parted_network(names))
        except NoNamespacesError as why:
            pytest.skip(str(why))
        yield network


def _build(network: PartedNetwork, own: str, block: str, made: contextlib.ExitStack) -> None:
    hub, link = f"{network.prefix}hub", f"dmq{os.getpid()}"
    _namespace(hub, made)
    ip(f"link add {link} type veth peer name outside netns {hub}")
    made.callback(lambda: ip(f"link del {link}", check=False))
    _join(hub, "outside", own)
    ip(f"addr add {own}/32 dev {link}", f"link set {link} up", f"route add {block} via {_GATEWAY} dev {link} onlink src {own}")
    for at, address in enumerate(network.addresses):
        namespace = f"{network.prefix}{at}"
        _namespace(namespace, made)
        ip(f"-n {namespace} link set lo up", f"-n {namespace} link add cable type veth peer name port{at} netns {hub}")
        _join(hub, f"port{at}", address)
        ip(f"-n {namespace} addr add {address}/32 dev cable", f"-n {namespace} link set cable up")
        ip(f"-n {namespace} route add default via {_GATEWAY} dev cable onlink")
    subprocess.run(["ip", "netns", "exec", hub, "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True, capture_output=True, text=True)


def _join(hub: str, port: str, address: str) -> None:
    ip(f"-n {hub} addr add {_GATEWAY}/32 dev {port}", f"-n {hub} link set {port} up", f"-n {hub} route add {address}/32 dev {port}")


def _namespace(name: str, made: contextlib.ExitStack) -> None:
    ip(f"netns add {name}")
    made.callback(lambda: ip(f"netns del {name}", check=False))


def _forget_the_dead() -> None:
    """Namespaces of processes that were killed before they could remove them."""
    for path in _NAMESPACES.glob("dittomq-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            ip(f"netns del {path.name}", check=False)
