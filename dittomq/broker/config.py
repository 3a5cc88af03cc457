"""Configuration tables that masters and slaves read alike. Each field says its unit, its default and what it is for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from dittomq.commitlog.retention import RetentionRules
from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from dittomq.errors import InvalidField
from dittomq.message import Ack
from dittomq.naming.validation import check_address
from dittomq.routes import DEFAULT_NETWORK
from dittomq.security.settings import AccessTable, TlsTable
from dittomq.wire.naming import MAX_NETWORKS

Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]
Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-zA-Z0-9_.-]+$")]

_STAYS_POINTS = 10  # as RocketMQ 5.3.3's BrokerStartup takes off for a slave


class Mode(StrEnum):
    """What a master waits for."""

    SYNC_MASTER = "SYNC_MASTER"
    ASYNC_MASTER = "ASYNC_MASTER"


class FlushMode(StrEnum):
    """When a write is fsynced."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class ReplicaAckLevel(StrEnum):
    """Which ack of a slave counts towards the confirmed end."""

    RECEIVED = "received"
    FLUSHED = "flushed"


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Who this node is."""

    broker: Annotated[Name, Meta(description="name of the broker group")] = "a"
    broker_id: Annotated[
        int, Meta(ge=0, le=1_000_000, description="number of this node in its group, and its name for good; 0 leads a new group")
    ] = 0
    cluster: Annotated[Name, Meta(description="name of the cluster; all nodes must agree")] = "dittomq"
    data_dir: Annotated[
        str, Meta(min_length=1, description="folder of the store, in RocketMQ's layout; our own files lie in its folder dittomq")
    ] = "/data"
    nameservers: Annotated[tuple[str, ...], Meta(description='addresses of all nameservers, "host:port"')] = ()
    registration_period_ms: Annotated[
        int,
        Meta(ge=1_000, le=60_000, description="how often this node registers; three periods must fit in the nameservers' broker_expiry_ms"),
    ] = 10_000
    permission: Annotated[
        int, Meta(ge=0, le=6, description="masks the permission of every topic: 4 read, 2 write. RocketMQ: brokerPermission")
    ] = 6


@dataclass(frozen=True, slots=True)
class ListenTable:
    """Where a broker listens, "host:port"; port 0 takes a free one."""

    clients: Annotated[str, Meta(description="clients: publishing, reading, administration, audit")] = "0.0.0.0:10911"
    replication: Annotated[str, Meta(description="replicas only")] = "0.0.0.0:10912"
    ops: Annotated[str, Meta(description="plain HTTP: /metrics /startupz /readyz /livez")] = "0.0.0.0:10914"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each address on which nobody can listen."""
        for name, address in (("clients", self.clients), ("replication", self.replication), ("ops", self.ops)):
            yield from _address_problem(f"listen.{name}", address)


@dataclass(frozen=True, slots=True)
class StoreTable:
    """The store on disk."""

    segment_bytes: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="size of a commit log file; cannot be changed later. RocketMQ: mappedFileSizeCommitLog"),
    ] = 1 << 30
    min_free_bytes: Annotated[
        int,
        Meta(
            ge=1_048_576,
            description="writes are refused when an append would leave less room than this on the disk, or less than a checkpoint takes: "
            "128 KiB and more for each of up to 1,024 busy producers",
        ),
    ] = 256 * 1024 * 1024
    disk_timeout_ms: Annotated[
        Milliseconds, Meta(description="the node ends when a write or sync of one file has not returned for so long")
    ] = 30_000


@dataclass(frozen=True, slots=True)
class RetentionTable:
    """What goes of the beginning of the log, in whole files. Everything is kept unless one of the rules is set."""

    max_age_ms: Annotated[
        int,
        Meta(
            ge=0, description="files go whose newest message was stored longer ago; 0: age is no reason. RocketMQ: fileReservedTime, 72 h"
        ),
    ] = 0
    max_used_percent: Annotated[
        int,
        Meta(ge=0, le=99, description="the oldest files go while more of the disk is used; 0: no limit. RocketMQ: diskMaxUsedSpaceRatio"),
    ] = 0
    forced_used_percent: Annotated[
        int,
        Meta(
            ge=0, le=99, description="above it they go even if a slave or an audit still wants them; 0: never. RocketMQ: cleanFileForcibly"
        ),
    ] = 0
    check_period_ms: Annotated[Milliseconds, Meta(description="how often that is looked at. RocketMQ: cleanResourceInterval")] = 10_000

    @property
    def rules(self) -> RetentionRules:
        """What the decider needs of the settings."""
        return RetentionRules(self.max_age_ms, self.max_used_percent, self.forced_used_percent)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        if 0 < self.forced_used_percent < self.max_used_percent:
            yield (
                "retention.forced_used_percent",
                f"{self.forced_used_percent} is less than the {self.max_used_percent} of max_used_percent; raise it",
            )


