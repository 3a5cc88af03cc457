"""A slave's configuration."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from dittomq.broker.config import Addresses, ListenTable, Milliseconds, Name, ReadingTable, RetentionTable, StoreTable, no_addresses


class FlushMode(StrEnum):
    """When what the master sent is fsynced."""

    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


@dataclass(frozen=True, slots=True)
class NodeTable:
    """Who this node is."""

    broker: Annotated[Name, Meta(description="name of the broker group")] = "a"
    broker_id: Annotated[int, Meta(ge=1, le=1_000_000, description="number of this slave in its group; 0 is the master")] = 1
    cluster: Annotated[Name, Meta(description="name of the cluster; all nodes must agree")] = "dittomq"
    data_dir: Annotated[
        str, Meta(min_length=1, description="folder of the store, in RocketMQ's layout; our own files lie in its folder dittomq")
    ] = "/data"
    nameservers: Annotated[tuple[str, ...], Meta(description='addresses of all nameservers, "host:port"')] = ()
    registration_period_ms: Annotated[
        int,
        Meta(ge=1_000, le=60_000, description="how often this node registers; three periods must fit in the nameservers' broker_expiry_ms"),
    ] = 10_000


@dataclass(frozen=True, slots=True)
class ReplicationTable:
    """Following the master."""

    master_address: Annotated[
        str, Meta(description='replication address of the master, "host:port"; empty: as the nameservers say. RocketMQ: haMasterAddress')
    ] = ""
    flush_mode: Annotated[
        FlushMode,
        Meta(description="whether each group of writes is fsynced at once, or now and then. RocketMQ: flushDiskType, default ASYNC_FLUSH"),
    ] = FlushMode.SYNC_FLUSH
    silence_ms: Annotated[
        Milliseconds, Meta(description="a stream that hears nothing for so long ends. RocketMQ: haHousekeepingInterval")
    ] = 20_000


@dataclass(frozen=True, slots=True)
class SlaveConfig:
    """Everything a slave is told."""

    node: NodeTable = field(default_factory=NodeTable)
    listen: ListenTable = field(default_factory=ListenTable)
    advertise: Addresses = field(default_factory=no_addresses)
    advertise_replication: Addresses = field(default_factory=no_addresses)
    store: StoreTable = field(default_factory=StoreTable)
    retention: RetentionTable = field(default_factory=RetentionTable)
    replication: ReplicationTable = field(default_factory=ReplicationTable)
    reading: ReadingTable = field(default_factory=ReadingTable)

    @property
    def name(self) -> str:
        """ "broker/id"."""
        return f"{self.node.broker}/{self.node.broker_id}"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        if not self.node.nameservers and not self.replication.master_address:
            yield "node.nameservers", "is empty and replication.master_address too; a slave finds its master by one of them"
        yield from self.retention.problems()
