"""What a broker node registers with the nameservers, alike for both roles."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from dittomq.commitlog.records.format import Host
from dittomq.metadata.made_of_rows import MadeOfRows
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from dittomq.routes import DEFAULT_NETWORK, BrokerState, Registration, Role, TopicQueues

_PORT_DIGITS = 5


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What a node is. Addresses are "host:port" by network name; `broker_id` is the one in routes, see `wire_id`."""

    cluster: str
    broker: str
    broker_id: int
    configured_id: int
    replica_uuid: str
    role: Role
    addresses: Mapping[str, str]
    replication_addresses: Mapping[str, str]
    permission: int
    registration_period_ms: int


class Registrations:
    """Says what a node registers; topics that have not changed since it last said so are the same objects."""

    def __init__(self) -> None:
        self._topics: MadeOfRows[TopicConfig, TopicQueues] = MadeOfRows(_queues_of)

    def of(self, identity: NodeIdentity, epoch: Epoch, state: BrokerState, topics: Table[TopicConfig]) -> Registration:
        """As it is now; `epoch` is the one in which a master leads, and of a slave the newest of its log."""
        return Registration(
            cluster=identity.cluster,
            broker=identity.broker,
            broker_id=identity.broker_id,
            replica_uuid=identity.replica_uuid,
            epoch=epoch,
            role=identity.role,
            state=state,
            addresses=identity.addresses,
            replication_addresses=identity.replication_addresses,
            permission=identity.permission,
            topics=self._topics.of(topics.rows.values()),
            data_version=topics.version,
            registration_period_ms=identity.registration_period_ms,
            configured_id=identity.configured_id,
        )


def _queues_of(row: TopicConfig) -> TopicQueues:
    return TopicQueues(row.name, row.read_queues, row.write_queues, row.permission)


def advertised(addresses: Mapping[str, str], listening: str, port: int) -> Mapping[str, str]:
    """The addresses to register: as configured, or the listening one with the port that was bound (a wildcard becomes loopback)."""
    if DEFAULT_NETWORK in addresses:
        return addresses
    host = listening.rpartition(":")[0]
    known = "127.0.0.1" if host in ("0.0.0.0", "[::]", "") else host  # compared, not bound
    return {**addresses, DEFAULT_NETWORK: f"{known}:{port}"}


def record_host(addresses: Mapping[str, str], listening: str) -> Host:
    """What the records of a node name as the host that stored them: where most clients reach it, as far as settings tell.

    A record holds an address: a name stands there as 0.0.0.0, a port that is still to be taken as 0.
    """
    text, _, port = advertised(addresses, listening, _port(listening))[DEFAULT_NETWORK].rpartition(":")
    return Host(_packed(text.strip("[]")), _port(port))


def _port(address: str) -> int:
    """0 where there is none."""
    digits = address.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and len(digits) <= _PORT_DIGITS else 0


def _packed(text: str) -> bytes:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return bytes(4)
    return (getattr(address, "ipv4_mapped", None) or address).packed
