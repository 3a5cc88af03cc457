"""Tells slaves when a table has a new version: at once, then at most once a second, and now and then that nothing has changed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from dittomq.broker.metadata import Metadata
from dittomq.doors.clock import Clock
from dittomq.errors import LimitReached
from dittomq.metadata.formats import KINDS
from dittomq.routes import DataVersion
from dittomq.rpc.interceptors import taken_in_time

MAX_VERSION_WATCHERS: Final = 64
SHORTEST_GAP_S: Final = 1.0
UNCHANGED_S: Final = 5.0
_LOOK_S: Final = 0.25

Versions = Mapping[str, DataVersion]
"""By the name of the table's kind."""


class VersionWatches:
    """The watches of one node's tables, at most 64."""

    def __init__(self, node: str, metadata: Metadata, clock: Clock) -> None:
        self._node = node
        self._metadata = metadata
        self._clock = clock
        self._watchers = 0
        self._stopping = asyncio.Event()

    async def watch(self, max_responses: int, send: Callable[[Versions], Awaitable[object]]) -> None:
        """Tell until all answers are given or the node stops. Raises LimitReached, and UnreadError when an answer is not taken."""
        if self._watchers >= MAX_VERSION_WATCHERS:
            raise LimitReached(f"the list of watches of the tables of {self._node}", MAX_VERSION_WATCHERS)
        self._watchers += 1
        try:
            await self._watch(max_responses, send)
        finally:
            self._watchers -= 1

    def stop(self) -> None:
        """The node stops: end all watches, and refuse no new one, which ends after its first answer."""
        self._stopping.set()

    async def _watch(self, max_responses: int, send: Callable[[Versions], Awaitable[object]]) -> None:
        answers, told, told_at = 0, None, 0.0
        while True:
            versions, now = self._metadata.versions, self._clock.monotonic()
            if told is None or (versions != told and now - told_at >= SHORTEST_GAP_S) or now - told_at >= UNCHANGED_S:
                await taken_in_time(send({kind.name: version for kind, version in zip(KINDS, versions, strict=True)}))
                answers, told, told_at = answers + 1, versions, now
                if answers == max_responses:
                    return
            if await self._stops_within(_LOOK_S):
                return

    async def _stops_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