Addresses = Annotated[
    Mapping[str, str],
    Meta(
        description='addresses, "host:port", by network name of lower-case letters, digits, dashes or underscores; "default" is what '
        "brokers and most clients use"
    ),
]


def no_addresses() -> Mapping[str, str]:
    """Nothing advertised: the listening address is used, with the host name for a wildcard."""
    return {}


@dataclass(frozen=True, slots=True)
class ReadingTable:
    """Reading."""

    master_timeout_ms: Annotated[
        Milliseconds, Meta(description="silence of the master after which a slave serves all it has flushed, marking what may be undone")
    ] = 30_000
    access_message_in_memory_max_ratio: Annotated[
        int,
        Meta(
            ge=0,
            le=100,
            description="percent of memory, the container's where it has a limit; whoever reads farther back from the log's end is told to "
            "read from slave 1, and to stay there until it is 10 points less. RocketMQ: accessMessageInMemoryMaxRatio",
        ),
    ] = 40

    def in_memory_bytes(self, memory_bytes: int, *, slave: bool) -> int:
        """So far back from the log's end the master is the one to read from; less at a slave, so that readers do not go to and fro."""
        ratio = self.access_message_in_memory_max_ratio
        return memory_bytes * max(0, ratio - _STAYS_POINTS if slave else ratio) // 100


