"""The other copies of a node's log: those that it talks to anyway, and those that the nameservers know."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dittomq.broker.fetching import RangeSource
from dittomq.broker.mending import Peer
from dittomq.errors import DittoError
from dittomq.routes import Node, Role


@dataclass(frozen=True, slots=True)
class GroupPeers:
    """Finds them. `known` gives names and replication addresses, `brokers` all nodes of the cluster; both leave this node itself in."""

    cluster: str
    broker: str
    replica_uuid: str
    ranges: Callable[[str], RangeSource]
    known: Callable[[], Sequence[tuple[str, str]]]
    brokers: Callable[[], Awaitable[list[Node]]]

    async def find(self) -> list[Peer]:
        """Those known first, then the master, then slaves; only the known ones while no nameserver answers."""
        try:
            nodes = await self.brokers()
        except DittoError:
            nodes = []
        ours = [node for node in nodes if (node.cluster, node.broker) == (self.cluster, self.broker)]
        here = {node.replication_address for node in ours if node.replica_uuid == self.replica_uuid}
        listed = [(node.name, node.replication_address) for node in sorted(ours, key=lambda node: node.role is Role.SLAVE)]
        names = {address: name for name, address in listed}
        found = {address: names.get(address, name) for name, address in (*self.known(), *listed) if address and address not in here}
        return [Peer(name, self.ranges(address)) for address, name in found.items()]
