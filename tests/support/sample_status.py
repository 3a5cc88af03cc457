"""What a master says of a group while all is in order."""

from dataclasses import replace

from dittomq.ha_status import NodeState, NodeView, PinView, StreamEndReason
from tests.support.ha_answers import MASTER

STATUS = replace(
    MASTER,
    end=900,
    flushed=800,
    confirmed=700,
    readable=700,
    members=(),
    failover="",
    coordination_store="",
    nodes=(
        NodeView("a/0", "master", NodeState.LEADING, pins=(PinView("night", 0, 9_000),)),
        NodeView("a/1", "slave", NodeState.IN_SYNC, received_lag_bytes=100, applied_lag_s=0.5, since_ms=7_000, transfer_bytes_per_s=50),
        NodeView(
            "a/2",
            "slave",
            NodeState.GONE,
            since_ms=8_000,
            last_drop_reason="silent for 20 s",
            last_drop_kind=StreamEndReason.SESSION_EXPIRED,
            last_drop_ms=8_500,
        ),
        NodeView("a/3", "slave", NodeState.UNKNOWN),
    ),
)