@dataclass(frozen=True, slots=True)
class ReplicationTable:
    """Copies and acknowledgement. The same on every node of a group, for each may come to lead it."""

    mode: Annotated[Mode, Meta(description="whether a message is confirmed by copies or by the master alone. RocketMQ: brokerRole")] = (
        Mode.SYNC_MASTER
    )
    replicas_expected: Annotated[
        int, Meta(ge=0, le=16, description="slaves of this broker group; 0: no group record, and slaves that connect do not count")
    ] = 0
    in_sync_replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=17,
            description="copies asked for, the master counts; 0: min(2, replicas_expected + 1) for a SYNC_MASTER, 1 for an ASYNC_MASTER. "
            "RocketMQ: inSyncReplicas, default 1",
        ),
    ] = 0
    min_in_sync_replicas: Annotated[
        int,
        Meta(ge=1, le=17, description="floor for degrade of a SYNC_MASTER; below it every write is refused. RocketMQ: minInSyncReplicas"),
    ] = 1
    flush_mode: Annotated[
        FlushMode,
        Meta(description="whether each group of writes is fsynced at once, or now and then. RocketMQ: flushDiskType, default ASYNC_FLUSH"),
    ] = FlushMode.SYNC_FLUSH
    replica_ack_level: Annotated[
        ReplicaAckLevel, Meta(description="which ack of a slave counts: for what it holds, or for what it has fsynced")
    ] = ReplicaAckLevel.FLUSHED
    ack_timeout_ms: Annotated[
        Milliseconds,
        Meta(
            description="how long a producer that says nothing else waits for its level; a slave that is waited for in vain for so "
            "long, twice, leaves the in-sync set. RocketMQ: slaveTimeout"
        ),
    ] = 3_000
    leave_ms: Annotated[
        Milliseconds,
        Meta(description="a member of the in-sync set without a stream for so long is removed from it; less than failover.peer_timeout_ms"),
    ] = 2_000
    ha_max_gap_bytes: Annotated[int, Meta(ge=1, description="a slave further behind is not in sync. RocketMQ: haMaxGapNotInSync")] = (
        256 * 1024 * 1024
    )
    ha_max_lag_ms: Annotated[
        Milliseconds, Meta(description="a slave that did not catch up for so long is not in sync. RocketMQ: haMaxTimeSlaveNotCatchup")
    ] = 15_000
    max_slot_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="every node keeps the log for a known slave, also one that is away, until it is further behind than this",
        ),
    ] = 64 * 1024 * 1024 * 1024
    heartbeat_ms: Annotated[
        Milliseconds, Meta(description="how often a heartbeat goes to each slave. RocketMQ: haSendHeartbeatInterval, 5 s")
    ] = 500
    max_inflight_bytes: Annotated[
        int, Meta(ge=1_048_576, le=1_073_741_824, description="no chunk leaves while so much is on its way to a slave without an ack")
    ] = 16 * 1024 * 1024
    max_bytes_per_s: Annotated[
        int,
        Meta(
            ge=0,
            description="bytes of the log for all replicas together, in any second, and one chunk, streamed or fetched as ranges; "
            "0: no limit. Heartbeats never wait",
        ),
    ] = 0
    max_bytes_per_s_per_slave: Annotated[
        int, Meta(ge=0, description="the same for each replica by itself. RocketMQ: maxHaTransferByteInSecond with haFlowControlEnable")
    ] = 0
    verify_bytes_per_s: Annotated[
        int,
        Meta(
            ge=4_096,
            le=1 << 40,
            description="so much of a slave's copy is compared by content when it connects, and each second beside the stream, until all "
            "that both hold is verified",
        ),
    ] = 64 * 1024 * 1024
    master_address: Annotated[
        str,
        Meta(
            description='a slave\'s: replication address of its master, "host:port"; empty: as nameservers say. RocketMQ: haMasterAddress'
        ),
    ] = ""

    @property
    def asked_copies(self) -> int:
        """q: copies that a confirmed message is on; the master counts."""
        if self.in_sync_replicas:
            return self.in_sync_replicas
        return min(2, self.replicas_expected + 1) if self.mode is Mode.SYNC_MASTER else 1

    @property
    def acks_unsynced(self) -> bool:
        """Whether a slave's ack of what is not synced yet counts: power loss may then take acknowledged bytes."""
        return self.flush_mode is FlushMode.ASYNC_FLUSH or self.replica_ack_level is ReplicaAckLevel.RECEIVED

    @property
    def default_ack(self) -> Ack:
        """The level of a producer that asks for none."""
        flushed = self.flush_mode is FlushMode.SYNC_FLUSH
        if self.mode is Mode.SYNC_MASTER and self.asked_copies > 1:
            return Ack.REPLICA_FLUSHED if flushed and self.replica_ack_level is ReplicaAckLevel.FLUSHED else Ack.REPLICA_RECEIVED
        return Ack.MASTER_FLUSHED if flushed else Ack.MASTER_RECEIVED


class FailoverMode(StrEnum):
    """Who starts elections."""

    AUTOMATIC = "automatic"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class FailoverTable:
    """Elections."""

    mode: Annotated[
        FailoverMode,
        Meta(
            description="automatic: a member stands for election when its master is silent; manual: only an operator lets another node lead"
        ),
    ] = FailoverMode.AUTOMATIC
    priority: Annotated[
        int, Meta(ge=-1_000, le=1_000, description="of several replicas with equal logs the one with the greatest is elected")
    ] = 0
    allow_data_loss: Annotated[
        bool,
        Meta(
            description="a replica may be elected that may lack acknowledged messages, when no other one answers. "
            "Kafka: unclean.leader.election.enable"
        ),
    ] = False
    peer_timeout_ms: Annotated[
        Milliseconds,
        Meta(description="a master, or a slave, that says nothing for so long is gone. RocketMQ: haHousekeepingInterval, 20 s"),
    ] = 3_000
    isolation_ms: Annotated[
        Milliseconds,
        Meta(description="a master that reaches neither the coordination store nor enough members for so long refuses writes"),
    ] = 3_000


