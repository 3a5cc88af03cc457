"""A real group whose slaves reach a/0, and whose clients reach it, over proxies of the test's own."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dittomq.client import Client
from dittomq.testing.state import read_state
from tests.support.history import History
from tests.support.proxy import Proxy
from tests.support.real_group import MASTER, RealGroup, Settings, real_group, shape

QUICK: Settings = {"replication.heartbeat_ms": 200, "replication.leave_ms": 1_000, "failover.peer_timeout_ms": 1_500}
SILENCE_S = 1.5


@dataclass(frozen=True, slots=True)
class LinkedGroup:
    """`link` lies between the slaves and the replication port of a/0, `way_in` between `mq` and a/0.

    `history` is of all that the tests do with it.
    """

    group: RealGroup
    link: Proxy
    way_in: Proxy
    mq: Client
    history: History


@contextlib.contextmanager
def linked_group(folder: Path, slaves: int = 1, *, master: Settings | None = None, slave: Settings | None = None) -> Iterator[LinkedGroup]:
    """It is in sync, over healed proxies; its streams end after 1.5 s of silence, and a heartbeat comes every 0.2 s."""
    link, way_in = Proxy(port_of(folder, "replication")), Proxy(port_of(folder, "clients"))
    linked = {"advertise_replication.default": link.address}
    of = shape(slaves, master={**QUICK, **linked, **(master or {})}, slave={**QUICK, **(slave or {})})
    with link.running(), way_in.running(), real_group(folder, of) as group:
        address = group.address(MASTER)
        with Client(group.cluster.nameserver, address_map={address: way_in.address}) as mq:
            yield LinkedGroup(group, link, way_in, mq, History(group))


def port_of(folder: Path, kind: str, name: str = MASTER) -> Callable[[], tuple[str, int]]:
    """Asks where a node of the cluster that is started in that folder listens for replicas or clients."""

    def ask() -> tuple[str, int]:
        state = read_state(folder / "cluster")
        if state is None:
            raise ConnectionRefusedError("the cluster is not there yet")
        return "127.0.0.1", getattr(state.node(name).ports, kind)

    return ask
