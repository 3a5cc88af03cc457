"""What a master and its slave answer about replication while all is in order."""

from dataclasses import replace

from dittomq.ha_status import HaStatus, NodeState, NodeView
from dittomq.offsets import Epoch
from dittomq.routes import BrokerState, DataVersion, Node, Role

NOW_MS = 1_800_000_000_000
MASTER_VIEW = NodeView("a/0", "master", NodeState.LEADING, received=1000, flushed=1000, applied=1000, applied_lag_bytes=0)
SLAVE_VIEW = NodeView(
    "a/1",
    "slave",
    NodeState.IN_SYNC,
    1000,
    1000,
    1000,
    0,
    1229,
    1229,
    0.0,
    0.2,
    0.2,
    verified_offset=1000,
    since_ms=NOW_MS - 9 * 86_400_000,
)
MASTER = HaStatus(
    node="a/0",
    cluster="prod",
    broker="a",
    epoch=7,
    role="SYNC_MASTER",
    in_sync_replicas=2,
    in_sync_now=2,
    replicas_expected=1,
    min_offset=0,
    end=1000,
    flushed=1000,
    confirmed=1000,
    readable=1000,
    writable=True,
    degraded=False,
    degraded_since_ms=None,
    waiting_for="",
    nodes=(MASTER_VIEW, SLAVE_VIEW),
    replica_ack_level="flushed",
    members=("a/0", "a/1"),
    failover="automatic",
    coordination_store="nameserver 127.0.0.1:9876",
)
SLAVE = replace(MASTER, node="a/1", role="SLAVE", nodes=(replace(SLAVE_VIEW, state=NodeState.FOLLOWING),))


def registered(broker_id: int, broker: str = "a") -> Node:
    role = Role.SLAVE if broker_id else Role.SYNC_MASTER
    address = f"127.0.0.1:{10911 + 10 * broker_id}"
    return Node(
        "prod", broker, broker_id, role, BrokerState.SERVING, Epoch(7), address, address, NOW_MS, DataVersion(), "u", {"default": address}
    )


BOTH = [registered(0), registered(1)]
