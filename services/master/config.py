"""A master's configuration: a broker's, and what its deciders need of it."""

from dataclasses import dataclass

from dittomq.broker.config import BrokerConfig, FlushMode, Mode, NodeTable, ReplicaAckLevel, ReplicationTable
from dittomq.replication.progress import ConfirmRules
from dittomq.routes import Role

__all__ = ["FlushMode", "MasterConfig", "Mode", "NodeTable", "ReplicaAckLevel", "ReplicationTable", "confirm_rules"]


@dataclass(frozen=True, slots=True)
class MasterConfig(BrokerConfig):
    """Everything a master is told."""

    @property
    def role(self) -> Role:
        """As registered."""
        return Role(self.replication.mode)


def confirm_rules(config: BrokerConfig) -> ConfirmRules:
    """What the confirmed offset and the members need of the settings."""
    table, failover = config.replication, config.failover
    waits = table.mode is Mode.SYNC_MASTER
    return ConfirmRules(
        copies=table.asked_copies if waits else 1,
        level_copies=table.asked_copies,
        min_in_sync_replicas=table.min_in_sync_replicas if waits else 1,
        replicas_expected=table.replicas_expected,
        sync_flush=table.flush_mode is FlushMode.SYNC_FLUSH,
        release_flushed=table.replica_ack_level is ReplicaAckLevel.FLUSHED,
        max_gap_bytes=table.ha_max_gap_bytes,
        max_lag_s=table.ha_max_lag_ms / 1000,
        write_deadline_s=table.ack_timeout_ms / 1000,
        leave_s=table.leave_ms / 1000,
        isolation_s=failover.isolation_ms / 1000,
        store_required=failover.allow_data_loss,
    )
