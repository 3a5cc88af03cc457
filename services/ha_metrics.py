"""Replication as metrics, read from the node's status when they are scraped. What is unknown has no sample."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as FutureTimeoutError

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dittomq.ha_status import HaStatus, NodeState, NodeView

_OFFSETS: dict[str, Callable[[HaStatus], int]] = {
    "min": lambda status: status.min_offset,
    "end": lambda status: status.end,
    "flushed": lambda status: status.flushed,
    "confirmed": lambda status: status.confirmed,
    "readable": lambda status: status.readable,
}
_LAGS: dict[str, Callable[[NodeView], int | None]] = {
    "received": lambda view: view.received_lag_bytes,
    "flushed": lambda view: view.flushed_lag_bytes,
    "applied": lambda view: view.applied_lag_bytes,
}
_LAGS_S: dict[str, Callable[[NodeView], float | None]] = {
    "received": lambda view: view.received_lag_s,
    "flushed": lambda view: view.flushed_lag_s,
    "applied": lambda view: view.applied_lag_s,
}

_LOOP_ANSWERS_S = 2.0


class HaCollector(Collector):
    """One node's view of its group. Scraped in any thread but the loop's, it calls `status` on the loop, which changes what that reads."""

    def __init__(self, status: Callable[[], HaStatus], loop: asyncio.AbstractEventLoop) -> None:
        self._status = status
        self._loop = loop

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All gauges of one moment; none while the loop does not answer."""
        asked = asyncio.run_coroutine_threadsafe(self._look(), self._loop)
        try:
            status = asked.result(_LOOP_ANSWERS_S)
        except FutureTimeoutError:
            asked.cancel()
            return
        yield from self._gauges(status)

    async def _look(self) -> HaStatus:
        return self._status()

    def _gauges(self, status: HaStatus) -> Iterator[GaugeMetricFamily]:
        offsets = GaugeMetricFamily("dittomq_log_offset_bytes", "Positions in this node's commit log.", labels=["position"])
        for position, read in _OFFSETS.items():
            offsets.add_metric([position], read(status))
        yield offsets
        yield GaugeMetricFamily("dittomq_epoch", "Epoch of this node, 0 for none.", value=status.epoch)
        yield GaugeMetricFamily("dittomq_writable", "1 when this node accepts writes.", value=int(status.writable))
        yield GaugeMetricFamily(
            "dittomq_degraded", "1 when the in-sync set has fewer members than copies are asked for.", value=int(status.degraded)
        )
        if status.degraded_since_ms is not None:
            name, help_ = "dittomq_degraded_since_timestamp_seconds", "Since when fewer copies confirm than were asked for."
            yield GaugeMetricFamily(name, help_, value=status.degraded_since_ms / 1000)
        if status.in_sync_now:  # only who leads knows, and counts itself
            yield GaugeMetricFamily("dittomq_in_sync_replicas", "Members that stream, the master counts.", value=status.in_sync_now)
        if status.in_sync_replicas:  # who leads, or is to, is configured with them
            yield GaugeMetricFamily(
                "dittomq_in_sync_replicas_required", "Copies asked for, the master counts.", value=status.in_sync_replicas
            )
        yield GaugeMetricFamily("dittomq_replicas_expected", "Slaves configured.", value=status.replicas_expected)
        yield GaugeMetricFamily("dittomq_in_sync_set_members", "Members by the group record; 0: no record.", value=len(status.members))
        if status.failover:
            failover = GaugeMetricFamily("dittomq_failover", "1 for how elections begin.", labels=["mode"])
            failover.add_metric([status.failover], 1)
            yield failover
        if status.coordination_store:
            usable, what = int(not status.coordination_problem), "1 when the coordination store can be used."
            yield GaugeMetricFamily("dittomq_coordination_usable", what, value=usable)
        if status.in_sync_now:
            what = "1 when acknowledged messages may have been lost when this epoch was opened."
            yield GaugeMetricFamily("dittomq_data_loss", what, value=int(bool(status.data_loss)))
        yield from self._lags(status)
        yield from self._slaves(status)

    def _lags(self, status: HaStatus) -> Iterator[GaugeMetricFamily]:
        lag = GaugeMetricFamily("dittomq_replica_lag_bytes", "Bytes that a copy is behind.", labels=["node", "state"])
        lag_s = GaugeMetricFamily(
            "dittomq_replica_lag_seconds", "How long ago a copy held what was then the end.", labels=["node", "state"]
        )
        verified = GaugeMetricFamily(
            "dittomq_replica_verified_offset_bytes", "Up to here digests of both copies were equal.", labels=["node"]
        )
        for view in status.nodes:
            for state, read in _LAGS.items():
                value = read(view)
                if value is not None:
                    lag.add_metric([view.node, state], value)
            for state, read_s in _LAGS_S.items():
                seconds = read_s(view)
                if seconds is not None:
                    lag_s.add_metric([view.node, state], seconds)
            if view.verified_offset is not None:
                verified.add_metric([view.node], view.verified_offset)
        yield from (lag, lag_s, verified)

    def _slaves(self, status: HaStatus) -> Iterator[GaugeMetricFamily]:
        in_sync = GaugeMetricFamily("dittomq_replica_in_sync", "1 when the master counts the copy as in sync.", labels=["node"])
        since = GaugeMetricFamily("dittomq_replica_state_since_timestamp_seconds", "Since when.", labels=["node", "state"])
        rate = GaugeMetricFamily("dittomq_replica_sent_bytes_per_second", "Bytes of the log sent to a copy, over 5 s.", labels=["node"])
        drop = GaugeMetricFamily("dittomq_replica_last_drop_timestamp_seconds", "Its last drop, and why.", labels=["node", "reason"])
        for view in status.nodes:
            if view.since_ms is not None:
                since.add_metric([view.node, view.state], view.since_ms / 1000)
            if view.last_drop_ms is not None and view.last_drop_kind is not None:
                drop.add_metric([view.node, view.last_drop_kind], view.last_drop_ms / 1000)
            if view.role == "slave" and view.node != status.node:
                in_sync.add_metric([view.node], int(view.state is NodeState.IN_SYNC))
                rate.add_metric([view.node], view.transfer_bytes_per_s)
        pins = GaugeMetricFamily(
            "dittomq_audit_pins", "Audits that hold this node's log.", value=sum(len(view.pins) for view in status.nodes)
        )
        yield from (in_sync, since, rate, drop, pins)
        own = next((view for view in status.nodes if view.node == status.node), None)
        if own is not None and own.damaged_bytes is not None:
            yield GaugeMetricFamily("dittomq_damaged_bytes", "Bytes of this node's log that are not whole.", value=own.damaged_bytes)
