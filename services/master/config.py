"""A master's configuration."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from dittomq.broker.config import Addresses, ListenTable, Milliseconds, Name, RetentionTable, StoreTable, no_addresses
from dittomq.message import Ack
from dittomq.replication.confirm import ConfirmRules
from dittomq.replication.leadership import LeadershipRules
from dittomq.routes import Role


class Mode(StrEnum):
    """What a master waits for."""

    SYNC_MASTER = "SYNC_MASTER"
    ASYNC_MASTER = "ASYNC_MASTER"


class FlushMode(StrEnum):
    """When a write is fsynced."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


class ReleaseLevel(StrEnum):
    """Which ack of a slave counts towards the confirmed end."""

    RECEIVED = "received"
    FLUSHED = "flushed"


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Who this node is."""

    broker: Annotated[Name, Meta(description="name of the broker group")] = "a"
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
class ReplicationTable:
    """Copies and acknowledgement."""

    mode: Annotated[Mode, Meta(description="whether a message is confirmed by copies or by the master alone. RocketMQ: brokerRole")] = (
        Mode.ASYNC_MASTER
    )
    replicas_expected: Annotated[int, Meta(ge=0, le=16, description="slaves of this broker group")] = 0
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
        int, Meta(ge=1, le=17, description="floor for degrade; below it every write is refused. RocketMQ: minInSyncReplicas")
    ] = 1
    flush_mode: Annotated[
        FlushMode,
        Meta(description="whether each group of writes is fsynced at once, or now and then. RocketMQ: flushDiskType, default ASYNC_FLUSH"),
    ] = FlushMode.SYNC_FLUSH
    release_level: Annotated[
        ReleaseLevel, Meta(description="which ack of a slave counts: for what it holds, or for what it has fsynced")
    ] = ReleaseLevel.FLUSHED
    ack_timeout_ms: Annotated[
        Milliseconds, Meta(description="how long a producer that says nothing else waits for its level. RocketMQ: slaveTimeout")
    ] = 3_000
    recover_wait_ms: Annotated[
        Milliseconds, Meta(description="how long a recovering master waits for slaves where it need not hear a number of them")
    ] = 5_000
    ha_max_gap_bytes: Annotated[int, Meta(ge=1, description="a slave further behind is not in sync. RocketMQ: haMaxGapNotInSync")] = (
        256 * 1024 * 1024
    )
    ha_max_lag_ms: Annotated[
        Milliseconds, Meta(description="a slave that did not catch up for so long is not in sync. RocketMQ: haMaxTimeSlaveNotCatchup")
    ] = 15_000
    hold_max_bytes: Annotated[
        int,
        Meta(ge=0, description="retention keeps the log for a known slave, also while it is away, until it is further behind than this"),
    ] = 64 * 1024 * 1024 * 1024
    heartbeat_ms: Annotated[
        Milliseconds, Meta(description="how often a heartbeat goes to each slave. RocketMQ: haSendHeartbeatInterval")
    ] = 5_000
    silence_ms: Annotated[
        Milliseconds, Meta(description="a stream that hears nothing for so long ends. RocketMQ: haHousekeepingInterval")
    ] = 20_000

    @property
    def asked_copies(self) -> int:
        """q: copies that a confirmed message is on; the master counts."""
        if self.in_sync_replicas:
            return self.in_sync_replicas
        return min(2, self.replicas_expected + 1) if self.mode is Mode.SYNC_MASTER else 1

    @property
    def default_ack(self) -> Ack:
        """The level of a producer that asks for none."""
        flushed = self.flush_mode is FlushMode.SYNC_FLUSH
        if self.mode is Mode.SYNC_MASTER and self.asked_copies > 1:
            return Ack.REPLICA_FLUSHED if flushed and self.release_level is ReleaseLevel.FLUSHED else Ack.REPLICA_RECEIVED
        return Ack.MASTER_FLUSHED if flushed else Ack.MASTER_RECEIVED


@dataclass(frozen=True, slots=True)
class MasterConfig:
    """Everything a master is told."""

    node: NodeTable = field(default_factory=NodeTable)
    listen: ListenTable = field(default_factory=ListenTable)
    advertise: Addresses = field(default_factory=no_addresses)
    advertise_replication: Addresses = field(default_factory=no_addresses)
    store: StoreTable = field(default_factory=StoreTable)
    retention: RetentionTable = field(default_factory=RetentionTable)
    replication: ReplicationTable = field(default_factory=ReplicationTable)

    @property
    def name(self) -> str:
        """ "broker/id"."""
        return f"{self.node.broker}/0"

    @property
    def role(self) -> Role:
        """As registered."""
        return Role(self.replication.mode)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        replication = self.replication
        copies = replication.replicas_expected + 1
        if replication.asked_copies > copies:
            yield (
                "replication.in_sync_replicas",
                f"{replication.asked_copies} copies are asked for and {copies} can exist; raise replicas_expected or lower it",
            )
        if replication.min_in_sync_replicas > replication.asked_copies:
            yield (
                "replication.min_in_sync_replicas",
                f"{replication.min_in_sync_replicas} is more than the {replication.asked_copies} copies asked for; lower it",
            )
        if replication.silence_ms < 2 * replication.heartbeat_ms:
            yield "replication.silence_ms", "must be at least twice heartbeat_ms, or living slaves are dropped"
        yield from self.retention.problems()


def confirm_rules(table: ReplicationTable) -> ConfirmRules:
    """What Confirm needs of the settings."""
    return ConfirmRules(
        sync_master=table.mode is Mode.SYNC_MASTER,
        sync_flush=table.flush_mode is FlushMode.SYNC_FLUSH,
        release_flushed=table.release_level is ReleaseLevel.FLUSHED,
        in_sync_replicas=table.asked_copies,
        min_in_sync_replicas=table.min_in_sync_replicas,
        max_gap_bytes=table.ha_max_gap_bytes,
        max_lag_s=table.ha_max_lag_ms / 1000,
    )


def leadership_rules(table: ReplicationTable) -> LeadershipRules:
    """What Leadership needs of the settings."""
    return LeadershipRules(
        replicas_expected=table.replicas_expected,
        in_sync_replicas=table.asked_copies,
        sync_flush=table.flush_mode is FlushMode.SYNC_FLUSH,
        recover_wait_s=table.recover_wait_ms / 1000,
    )
