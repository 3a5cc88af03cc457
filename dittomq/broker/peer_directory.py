"""From whom a node may fetch its log's bytes: copies that it talks to anyway, and those that the nameservers know."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from dittomq.broker.range_server import ServedLog
from dittomq.broker.repair import RepairSource
from dittomq.errors import DittoError
from dittomq.routes import Node, Role


@dataclass(frozen=True, slots=True)
class PeerDirectory:
    """Finds them. `known` gives names and replication addresses, `nodes` the group as each nameserver lists it; both leave this node in."""

    replica_uuid: str
    ranges: Callable[[str], ServedLog]
    known: Callable[[], Sequence[tuple[str, str]]]
    nodes: Callable[[], Awaitable[list[Node]]]

    async def find(self) -> list[RepairSource]:
        """Those known first, then the master, then slaves; only the known ones while no nameserver answers."""
        try:
            ours = await self.nodes()
        except DittoError:
            ours = []
        here = {node.replication_address for node in ours if node.replica_uuid == self.replica_uuid}
        listed = [(node.name, node.replication_address) for node in sorted(ours, key=lambda node: node.role is Role.SLAVE)]
        names = {address: name for name, address in listed}
        found = {address: names.get(address, name) for name, address in (*self.known(), *listed) if address and address not in here}
        return [RepairSource(name, self.ranges(address)) for address, name in found.items()]
