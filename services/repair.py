"""A broker's mender, put together for either role."""

from collections.abc import Callable, Sequence

from dittomq.broker.config import BrokerConfig
from dittomq.broker.doors import BrokerDoors
from dittomq.broker.peer_directory import PeerDirectory
from dittomq.broker.range_client import RangeClient
from dittomq.broker.repair import Repairer, RepairerParts
from dittomq.commitlog.store import Store
from dittomq.naming.route_cache import RouteCache
from dittomq.rpc.channel import Channels
from services.broker_lifecycle import Lanes

Known = Callable[[], Sequence[tuple[str, str]]]
"""Names and replication addresses of copies that a node talks to anyway."""


def make_repairer(
    config: BrokerConfig, doors: BrokerDoors, store: Store, lanes: Lanes, *, channels: Channels
) -> Callable[[Known], Repairer]:
    """A mender that asks whom the node knows, and whom the nameservers do."""
    routes = RouteCache(config.node.nameservers, channels, doors.clock, cluster=config.node.cluster)

    def of(known: Known) -> Repairer:
        peers = PeerDirectory(
            replica_uuid=store.replica_uuid,
            ranges=lambda address: RangeClient(channels, address, config),
            known=known,
            nodes=lambda: routes.nodes_of(config.node.broker),
        )
        return Repairer(RepairerParts(config.name, store, lanes.store, lanes.files, lanes.audit, doors.chance), peers.find)

    return of
