"""What a master and its slave answer about replication while all is in order."""

from dataclasses import replace

from dittomq.ha_status import HaStatus, NodeView
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion, Node, NodeState, Role

NOW_MS = 1_800_000_000_000
MASTER_VIEW = NodeView("a/0", "master", "leading", received=1000, flushed=1000, applied=1000, applied_lag_bytes=0)
SLAVE_VIEW = NodeView(
    "a/1", "slave", "in sync", 1000, 1000, 1000, 0, 1229, 1229, 0.0, 0.2, 0.2, proven_equal=1000, since_ms=NOW_MS - 9 * 86_400_000
)
LEADER = HaStatus(
    "a/0",
    "prod",
    "a",
    7,
    "SYNC_MASTER",
    2,
    2,
    1,
    0,
    1000,
    1000,
    1000,
    1000,
    True,
    False,
    None,
    0,
    None,
    "",
    (MASTER_VIEW, SLAVE_VIEW),
    "flushed",
)
FOLLOWER = replace(LEADER, node="a/1", role="SLAVE", nodes=(replace(SLAVE_VIEW, state="following"),))


def registered(broker_id: int, broker: str = "a") -> Node:
    role = Role.SLAVE if broker_id else Role.SYNC_MASTER
    address = f"127.0.0.1:{10911 + 10 * broker_id}"
    return Node(
        "prod", broker, broker_id, role, NodeState.SERVING, Epoch(7), address, address, NOW_MS, DataVersion(), "u", {"default": address}
    )


BOTH = [registered(0), registered(1)]
