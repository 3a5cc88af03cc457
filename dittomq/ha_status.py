"""What GetHaStatus tells: replication of one group as one node sees it. None means unknown, never zero."""

from dataclasses import dataclass
from typing import Final

FULL_RESYNC: Final = "copying anew"
SWITCHING_OVER: Final = "switching over"
MASTER_WAITS: Final = "the master, which waits for "


def not_in_sync(broker: str, in_sync: int, expected: int) -> str:
    """That fewer slaves than expected are, as a clause."""
    return f"the slave of {broker} is not in sync" if expected == 1 else f"{in_sync} of {expected} slaves of {broker} are in sync"


@dataclass(frozen=True, slots=True)
class PinView:
    """An audit's hold on one node's log: retention leaves what lies from `start` on, unless it must, until wall time `until_ms`."""

    run: str
    start: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as the answering node sees it. Offsets and lags in bytes, times in seconds or milliseconds since 1970.

    `state`: leading, recovering, in sync, catching up, following, waiting, gone, unknown; of a slave that is `copying anew`, as it tells
    itself, how far that is follows behind a comma, of a master that is `switching over` its place, to whom. Received and flushed lag behind
    the master's end, applied lags behind what is confirmed, since no more can be applied. How far one that is gone lags nobody knows, and
    its offsets are what it said last. `transfer_bytes_per_s` were sent to it, `received_bytes_per_s` it acknowledged as received: less,
    while what was sent fills the line. `pins` and `damaged_bytes`, what it does not hold whole of its log, only the node itself tells.
    """

    node: str
    role: str
    state: str
    received: int | None = None
    flushed: int | None = None
    applied: int | None = None
    received_lag_bytes: int | None = None
    flushed_lag_bytes: int | None = None
    applied_lag_bytes: int | None = None
    received_lag_s: float | None = None
    flushed_lag_s: float | None = None
    applied_lag_s: float | None = None
    verified_offset: int | None = None
    since_ms: int | None = None
    transfer_bytes_per_s: int = 0
    received_bytes_per_s: int = 0
    last_drop_reason: str = ""
    last_drop_ms: int | None = None
    pins: tuple[PinView, ...] = ()
    damaged_bytes: int | None = None

    @property
    def phase(self) -> str:
        """The state without how far it is."""
        return self.state.partition(",")[0]


@dataclass(frozen=True, slots=True)
class HaStatus:
    """Replication of one group; `nodes` starts with the node that answers.

    `in_sync_now` counts the master and the members that stream; 0: the node does not lead, and does not know. `degraded`: the in-sync set
    has fewer members than copies are asked for, since `degraded_since_ms`. `replica_ack_level`: "flushed" when each of the copies asked for
    has flushed what is confirmed, "received" otherwise; "" for unknown. `members`: nodes of the in-sync set as the group record says,
    none without a record. `failover`: "automatic", "manual", "paused", or "none" where there is no record. `coordination_store` by name
    and address; `coordination_problem` says why it cannot be used now. `uncounted`: slaves that follow and do not count, because
    replicas_expected is 0. `data_loss`: what may have been lost when this epoch was opened, in words.
    """

    node: str
    cluster: str
    broker: str
    epoch: int
    role: str
    in_sync_replicas: int
    in_sync_now: int
    replicas_expected: int
    min_offset: int
    end: int
    flushed: int
    confirmed: int
    readable: int
    writable: bool
    degraded: bool
    degraded_since_ms: int | None
    waiting_for: str
    nodes: tuple[NodeView, ...]
    replica_ack_level: str = ""
    members: tuple[str, ...] = ()
    failover: str = ""
    coordination_store: str = ""
    coordination_problem: str = ""
    uncounted: tuple[str, ...] = ()
    data_loss: str = ""

    @property
    def why_not_writable(self) -> str:
        """What keeps the node from taking writes; empty while it takes them."""
        if self.writable:
            return ""
        recovers = any((view.node, view.state) == (self.node, "recovering") for view in self.nodes)
        return f"it waits for {self.waiting_for}" if recovers else self.waiting_for or "too few copies are in sync"
