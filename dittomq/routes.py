"""Where a topic's queues live and which nodes hold them: what nameservers tell and clients cache."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from dittomq.offsets import Epoch

PERMISSION_READ = 4
PERMISSION_WRITE = 2


class Role(StrEnum):
    """What a node does in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class NodeState(StrEnum):
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


@dataclass(frozen=True, slots=True)
class TopicQueues:
    """A topic in one broker group. Permission bits: 4 read, 2 write."""

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
    state: NodeState
    epoch: Epoch
    address: str
    replication_address: str
    seen_ms: int
    data_version: DataVersion
    replica_uuid: str
    addresses: Mapping[str, str]
    configured_id: int | None = None  # None: its broker id

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
    """A topic's queues in one broker group."""

    broker: str
    read_queues: int
    write_queues: int
    permission: int


@dataclass(frozen=True, slots=True)
class Route:
    """A topic's route. `unsettled`: groups and nodes may be missing that a nameserver has not heard of yet, because it is newly up.

    `silent`: the first groups, by name, of which no node is registered; they may hold queues of the topic too.
    """

    topic: str
    cluster: str
    queues: tuple[QueueRange, ...]
    nodes: tuple[Node, ...]
    unsettled: bool = False
    silent: tuple["SilentGroup", ...] = ()


DEFAULT_NETWORK = "default"


@dataclass(frozen=True, slots=True)
class Opening:
    """An epoch, and the configured id of the node that opened it or was granted it; None when that is unknown."""

    epoch: Epoch
    opener_id: int | None


NO_OPENING = Opening(Epoch(0), None)
"""Nobody has opened an epoch, as far as is known."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Why a node leads: what it opened, and the epoch that the last role change granted it; None when there was none."""

    opening: Opening
    granted: Epoch | None

    @property
    def rank(self) -> tuple[Epoch, Epoch, int]:
        """Of two that lead, the higher one leads on. In one epoch it is whom an operator chose last; of two equal ones the lower id."""
        return self.opening.epoch, self.granted or Epoch(0), -(self.opening.opener_id or 0)


@dataclass(frozen=True, slots=True)
class Registration:
    """What a broker node tells every nameserver about itself. Addresses are "host:port" by network; "default" is among them."""

    cluster: str
    broker: str
    broker_id: int
    replica_uuid: str
    epoch: Epoch
    role: Role
    state: NodeState
    addresses: Mapping[str, str]
    replication_addresses: Mapping[str, str]
    permission: int
    topics: tuple[TopicQueues, ...]
    data_version: DataVersion
    registration_period_ms: int
    configured_id: int | None = None  # None: its broker id
    opener_id: int | None = None  # who opened `epoch`; None: unknown
    granted_epoch: Epoch | None = None  # what the last role change granted a master; None: nothing

    @property
    def node(self) -> str:
        """ "broker/id" as configured."""
        return f"{self.broker}/{_named_id(self.broker_id, self.configured_id)}"

    @property
    def opening(self) -> Opening:
        """The newest epoch that the node knows of."""
        return Opening(self.epoch, self.opener_id)


@dataclass(frozen=True, slots=True)
class Membership:
    """A nameserver's answer to a registration. The master's addresses are empty when it knows none.

    `master_epoch`: the newest epoch that this master itself told of; None where the nameserver does not tell.
    `epoch_kept`: the newest epoch of the group that it knows is on its disk: it will know it after a restart too.
    """

    session_id: str
    master: str
    master_replication: str
    master_epoch: Epoch | None
    broker_expiry_ms: int
    newest: Opening
    uptime_ms: int
    epoch_kept: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat: what may have changed since the registration of this session."""

    session_id: str
    data_version: DataVersion
    epoch: Epoch
    state: NodeState
    opener_id: int | None = None


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """A nameserver's answer to a heartbeat. `rival`: why another replica leads that was refused the node's id since the last one.

    `epoch_kept`: the newest epoch of the group that it knows is on its disk.
    """

    register_again: bool
    master: str
    master_replication: str
    master_epoch: Epoch | None
    rival: Claim | None = None
    epoch_kept: bool = False


@dataclass(frozen=True, slots=True)
class SilentGroup:
    """A broker group of which no node is registered, and the newest epoch of it that nameservers were ever told of.

    `unsettled`: they are newly up and have not heard of it since: its nodes may not have registered yet.
    """

    cluster: str
    broker: str
    newest: Opening
    unsettled: bool = False

    @property
    def opener(self) -> str | None:
        """The node that opened that epoch; None when that is unknown."""
        return None if self.newest.opener_id is None else f"{self.broker}/{self.newest.opener_id}"


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """A nameserver is to forget a group of which it knows no epoch newer than `epoch`; `validate_only`: only whether it would."""

    cluster: str
    broker: str
    epoch: Epoch
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a nameserver remembered of a group, NO_OPENING for nothing. `kept`: its disk has it no more either."""

    newest: Opening
    kept: bool


@dataclass(frozen=True, slots=True)
class NodePage:
    """Some nodes in the order of broker name and id, behind the last of them silent groups; an empty token means that no more follow."""

    nodes: tuple[Node, ...]
    next_page_token: str
    silent: tuple[SilentGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterListing:
    """All that nameservers know of a cluster: its nodes, in the order of broker name and id, and the groups of which none is registered."""

    nodes: tuple[Node, ...]
    silent: tuple[SilentGroup, ...] = ()

    @property
    def cluster(self) -> str | None:
        """Its name; None of one that is empty."""
        if self.nodes:
            return self.nodes[0].cluster
        return self.silent[0].cluster if self.silent else None

    def silent_group(self, broker: str) -> SilentGroup | None:
        """That group, if it is a silent one."""
        return next((group for group in self.silent if group.broker == broker), None)

    def silence_of(self, name: str) -> str:
        """Of a group that is silent, or a node of it, what that means and what to do; empty of any other."""
        broker, _, node_id = name.partition("/")
        group = self.silent_group(broker)
        if group is None:
            return ""
        known = f"nameservers know its group {broker}, and no node of that" if node_id else "nameservers know it, and no node of it"
        if group.unsettled:
            return f"{known} has registered since they were started; ask again in half a minute"
        return f"{known} is registered now; start its nodes, and see dittomq ha-status"


def _named_id(broker_id: int, configured_id: int | None) -> int:
    return broker_id if configured_id is None else configured_id
