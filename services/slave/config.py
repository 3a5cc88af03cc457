"""A slave's configuration: a broker's, with what a slave cannot do without."""

from collections.abc import Iterator
from dataclasses import dataclass

from dittomq.broker.config import BrokerConfig, FlushMode, NodeTable, ReplicationTable

__all__ = ["FlushMode", "NodeTable", "ReplicationTable", "SlaveConfig"]


@dataclass(frozen=True, slots=True)
class SlaveConfig(BrokerConfig):
    """Everything a slave is told."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Each setting that breaks a rule between settings, and what to change."""
        if not self.replication.replicas_expected and not self.node.nameservers and not self.replication.master_address:
            yield "node.nameservers", "is empty and replication.master_address too; a slave without a group record finds its master by one"
        yield from BrokerConfig.problems(self)
