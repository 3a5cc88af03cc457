"""The queues of a slave's store, as its metadata puller needs them: to empty those of topics that the master deleted."""

from collections.abc import Mapping

from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane


class StoreQueues:
    """Looks on the reads' lane, empties on the lane that writes the store."""

    def __init__(self, store: Store, reads: Lane, store_lane: Lane) -> None:
        self._store = store
        self._reads = reads
        self._store_lane = store_lane

    async def ends(self) -> Mapping[str, Mapping[int, int]]:
        """Of every topic, the queues that hold something, with their ends."""
        return await self._reads.call(self._ends)

    async def empty(self, topic: str, ends: Mapping[int, int]) -> None:
        """Durably empty a topic's queues, unless one of them has grown beyond its end."""
        await self._store_lane.call(lambda: self._empty(topic, ends))

    def _ends(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for topic, queue in self._store.queues():
            low, high = self._store.queue_range(topic, queue)
            if low < high:
                found.setdefault(topic, {})[queue] = high
        return found

    def _empty(self, topic: str, ends: Mapping[int, int]) -> None:
        if self._ends().get(topic, {}) == dict(ends):
            self._store.delete_topic(topic)
