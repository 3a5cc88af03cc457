"""What GetHaStatus tells: replication of one group as one node sees it. None means unknown, never zero."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dittomq import errors
from dittomq.errors import DittoError


class NodeState(StrEnum):
    """What a node does in its group; the value is what people read."""

    UNKNOWN = "unknown"
    LEADING = "leading"
    RECOVERING = "recovering"
    SWITCHING_OVER = "switching over"
    IN_SYNC = "in sync"
    CATCHING_UP = "catching up"
    FOLLOWING = "following"
    WAITING = "waiting"
    FULL_RESYNC = "full resync"
    GONE = "gone"


class StreamEndReason(StrEnum):
    """Of what kind the end of a replication stream was, or the removal of a member."""

    OTHER = "other"
    CONNECTION_ENDED = "connection_ended"
    UNREACHABLE = "unreachable"
    NOT_READY = "not_ready"
    RESET = "reset"
    NEEDS_OPERATOR = "needs_operator"
    SESSION_EXPIRED = "session_expired"
    WRONG_CLUSTER = "wrong_cluster"
    DAMAGED = "damaged"
    DISK_FULL = "disk_full"
    STORAGE_FAILURE = "storage_failure"
    MISSED_DEADLINES = "missed_deadlines"
    TOO_FAR_BEHIND = "too_far_behind"
    NOT_CAUGHT_UP = "not_caught_up"
    SENT_GOODBYE = "sent_goodbye"
    NO_STREAM = "no_stream"
    NO_PROMISE = "no_promise"
    MUST_RESYNC = "must_resync"
    LOG_NOT_KEPT = "log_not_kept"


class WaitKind(StrEnum):
    """Of what kind it is what a node waits for, or what keeps a master from taking writes."""

    EPOCH = "epoch"
    DISK_ROOM = "disk_room"
    SWITCHOVER = "switchover"
    SHUTDOWN = "shutdown"
    TERM_OVER = "term_over"
    TOO_FEW_MEMBERS = "too_few_members"
    ISOLATED = "isolated"
    FENCED = "fenced"
    MASTER = "master"
    MASTER_WAITS = "master_waits"
    ELECTION = "election"


@dataclass(frozen=True, slots=True)
class Wait:
    """What a node waits for; `why` in words."""

    kind: WaitKind
    why: str

    def __str__(self) -> str:
        return self.why


class DataLossKind(StrEnum):
    """Why a replica leads without an election quorum, so that acknowledged messages may be lost."""

    OPERATOR_ALLOWED = "operator_allowed"
    SETTING_ALLOWED = "setting_allowed"
    REPLICAS_CHANGED = "replicas_changed"


_ENDED_BY: Final[Mapping[type[DittoError], StreamEndReason]] = {
    errors.FencedEpoch: StreamEndReason.NOT_READY,  # an Unavailable too
    errors.Unavailable: StreamEndReason.UNREACHABLE,
    errors.NotReady: StreamEndReason.NOT_READY,
    errors.NotMaster: StreamEndReason.NOT_READY,
    errors.StreamReset: StreamEndReason.RESET,
    errors.NeedsOperator: StreamEndReason.NEEDS_OPERATOR,
    errors.SessionExpired: StreamEndReason.SESSION_EXPIRED,
    errors.WrongCluster: StreamEndReason.WRONG_CLUSTER,
    errors.CorruptRecord: StreamEndReason.DAMAGED,
    errors.DiskFull: StreamEndReason.DISK_FULL,
    errors.StorageFailure: StreamEndReason.STORAGE_FAILURE,
}


def ended_by(error: DittoError) -> StreamEndReason:
    """The kind of an error that ended a stream."""
    return next((reason for kind, reason in _ENDED_BY.items() if isinstance(error, kind)), StreamEndReason.OTHER)


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

    A slave tells itself that it is in a full resync, and how far: `resync_done_bytes` of `resync_total_bytes`. A master that is switching
    over tells to whom: `switchover_target`. `last_drop_kind` is the kind of what `last_drop_reason` says, None where that is "". Received
    and flushed lag behind the master's end, applied lags behind what is confirmed, since no more can be applied. How far one that is gone
    lags nobody knows, and its offsets are what it said last. `transfer_bytes_per_s` were sent to it, `received_bytes_per_s` it acknowledged
    as received: less, while what was sent fills the line. `pins` and `damaged_bytes`, what it does not hold whole of its log, only the node
    itself tells.
    """

    node: str
    role: str
    state: NodeState
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
    last_drop_kind: StreamEndReason | None = None
    last_drop_ms: int | None = None
    pins: tuple[PinView, ...] = ()
    damaged_bytes: int | None = None
    resync_done_bytes: int | None = None
    resync_total_bytes: int | None = None
    switchover_target: str = ""


@dataclass(frozen=True, slots=True)
class HaStatus:
    """Replication of one group; `nodes` starts with the node that answers.

    `in_sync_now` counts the master and the members that stream; 0: the node does not lead, and does not know. `degraded`: the in-sync set
    has fewer members than copies are asked for, since `degraded_since_ms`. `replica_ack_level`: "flushed" when each of the copies asked for
    has flushed what is confirmed, "received" otherwise; "" for unknown. `members`: nodes of the in-sync set as the group record says,
    none without a record. `failover`: "automatic", "manual", "paused", or "none" where there is no record. `coordination_store` by name
    and address; `coordination_problem` says why it cannot be used now. `uncounted`: slaves that follow and do not count, because
    replicas_expected is 0. `data_loss_kind` and `waiting_kind` are the kinds of `data_loss` and `waiting_for`, None where those
    are "". `data_loss`: what may have been lost when this epoch was opened, in words.
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
    data_loss_kind: DataLossKind | None = None
    waiting_kind: WaitKind | None = None

    @property
    def why_not_writable(self) -> str:
        """What keeps the node from taking writes; empty while it takes them."""
        if self.writable:
            return ""
        recovers = any((view.node, view.state) == (self.node, NodeState.RECOVERING) for view in self.nodes)
        return f"it waits for {self.waiting_for}" if recovers else self.waiting_for or "too few copies are in sync"
