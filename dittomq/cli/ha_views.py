"""A slave as its master and it itself see it, put together. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from dittomq.ha_status import HaStatus, NodeState, NodeView

ABSENT: Final = {NodeState.GONE, NodeState.WAITING, NodeState.UNKNOWN}  # its master does not hear it


@dataclass(frozen=True, slots=True)
class Ends:
    """The ends of the master's log, for a slave whose log has come up to `epoch`."""

    master: HaStatus
    epoch: int

    def behind(self, end: int, position: int | None) -> int | None:
        """None while the master has opened no epoch, and where the slave, of an older one, has as much: they may be other bytes."""
        if position is None or not self.master.epoch:
            return None
        behind = end - position
        return max(0, behind) if behind > 0 or self.epoch == self.master.epoch else None


def state_in_words(view: NodeView) -> str:
    """The state, and how far it is."""
    if view.resync_done_bytes is not None and view.resync_total_bytes is not None:
        return f"{view.state}, {_of(view.resync_done_bytes, view.resync_total_bytes)}"
    return f"{view.state}, to {view.switchover_target}" if view.switchover_target else view.state


def joined(seen: NodeView | None, own: NodeView, ends: Ends) -> NodeView:
    """A slave as its master sees it, and as it is told by itself where its master does not hear it."""
    if seen is None or seen.state in ABSENT:
        view = _own_report(seen or own, own, ends)
    else:
        view = with_own_report(seen, own)
        if seen.applied is None and own.applied is not None:  # its master has not heard that
            view = _own_applied(view, own, max(0, ends.master.confirmed - own.applied))
    if own.state is NodeState.FULL_RESYNC:  # its master hears of a slave as any other
        done, total = own.resync_done_bytes, own.resync_total_bytes
        view = replace(view, state=own.state, since_ms=own.since_ms, resync_done_bytes=done, resync_total_bytes=total)
    return view


def with_own_report(seen: NodeView, own: NodeView) -> NodeView:
    """A node as its master sees it, with what no master knows of it."""
    return replace(seen, pins=own.pins, damaged_bytes=own.damaged_bytes)


def _own_report(known: NodeView, own: NodeView, ends: Ends) -> NodeView:
    """What the slave holds, behind the master's ends: its own may be from before it lost its master, or a disk."""
    master = ends.master
    view = replace(
        own,
        state=own.state if known.state is NodeState.UNKNOWN else known.state,
        since_ms=known.since_ms,
        received_lag_bytes=ends.behind(master.end, own.received),
        flushed_lag_bytes=ends.behind(master.end, own.flushed),
        received_lag_s=None,
        flushed_lag_s=None,
        last_drop_reason=known.last_drop_reason,
        last_drop_kind=known.last_drop_kind,
        last_drop_ms=known.last_drop_ms,
    )
    return _own_applied(view, own, ends.behind(master.confirmed, own.applied))


def _own_applied(view: NodeView, own: NodeView, behind: int | None) -> NodeView:
    """`behind` what its master has confirmed by now, which the node itself has not heard."""
    seconds = own.applied_lag_s if behind == own.applied_lag_bytes else None
    return replace(view, applied=own.applied, applied_lag_bytes=behind, applied_lag_s=seconds)


def without_lags(own: NodeView) -> NodeView:
    """No master says where its log ends now."""
    return replace(
        own,
        received_lag_bytes=None,
        flushed_lag_bytes=None,
        applied_lag_bytes=None,
        received_lag_s=None,
        flushed_lag_s=None,
        applied_lag_s=None,
    )


def _of(part: int, whole: int) -> str:
    unit, name = (1024**3, "GiB") if whole >= 1024**3 else (1024**2, "MiB")
    return f"{part / unit:.1f} of {whole / unit:.1f} {name}"
