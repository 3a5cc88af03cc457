"""What a master tells about its group's replication."""

from collections.abc import Iterable

from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.ha_status import HaStatus, NodeView
from dittomq.message import Ack
from dittomq.offsets import PhysicalOffset
from dittomq.replication.confirm_states import Degrade
from services.master.config import MasterConfig
from services.master.slaves import EndHistory, SlaveRecord
from services.master.term import Term


class StatusBoard:
    """Looks at everything, changes nothing."""

    def __init__(self, config: MasterConfig, store: Store, history: EndHistory, clock: Clock) -> None:
        self._config = config
        self._store = store
        self._history = history
        self._clock = clock

    def recovering(self, waiting_for: str, applied: PhysicalOffset, records: Iterable[SlaveRecord]) -> HaStatus:
        """Before the term."""
        store = self._store
        own = NodeView(self._config.name, "master", "recovering", received=store.end, flushed=store.flushed, applied=applied)
        slaves = [NodeView(record.node, "slave", record.state, since_ms=record.since_ms) for record in records]
        return self._status(own, slaves, confirmed=store.confirmed_at_start, waiting_for=waiting_for)

    def leading(self, term: Term, applied: PhysicalOffset, records: Iterable[SlaveRecord]) -> HaStatus:
        """During the term."""
        own = NodeView(
            self._config.name,
            "master",
            "leading",
            received=term.written,
            flushed=term.flushed,
            applied=applied,
            applied_lag_bytes=term.confirm.confirmed - applied,
        )
        slaves = [self._slave(term, record) for record in records]
        return self._status(own, slaves, confirmed=term.confirm.confirmed, waiting_for=term.refuses_writes, term=term)

    def _status(
        self, own: NodeView, slaves: list[NodeView], *, confirmed: PhysicalOffset, waiting_for: str, term: Term | None = None
    ) -> HaStatus:
        table = self._config.replication
        degraded = term is not None and term.confirm.degrade is not Degrade.NO
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
            writable=term is not None and not term.refuses_writes and term.confirm.has_room_for_writes(),
            degraded=degraded,
            degraded_since_ms=term.degraded.since_ms if term is not None else None,
            degraded_bytes=term.degraded.total_bytes(confirmed) if term is not None else 0,
            waiting_for=waiting_for,
            nodes=(own, *slaves),
        )

    def _slave(self, term: Term, record: SlaveRecord) -> NodeView:
        view = term.confirm.view(record.node)
        state = record.state
        since_ms = record.since_ms
        if record.connected and view is not None:
            state = "in sync" if view.in_sync else "catching up"
            since_ms = self._clock.wall_ms() - int((self._clock.monotonic() - view.since) * 1000)
        return NodeView(
            record.node,
            "slave",
            state,
            received=record.received,
            flushed=record.flushed,
            applied=record.applied,
            received_lag_bytes=_lag(term.confirm.level_end(Ack.MASTER_RECEIVED), record.received),
            flushed_lag_bytes=_lag(term.confirm.level_end(Ack.MASTER_RECEIVED), record.flushed),
            applied_lag_bytes=_lag(term.confirm.confirmed, record.applied),
            received_lag_s=self._lag_s(term, record.received),
            flushed_lag_s=self._lag_s(term, record.flushed),
            proven_equal=record.proven_equal or None,
            since_ms=since_ms,
            transfer_bytes_per_s=record.bytes_per_s,
            last_drop_reason=record.last_drop_reason or (view.why_left if view is not None else ""),
        )

    def _lag_s(self, term: Term, position: PhysicalOffset | None) -> float | None:
        if position is None:
            return None
        return self._history.lag_s(position, term.written, self._clock.monotonic())


def _lag(end: PhysicalOffset, position: PhysicalOffset | None) -> int | None:
    return None if position is None else max(0, end - position)
