"""Tells whoever watches a node how replication stands: at once, then whenever that has changed, and now and then that it has not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from dittomq.doors.clock import Clock
from dittomq.errors import LimitReached
from dittomq.ha_status import HaStatus
from dittomq.rpc.interceptors import taken_in_time

MAX_WATCHERS: Final = 64
UNCHANGED_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class WatchOrder:
    """At most one answer in `period_s`, and `max_responses` of them, 0 for any number."""

    period_s: float
    max_responses: int


class StatusWatches:
    """The watches of one node, at most 64.

    One that does not read waits alone, and gets the newest state when it reads again; after 30 s another one may have its place.
    """

    def __init__(self, node: str, status: Callable[[], HaStatus], clock: Clock) -> None:
        self._node = node
        self._status = status
        self._clock = clock
        self._watchers = 0
        self._stopping = asyncio.Event()

    async def watch(self, order: WatchOrder, send: Callable[[HaStatus], Awaitable[None]]) -> None:
        """Tell until all answers are given or the node stops. Raises LimitReached, and UnreadError when an answer is not taken."""
        if self._watchers >= MAX_WATCHERS:
            raise LimitReached(f"the list of watches of {self._node}", MAX_WATCHERS)
        self._watchers += 1
        try:
            await self._watch(order, send)
        finally:
            self._watchers -= 1

    def stop(self) -> None:
        """The node stops: end all watches, and refuse no new one, which ends after its first answer."""
        self._stopping.set()

    async def _watch(self, order: WatchOrder, send: Callable[[HaStatus], Awaitable[None]]) -> None:
        answers, told, told_at = 0, None, 0.0
        while True:
            status, now = self._status(), self._clock.monotonic()
            if told is None or _essence(status) != told or now - told_at >= UNCHANGED_S:
                await taken_in_time(send(status))
                answers, told, told_at = answers + 1, _essence(status), now
                if answers == order.max_responses:
                    return
            if await self._stops_within(order.period_s):
                return

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True


def _essence(status: HaStatus) -> HaStatus:
    """Without the ends of leases, which are told by a clock that the wall clock drifts from."""
    nodes = tuple(replace(view, pins=tuple(replace(pin, until_ms=0) for pin in view.pins)) for view in status.nodes)
    return replace(status, nodes=nodes)
