"""⑤ What a slave knows of ranges that fewer copies confirmed than asked. Should it lead one day, nobody else may know it any more."""

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

    async def load(self) -> None:
        """Take up what was written down. Raises UnreadableStore."""
        self.ranges = (await self._lane.call(lambda: degraded_file.load(self._storage))).ranges

    async def learn(self, ranges: Degraded, term_start: PhysicalOffset) -> None:
        """The master tells what it knows; its term began at `term_start`."""
        await self._keep(told(self.ranges, ranges, term_start))

    async def end_at(self, end: PhysicalOffset) -> None:
        """The log ends there: what was said of bytes behind it says nothing of those that come."""
        await self._keep(clipped(self.ranges, end))

    async def _keep(self, ranges: Degraded) -> None:
        if ranges != self.ranges or not self._is_written:
            document = degraded_file.document(ranges, None)
            self._is_written = await self._lane.call(lambda: degraded_file.save_if_room(self._storage, document))
            self.ranges = ranges
