"""Tells whoever watches something of a node what it is: at once, then whenever it has changed, and now and then that it has not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from dittomq.doors.clock import Clock
from dittomq.errors import LimitReached
from dittomq.rpc.interceptors import taken_in_time

UNCHANGED_S: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """A look every `look_s`, at most one answer for changes in `shortest_gap_s`, and `max_responses` in all, 0 for any number."""

    look_s: float
    max_responses: int
    shortest_gap_s: float = 0.0


class ChangeWatches:
    """The watches of one thing, at most `most`; `name` is what a refusal calls their list.

    One that does not read waits alone, and gets the newest state when it reads again; after 30 s another one may have its place.
    """

    def __init__(self, name: str, most: int, clock: Clock) -> None:
        self._name = name
        self._most = most
        self._clock = clock
        self._watchers = 0
        self._stopping = asyncio.Event()

    async def serve(
        self, look: Callable[[], T], send: Callable[[T], Awaitable[object]], limits: WatchLimits, *, essence: Callable[[T], object]
    ) -> None:
        """Tell what `look` finds until all answers are given or the node stops; what has an equal `essence` has not changed.

        Raises LimitReached, and UnreadError when an answer is not taken.
        """
        if self._watchers >= self._most:
            raise LimitReached(self._name, self._most)
        self._watchers += 1
        try:
            await self._serve(look, send, limits, essence=essence)
        finally:
            self._watchers -= 1

    def stop(self) -> None:
        """The node stops: end all watches, and refuse no new one, which ends after its first answer."""
        self._stopping.set()

    async def _serve(
        self, look: Callable[[], T], send: Callable[[T], Awaitable[object]], limits: WatchLimits, *, essence: Callable[[T], object]
    ) -> None:
        answers, told, told_at = 0, None, 0.0
        while True:
            found, now = look(), self._clock.monotonic()
            has_changed = essence(found) != told and now - told_at >= limits.shortest_gap_s
            if told is None or has_changed or now - told_at >= UNCHANGED_S:
                await taken_in_time(send(found))
                answers, told, told_at = answers + 1, essence(found), now
                if answers == limits.max_responses:
                    return
            if await self._stops_within(limits.look_s):
                return

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