@dataclass(frozen=True, slots=True)
class TracesTable:
    """OpenTelemetry."""

    enabled: Annotated[
        bool,
        Meta(
            description="spans of messages that their producer samples go to the collector of OTEL_EXPORTER_OTLP_ENDPOINT, by OTLP over "
            "gRPC; needs dittomq[traces]"
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything a broker is told. Master and slave read the same file: a role change makes one of the other."""

    node: NodeTable = field(default_factory=NodeTable)
    listen: ListenTable = field(default_factory=ListenTable)
    advertise: Addresses = field(default_factory=no_addresses)
    advertise_replication: Addresses = field(default_factory=no_addresses)
    store: StoreTable = field(default_factory=StoreTable)
    retention: RetentionTable = field(default_factory=RetentionTable)
    replication: ReplicationTable = field(default_factory=ReplicationTable)
    failover: FailoverTable = field(default_factory=FailoverTable)
    coordination: CoordinationTable = field(default_factory=CoordinationTable)
    reading: ReadingTable = field(default_factory=ReadingTable)
    tls: TlsTable = field(default_factory=TlsTable)
    access: AccessTable = field(default_factory=AccessTable)
    traces: TracesTable = field(default_factory=TracesTable)

    @property
    def coordination_endpoints(self) -> tuple[str, ...]:
        """As configured, or the default of a nameserver."""
        default = self.node.nameservers[:1] if self.coordination.backend is CoordinationBackend.NAMESERVER else ()
        return self.coordination.endpoints or default

    @property
    def name(self) -> str:
        """ "broker/id" as configured: what receipts, commands and tables call this node, whatever its role."""
        return f"{self.node.broker}/{self.node.broker_id}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        replication = self.replication
        copies = replication.replicas_expected + 1
        if replication.asked_copies > copies:
            yield (
                "replication.in_sync_replicas",
                f"{replication.asked_copies} copies are asked for and {copies} can exist; raise replicas_expected or lower it",
            )
        if replication.mode is Mode.ASYNC_MASTER and replication.asked_copies > 1:
            refused = f"{replication.asked_copies} copies are asked for, and an ASYNC_MASTER asks for none but its own"
            yield "replication.in_sync_replicas", f"{refused}; set mode to SYNC_MASTER, or this to 1"
        elif replication.min_in_sync_replicas > replication.asked_copies:
            yield (
                "replication.min_in_sync_replicas",
                f"{replication.min_in_sync_replicas} is more than the {replication.asked_copies} copies asked for; lower it",
            )
        yield from self._failover_problems()
        yield from self.retention.problems()
        yield from self.listen.problems()
        yield from self.tls.problems()
        yield from self.access.problems()
        for nameserver in self.node.nameservers:
            yield from _address_problem("node.nameservers", nameserver)
        if replication.master_address:
            yield from _address_problem("replication.master_address", replication.master_address)
        yield from _address_problems("advertise", self.advertise)
        yield from _address_problems("advertise_replication", self.advertise_replication)

    def _failover_problems(self) -> Iterator[tuple[str, str]]:
        replication, failover, coordination = self.replication, self.failover, self.coordination
        if failover.peer_timeout_ms < 2 * replication.heartbeat_ms:
            yield "failover.peer_timeout_ms", "must be at least twice replication.heartbeat_ms, or living nodes are taken for dead"
        if replication.leave_ms >= failover.peer_timeout_ms:
            yield "replication.leave_ms", "must be less than failover.peer_timeout_ms, or a slave that is cut off deposes a living master"
        if replication.replicas_expected and not self.coordination_endpoints and coordination.backend is not CoordinationBackend.KUBERNETES:
            yield (
                "coordination.endpoints",
                f"is empty, and a group with slaves keeps its record there; name the {coordination.backend} to use",
            )
        if coordination.backend is CoordinationBackend.NAMESERVER and len(self.coordination_endpoints) > 1:
            yield "coordination.endpoints", "names several nameservers, and only one may keep the group record; name one, or use etcd"
        for endpoint in coordination.endpoints:
            yield from _address_problem("coordination.endpoints", endpoint)


def _address_problem(setting: str, address: str, network: str = DEFAULT_NETWORK) -> Iterator[tuple[str, str]]:
    """What is wrong with an address on that network, if anything is."""
    try:
        check_address("address", network, address)
    except InvalidField as refused:
        yield setting, refused.problem


def _address_problems(table: str, addresses: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What every nameserver would refuse."""
    for network, address in addresses.items():
        yield from _address_problem(f"{table}.{network}", address, network)
    networks = len({*addresses, DEFAULT_NETWORK})
    if networks > MAX_NETWORKS:
        yield table, f'has {networks} networks, with "{DEFAULT_NETWORK}"; a nameserver takes {MAX_NETWORKS}'
