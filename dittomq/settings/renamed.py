"""Keys that have another name since version 0.2.0. The old one is refused, and the refusal says the new one."""

from collections.abc import Mapping
from typing import Final

RENAMED: Final[Mapping[str, str]] = {
    "store.reserve_bytes": "store.min_free_bytes",
    "reading.master_gone_ms": "reading.master_timeout_ms",
    "replication.hold_max_bytes": "replication.max_slot_bytes",
    "replication.proof_bytes_per_s": "replication.verify_bytes_per_s",
    "replication.release_level": "replication.replica_ack_level",
    "replication.silence_ms": "failover.peer_timeout_ms",
    "failover.silence_ms": "failover.peer_timeout_ms",
    "replication.window_bytes": "replication.max_inflight_bytes",
}
