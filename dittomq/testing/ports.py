"""Ports for a local cluster: the usual ones where they are free, others where they are not."""

import random
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    """Ports for a nameserver and `brokers` brokers, each free when looked at; a node whose usual ports are taken gets others."""
    wanted = [nameserver_ports(NAMESERVER_PORT)]
    wanted += [broker_ports(BROKER_PORT + BROKER_STEP * number) for number in range(brokers)]
    chosen: list[Ports] = []
    for ports in wanted:
        taken = [port for other in chosen for port in other.all()]
        chosen.append(ports if usual and all_free(ports.all()) else _free_like(ports, chance, taken))
    return tuple(chosen)


def all_free(ports: Iterable[int]) -> bool:
    """Whether each of these can be bound now."""
    return all(_is_free(port) for port in ports)


def _free_like(wanted: Ports, chance: random.Random, taken: Sequence[int]) -> Ports:
    make = nameserver_ports if wanted.replication is None else broker_ports
    for _ in range(1_000):
        ports = make(chance.choice(_FREE_RANGE))
        if not set(ports.all()) & set(taken) and all_free(ports.all()):
            return ports
    raise OSError("no free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port that only waits for old connections to fade counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
        return True
