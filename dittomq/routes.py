"""Where a topic's queues live and which nodes hold them: what nameservers tell and clients cache."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple, Self

from dittomq.errors import InvalidField
from dittomq.offsets import Epoch

PERMISSION_READ = 4
PERMISSION_WRITE = 2
MASTER_ID = 0
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""RocketMQ's namespace of nameservers' values that says by topic which queues its order keys are spread over."""
MAX_ORDER_QUEUES = 1_024

_BROKER = re.compile(r"[a-zA-Z0-9_.-]{1,127}")
_COUNT = re.compile(r"[0-9]{1,4}")


class Role(StrEnum):
    """What a node does in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class BrokerState(StrEnum):
    """Whether a node serves in its role or still recovers."""

    RECOVERING = "recovering"
    SERVING = "serving"


@dataclass(frozen=True, slots=True)
class DataVersion:
    """RocketMQ's version of a table: equal versions mean equal tables. `state_version` is the epoch of the master that made the change."""

    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def __str__(self) -> str:
        return f"{self.state_version}.{self.counter}.{self.timestamp_ms}"

    def is_newer_than(self, other: Self) -> bool:
        """RocketMQ's order: state version, then counter, then timestamp."""
        return (self.state_version, self.counter, self.timestamp_ms) > (other.state_version, other.counter, other.timestamp_ms)

    def next(self, epoch: int, now_ms: int) -> Self:
        """The version after one more change; newer than this one also when the clock went back."""
        return replace(self, state_version=max(epoch, self.state_version), timestamp_ms=now_ms, counter=self.counter + 1)


class TopicQueues(NamedTuple):
    """A topic in one broker group. Permission bits: 4 read, 2 write. Nameservers compare millions of them: hence a tuple."""

    topic: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True, slots=True)
class Node:
    """A broker node as a nameserver knows it; addresses are "host:port" on the network asked for."""

    cluster: str
    broker: str
    broker_id: int
    role: Role
    state: BrokerState
    epoch: Epoch
    address: str
    replication_address: str
    seen_ms: int
    data_version: DataVersion
    replica_uuid: str
    addresses: Mapping[str, str]
    configured_id: int | None = None  # None: its broker id

    @property
    def leads(self) -> bool:
        """Whether it is the master of its group; of several that say so the one of the highest epoch is."""
        return self.broker_id == MASTER_ID and self.role is not Role.SLAVE

    @property
    def named_id(self) -> int:
        """The id in the node's name."""
        return _named_id(self.broker_id, self.configured_id)

    @property
    def name(self) -> str:
        """ "broker/id" as configured: a role change does not rename a node."""
        return f"{self.broker}/{self.named_id}"


@dataclass(frozen=True, slots=True)
class QueueRange:
    """A topic's queues in one broker group. `writes_off`: it is closed for writing, so `permission` lacks 2 whatever the topic has."""

    broker: str
    read_queues: int
    write_queues: int
    permission: int
    writes_off: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's route. `warming_up`: groups and nodes may be missing that have not registered yet since the nameserver was started.

    `order_config`: the queues that order keys are spread over, see `order_queues`; empty: all that may be written.
    """

    topic: str
    cluster: str
    queues: tuple[QueueRange, ...]
    nodes: tuple[Node, ...]
    warming_up: bool = False
    order_config: str = ""


@dataclass(frozen=True, slots=True)
class RouteWatchOrder:
    """Topics whose routes are to be told again and again, in `max_responses` answers at most; 0: any number."""

    topics: tuple[str, ...]
    network: str = ""
    max_responses: int = 0


@dataclass(frozen=True, slots=True)
class WatchedRoute:
    """What is known of a topic: its route, or the `reason` why there is none, "" where there is one."""

    topic: str
    route: Route | None
    reason: str


DEFAULT_NETWORK = "default"


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker node registers with every nameserver. Addresses are "host:port" by network; "default" is among them.

    `broker_id` is the id on the wire, see `wire_id`. `epoch` is the one in which a master leads, and of a slave the newest of its log.
    """

    cluster: str
    broker: str
    broker_id: int
    replica_uuid: str
    epoch: Epoch
    role: Role
    state: BrokerState
    addresses: Mapping[str, str]
    replication_addresses: Mapping[str, str]
    permission: int
    topics: tuple[TopicQueues, ...]
    data_version: DataVersion
    registration_period_ms: int
    configured_id: int | None = None  # None: its broker id

    @property
    def node(self) -> str:
        """ "broker/id" as configured."""
        return f"{self.broker}/{_named_id(self.broker_id, self.configured_id)}"

    @property
    def leads(self) -> bool:
        """Whether it is the master of its group."""
        return self.broker_id == MASTER_ID and self.role is not Role.SLAVE


@dataclass(frozen=True, slots=True)
class GroupMaster:
    """The master of a group as a nameserver knows it: "host:port" of its client and its replication port, and its epoch."""

    address: str
    replication_address: str
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """A nameserver's answer to a registration. `master` is None while it knows none."""

    session_id: str
    master: GroupMaster | None
    broker_expiry_ms: int
    order_topics: Mapping[str, str] = field(default_factory=dict)  # topic → its `order_config`


@dataclass(frozen=True, slots=True)
class ChangedTopics:
    """What has changed in the topics of a node since it registered them as of version `since`: new settings by name, and names gone."""

    since: DataVersion
    changed: tuple[TopicQueues, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """A heartbeat: what may have changed since the registration of this session."""

    session_id: str
    data_version: DataVersion
    epoch: Epoch
    state: BrokerState
    changes: ChangedTopics | None = None  # None: none, or more than a heartbeat takes


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """A nameserver's answer to a heartbeat. `master` is None while it knows none.

    `must_reregister`: it knows another topic table, or has other order topics than it told.
    """

    must_reregister: bool
    master: GroupMaster | None


@dataclass(frozen=True, slots=True)
class NodePage:
    """Some nodes in the order of broker name and id; an empty token means that no more follow."""

    nodes: tuple[Node, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A value that nameservers keep."""

    namespace: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class KeyValuePage:
    """Some values of a namespace in the order of their keys; an empty token means that no more follow."""

    key_values: tuple[KeyValue, ...]
    next_page_token: str


def order_queues(config: str, field_name: str = "order_config") -> tuple[tuple[str, int], ...]:
    """The broker groups and their numbers of queues in RocketMQ's "a:4;b:4", in its order. Raises InvalidField."""
    groups: dict[str, int] = {}
    for part in config.split(";"):
        broker, _, count = part.rpartition(":")
        if not _BROKER.fullmatch(broker) or not _COUNT.fullmatch(count) or not 1 <= int(count) <= MAX_ORDER_QUEUES:
            raise InvalidField(field_name, f'"{part[:127]}" is not "broker:queues" with 1 to {MAX_ORDER_QUEUES:,} queues; write "a:4;b:4"')
        if broker in groups:
            raise InvalidField(field_name, f'names broker group "{broker}" twice')
        groups[broker] = int(count)
    return tuple(groups.items())


def wire_id(own_id: int, master_id: int | None) -> int:
    """The broker id that the node configured with `own_id` has in routes, while the one configured with `master_id` leads; None: none does.

    The master has 0. A node configured as 0 that follows has the id of the node that leads. Every other node has its own.
    """
    if own_id == master_id:
        return MASTER_ID
    return master_id if own_id == MASTER_ID and master_id is not None else own_id


def _named_id(broker_id: int, configured_id: int | None) -> int:
    return broker_id if configured_id is None else configured_id
