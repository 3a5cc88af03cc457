"""What the queues of a slave's store hold by topic, and how those of a deleted topic are emptied."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from dittomq.doors.workers import Lane


class QueueStore(Protocol):
    """The part of a store that knows queues. Every call blocks and runs on a lane."""

    def queues(self) -> Iterable[tuple[str, int]]: ...

    def queue_range(self, topic: str, queue: int) -> tuple[int, int]: ...

    def delete_topic(self, topic: str) -> None: ...


class StoreQueues:
    """The queues of one store; `lane` is the one on which it is written."""

    def __init__(self, store: QueueStore, lane: Lane) -> None:
        self._store = store
        self._lane = lane

    async def ends(self) -> dict[str, dict[int, int]]:
        """Of every topic, the queues that hold something, with their ends."""
        return await self._lane.call(self._ends)

    async def empty(self, topic: str, ends: Mapping[int, int]) -> None:
        """Durably empty a topic's queues, unless one of them has grown beyond its end: then the topic may have been made again."""
        await self._lane.call(lambda: self._empty(topic, ends))

    def _ends(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for topic, queue in self._store.queues():
            start, end = self._store.queue_range(topic, queue)
            if start < end:
                found.setdefault(topic, {})[queue] = end
        return found

    def _empty(self, topic: str, ends: Mapping[int, int]) -> None:
        if self._ends().get(topic) == ends:
            self._store.delete_topic(topic)
