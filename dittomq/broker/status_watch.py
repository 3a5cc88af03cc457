"""Tells whoever watches a node how replication stands."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from dittomq.broker.change_watches import ChangeWatches, WatchLimits
from dittomq.doors.clock import Clock
from dittomq.ha_status import HaStatus

MAX_WATCHERS: Final = 64


@dataclass(frozen=True, slots=True)
class WatchOrder:
    """At most one answer in `period_s`, and `max_responses` of them, 0 for any number."""

    period_s: float
    max_responses: int


class StatusWatches:
    """The watches of one node, at most 64."""

    def __init__(self, node: str, status: Callable[[], HaStatus], clock: Clock) -> None:
        self._status = status
        self._watches = ChangeWatches(f"the list of watches of {node}", MAX_WATCHERS, clock)

    async def watch(self, order: WatchOrder, send: Callable[[HaStatus], Awaitable[None]]) -> None:
        """Tell until all answers are given or the node stops. Raises LimitReached, and UnreadError when an answer is not taken."""
        await self._watches.serve(self._status, send, WatchLimits(order.period_s, order.max_responses), essence=_essence)

    def stop(self) -> None:
        """The node stops: end all watches, and refuse no new one, which ends after its first answer."""
        self._watches.stop()


def _essence(status: HaStatus) -> HaStatus:
    """Without the ends of leases, which are told by a clock that the wall clock drifts from."""
    nodes = tuple(replace(view, pins=tuple(replace(pin, until_ms=0) for pin in view.pins)) for view in status.nodes)
    return replace(status, nodes=nodes)
