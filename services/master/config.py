"""A master's configuration: a broker's, and what its deciders need of it."""

from dataclasses import dataclass

from dittomq.broker.config import BrokerConfig, FlushMode, Mode, NodeTable, ReleaseLevel, ReplicationTable
from dittomq.replication.confirm import ConfirmRules
from dittomq.replication.group_of_start import LeadershipRules
from dittomq.routes import Role

__all__ = ["FlushMode", "MasterConfig", "Mode", "NodeTable", "ReleaseLevel", "ReplicationTable", "confirm_rules", "leadership_rules"]


@dataclass(frozen=True, slots=True)
class MasterConfig(BrokerConfig):
    """Everything a master is told."""

    @property
    def role(self) -> Role:
        """As registered."""
        return Role(self.replication.mode)


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
        write_deadline_s=table.ack_timeout_ms / 1000,
    )


def leadership_rules(table: ReplicationTable) -> LeadershipRules:
    """What Leadership needs of the settings."""
    return LeadershipRules(
        replicas_expected=table.replicas_expected,
        in_sync_replicas=table.group_rules.copies_of_confirmed,
        sync_flush=table.flush_mode is FlushMode.SYNC_FLUSH,
        recover_wait_s=table.recover_wait_ms / 1000,
        witnesses=table.group_rules.witnesses_of_all,
    )
