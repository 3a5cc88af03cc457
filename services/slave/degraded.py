"""⑤ What a slave knows of ranges that fewer copies confirmed than asked. Should it lead one day, nobody else may know it any more."""

import asyncio
from collections.abc import Callable

from dittomq.broker import degraded_file
from dittomq.commitlog.disk.storage import Storage
from dittomq.doors.workers import Lane
from dittomq.offsets import PhysicalOffset
from dittomq.replication.degraded import Degraded, clipped, told


class KnownDegraded:
    """The `ranges`; each change is durable when its call returns, or on a full disk with one that comes later."""

    def __init__(self, storage: Storage, lane: Lane) -> None:
        self._storage = storage
        self._lane = lane
        self.ranges: Degraded = ()
        self._is_written = True
        self._turn = asyncio.Lock()

    async def load(self) -> None:
        """Take up what was written down. Raises UnreadableStore."""
        self.ranges = (await self._lane.call(lambda: degraded_file.load(self._storage))).ranges

    async def learn(self, ranges: Degraded, term_start: PhysicalOffset) -> None:
        """The master tells what it knows; its term began at `term_start`."""
        await self._keep(lambda known: told(known, ranges, term_start))

    async def end_at(self, end: PhysicalOffset) -> None:
        """The log ends there: what was said of bytes behind it says nothing of those that come."""
        await self._keep(lambda known: clipped(known, end))

    async def look_after(self) -> None:
        """What a full disk did not take is written down when there is room."""
        await self._keep(lambda known: known)

    async def _keep(self, change: Callable[[Degraded], Degraded]) -> None:
        async with self._turn:
            ranges = change(self.ranges)
            if ranges != self.ranges or not self._is_written:
                document = degraded_file.document(ranges, None)
                self._is_written = await self._lane.call(lambda: degraded_file.save_if_room(self._storage, document))
                self.ranges = ranges
