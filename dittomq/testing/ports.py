"""Ports for a local cluster: the usual ones where they are free, others where they are not."""

import fcntl
import functools
import os
import random
import socket
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

NAMESERVER_PORT = 9876
BROKER_PORT = 10_911
BROKER_STEP = 10
# Below the range from which Linux takes the local ports of outgoing connections.
_FREE_RANGE = range(20_000, 32_000)


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports of one node on 127.0.0.1; a nameserver has no replication port."""

    clients: int
    replication: int | None
    ops: int

    def all(self) -> tuple[int, ...]:
        """Every port of the node."""
        return tuple(port for port in (self.clients, self.replication, self.ops) if port is not None)


def nameserver_ports(clients: int) -> Ports:
    """A nameserver's ports: ops is the next one."""
    return Ports(clients, None, clients + 1)


def broker_ports(clients: int) -> Ports:
    """A broker's ports: replication is the next one, ops the third."""
    return Ports(clients, clients + 1, clients + 3)


def choose_ports(brokers: int, chance: random.Random, *, usual: bool = True) -> tuple[Ports, ...]:
    """Ports for a nameserver and `brokers` brokers, each free when looked at; a node whose usual ports are taken gets others.

    Nobody else who chooses gets them, bound or not, until they are given back or this process ends.
    """
    wanted = [nameserver_ports(NAMESERVER_PORT)]
    wanted += [broker_ports(BROKER_PORT + BROKER_STEP * number) for number in range(brokers)]
    chosen: list[Ports] = []
    for ports in wanted:
        taken = [port for other in chosen for port in other.all()]
        chosen.append(ports if usual and _reserve(ports) else _free_like(ports, chance, taken))
    return tuple(chosen)


def give_back(ports: Ports) -> None:
    """Others may choose them again."""
    claims = _reservations()
    if claims is not None:
        for port in ports.all():
            fcntl.lockf(claims, fcntl.LOCK_UN, 1, port)


def all_free(ports: Iterable[int]) -> bool:
    """Whether each of these can be bound now."""
    return all(_is_free(port) for port in ports)


def _free_like(wanted: Ports, chance: random.Random, taken: Sequence[int]) -> Ports:
    make = nameserver_ports if wanted.replication is None else broker_ports
    for _ in range(1_000):
        ports = make(chance.choice(_FREE_RANGE))
        if not set(ports.all()) & set(taken) and _reserve(ports):
            return ports
    raise OSError("no free ports between 20000 and 32000")


def _reserve(ports: Ports) -> bool:
    """Between the look at a port and its bind somebody else may look too: the byte of that number is locked in a file of all who choose."""
    if not all_free(ports.all()):
        return False
    claims = _reservations()
    if claims is None:
        return True
    try:
        for port in ports.all():
            fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):  # EAGAIN and EACCES: somebody else has it
        give_back(ports)
        return False
    except OSError:  # a file system without locks
        return True
    return True


@functools.cache
def _reservations() -> int | None:
    """One descriptor for the process's life, for closing it would drop its locks; None where the folder takes no such file."""
    path = Path(tempfile.gettempdir()) / f"dittomq-ports-{os.getuid()}"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port that only waits for old connections to fade counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
