"""What a master says of its group's replication."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dittomq.broker.group_watch import GroupWatch
from dittomq.broker.retention_pins import Pins
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.ha_status import HaStatus, NodeState, NodeView, StreamEndReason, Wait, WaitKind
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirmed_offset import ReplicaView
from dittomq.replication.lag import LagHistory
from dittomq.replication.membership import MemberReasonKind
from dittomq.replication.membership_states import Following
from services.master.config import FlushMode, MasterConfig, ReplicaAckLevel
from services.master.in_sync_set import InSyncSet
from services.master.replica_registry import MOST_REMEMBERED, SlaveRecord
from services.master.term import Term

_LEFT_FOR: Final[Mapping[MemberReasonKind, StreamEndReason]] = {
    MemberReasonKind.MISSED_DEADLINES: StreamEndReason.MISSED_DEADLINES,
    MemberReasonKind.TOO_FAR_BEHIND: StreamEndReason.TOO_FAR_BEHIND,
    MemberReasonKind.NOT_CAUGHT_UP: StreamEndReason.NOT_CAUGHT_UP,
    MemberReasonKind.SENT_GOODBYE: StreamEndReason.SENT_GOODBYE,
    MemberReasonKind.NO_STREAM: StreamEndReason.NO_STREAM,
    MemberReasonKind.NO_PROMISE: StreamEndReason.NO_PROMISE,
    MemberReasonKind.MUST_RESYNC: StreamEndReason.MUST_RESYNC,
    MemberReasonKind.LOG_NOT_KEPT: StreamEndReason.LOG_NOT_KEPT,
}
_MOST_REPORTED = 4 * MOST_REMEMBERED


@dataclass(frozen=True, slots=True)
class Leaving:
    """Why a master takes no writes, None where it does; to which slave it gives its place, since which wall time."""

    why: Wait | None
    switchover_target: str
    since_ms: int | None


class HaStatusBoard:
    """Looks at everything, changes nothing but its own memory of where the ends were."""

    def __init__(self, config: MasterConfig, store: Store, pins: Pins, clock: Clock, *, watch: GroupWatch | None) -> None:
        self._config = config
        self._store = store
        self._pins = pins
        self._clock = clock
        self._watch = watch
        self._ends = LagHistory()
        self._confirmed_ends = LagHistory()
        self._wall_times: dict[tuple[str, str], tuple[float, int]] = {}

    def mark(self, term: Term) -> None:
        """Remember where the ends are now; to be called as often as lags are to be exact."""
        now = self._clock.monotonic()
        self._ends.mark(term.written, now)
        self._confirmed_ends.mark(term.confirm.confirmed, now)

    def opening(self, wait: Wait, applied: PhysicalOffset, records: Iterable[SlaveRecord]) -> HaStatus:
        """Before the term."""
        store = self._store
        own = NodeView(
            self._config.name,
            "master",
            NodeState.RECOVERING,
            received=store.end,
            flushed=store.flushed,
            applied=applied,
            pins=self._pins.views(),
            damaged_bytes=store.damage.total_bytes,
        )
        slaves = [NodeView(record.node, "slave", record.state, since_ms=record.since_ms) for record in records]
        return self._status(own, slaves, confirmed=store.confirmed_at_start, wait=wait)

    def leading(
        self, term: Term, applied: PhysicalOffset, records: Iterable[SlaveRecord], leaving: Leaving, *, in_sync_set: InSyncSet | None
    ) -> HaStatus:
        """During the term."""
        own = NodeView(
            self._config.name,
            "master",
            NodeState.SWITCHING_OVER if leaving.switchover_target else NodeState.LEADING,
            received=term.written,
            flushed=term.flushed,
            applied=applied,
            applied_lag_bytes=term.confirm.confirmed - applied,
            applied_lag_s=self._confirmed_ends.lag_s(applied, term.confirm.confirmed, self._clock.monotonic()),
            since_ms=leaving.since_ms,
            pins=self._pins.views(),
            damaged_bytes=self._store.damage.total_bytes,
            switchover_target=leaving.switchover_target,
        )
        slaves = [self._slave(term, record, in_sync_set) for record in records]
        full = term.writer.full
        wait = leaving.why or (None if full is None else Wait(WaitKind.DISK_ROOM, str(full)))
        return self._status(own, slaves, confirmed=term.confirm.confirmed, wait=wait, term=term)

    def _status(
        self, own: NodeView, slaves: list[NodeView], *, confirmed: PhysicalOffset, wait: Wait | None, term: Term | None = None
    ) -> HaStatus:
        table, watch = self._config.replication, self._watch
        record = None if watch is None else watch.record
        loss = None if term is None else term.opened.data_loss
        members = () if record is None else tuple(member.node for member in record.members)
        if term is not None and watch is not None:
            members = term.confirm.members  # what confirms now: the watch hears of this master's own write a moment later
        return HaStatus(
            node=self._config.name,
            cluster=self._config.node.cluster,
            broker=self._config.node.broker,
            epoch=term.opened.epoch if term is not None else 0,
            role=table.mode,
            in_sync_replicas=table.asked_copies,
            in_sync_now=term.confirm.copies_in_sync if term is not None else 0,
            replicas_expected=table.replicas_expected,
            min_offset=self._store.min_offset,
            end=own.received or 0,
            flushed=own.flushed or 0,
            confirmed=confirmed,
            readable=confirmed,
            writable=term is not None and wait is None,
            degraded=term is not None and term.confirm.degraded,
            degraded_since_ms=term.degraded_since_ms if term is not None else None,
            waiting_for="" if wait is None else wait.why,
            waiting_kind=None if wait is None else wait.kind,
            nodes=(own, *slaves),
            replica_ack_level=self._replica_ack_level,
            members=members,
            failover=self._failover,
            coordination_store="" if watch is None else watch.store_name,
            coordination_problem=self._coordination_problem,
            uncounted=()
            if watch is not None
            else tuple(view.node for view in slaves if view.state not in {NodeState.GONE, NodeState.UNKNOWN}),
            data_loss="" if loss is None else str(loss),
            data_loss_kind=None if loss is None else loss.kind,
        )

    @property
    def _failover(self) -> str:
        if self._watch is None:
            return "none"
        record = self._watch.record
        return "paused" if record is not None and record.paused else str(self._config.failover.mode)

    @property
    def _coordination_problem(self) -> str:
        watch = self._watch
        if watch is None:
            return ""
        return watch.problem or ("there is no group record" if watch.found is None else "")

    @property
    def _replica_ack_level(self) -> str:
        table = self._config.replication
        each_flushes = table.flush_mode is FlushMode.SYNC_FLUSH and table.replica_ack_level is ReplicaAckLevel.FLUSHED
        return ReplicaAckLevel.FLUSHED if each_flushes else ReplicaAckLevel.RECEIVED

    def _slave(self, term: Term, record: SlaveRecord, in_sync_set: InSyncSet | None) -> NodeView:
        view, now = term.confirm.view(record.node), self._clock.monotonic()
        end, confirmed = term.written, term.confirm.confirmed
        state, since_ms = record.state, record.since_ms
        if record.state == NodeState.FOLLOWING and view is not None and view.is_member and view.state is Following.ADOPTED:
            state, since_ms = NodeState.IN_SYNC, self._wall_ms((record.node, "since"), view.since)
        elif record.state == NodeState.FOLLOWING and in_sync_set is not None:
            state = NodeState.CATCHING_UP
        (reason, kind), dropped_ms = self._last_drop(record, view, in_sync_set)
        told = (record.received, record.flushed, record.applied)
        received, flushed, applied = told if record.state in {NodeState.FOLLOWING, NodeState.GONE} else (None, None, None)
        now_received, now_flushed, now_applied = told if record.state == NodeState.FOLLOWING else (None, None, None)
        return NodeView(
            record.node,
            "slave",
            state,
            received=received,
            flushed=flushed,
            applied=applied,
            received_lag_bytes=_lag(end, now_received),
            flushed_lag_bytes=_lag(end, now_flushed),
            applied_lag_bytes=_lag(confirmed, now_applied),
            received_lag_s=self._ends.lag_s(now_received, end, now),
            flushed_lag_s=self._ends.lag_s(now_flushed, end, now),
            applied_lag_s=self._confirmed_ends.lag_s(now_applied, confirmed, now),
            verified_offset=self._store.damage.whole_end(record.verified_offset) or None,
            since_ms=since_ms,
            transfer_bytes_per_s=record.sent.bytes_per_s(now),
            received_bytes_per_s=record.gained.bytes_per_s(now),
            last_drop_reason=reason,
            last_drop_kind=kind,
            last_drop_ms=dropped_ms,
        )

    def _last_drop(
        self, record: SlaveRecord, view: ReplicaView | None, in_sync_set: InSyncSet | None
    ) -> tuple[tuple[str, StreamEndReason | None], int | None]:
        """Why and when its stream ended or it was removed, whichever was last: that a node without a stream is removed is no news."""
        dropped = (record.last_drop_reason, record.last_drop_kind), record.last_drop_ms
        left = None if in_sync_set is None else in_sync_set.why_left(record.node)
        if view is None or left is None:
            return dropped
        why, left_at = left
        follows_since = record.began if record.state == NodeState.FOLLOWING else None
        if record.last_drop_ms is not None and (follows_since is None or left_at <= max(follows_since, record.dropped_at)):
            return dropped
        return (str(why), _LEFT_FOR.get(why.kind, StreamEndReason.OTHER)), self._wall_ms((record.node, "left"), left_at)

    def _wall_ms(self, what: tuple[str, str], moment: float) -> int:
        """Wall time of a moment of the monotonic clock; the same each time it is asked for."""
        known = self._wall_times.get(what)
        if known is None or known[0] != moment:
            elapsed_ms = int((self._clock.monotonic() - moment) * 1000)
            known = self._wall_times[what] = (moment, self._clock.wall_ms() - elapsed_ms)
            if len(self._wall_times) > _MOST_REPORTED:
                del self._wall_times[next(iter(self._wall_times))]
        return known[1]


def _lag(end: PhysicalOffset, position: PhysicalOffset | None) -> int | None:
    return None if position is None else max(0, end - position)
