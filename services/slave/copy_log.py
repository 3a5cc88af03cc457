"""⑤ The slave's copy of the log: written chunk by chunk in the order of arrival, synced once for all that came meanwhile.

A slave that keeps up writes and syncs in one go. One that is behind syncs what it wrote while it verifies and writes what is next.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator

from dittomq.commitlog.store import Store
from dittomq.doors.workers import Lane
from dittomq.lineage import Lineage
from dittomq.offsets import PhysicalOffset
from dittomq.replication.slave_session import AdoptLineage, WriteChunk

QUEUE_BYTES = 32 * 1024 * 1024
_BATCH_BYTES = 8 * 1024 * 1024


class CopyLog:
    """Takes a session's writes. `flushed` is what survives power loss; both ends are ends of whole records."""

    def __init__(self, store: Store, lane: Lane, sync_lane: Lane, *, sync_each_group: bool) -> None:
        self._store = store
        self._lane = lane
        self._sync_lane = sync_lane
        self._sync_each_group = sync_each_group
        self._waiting: deque[WriteChunk | AdoptLineage] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._behind = asyncio.Event()
        self._synced = asyncio.Event()
        self.received = store.end
        self.flushed = store.flushed

    @property
    def sync_is_under_way(self) -> bool:
        """What was received will be flushed without anybody asking for it."""
        return self._sync_each_group and self.flushed < self.received

    async def put(self, write: WriteChunk | AdoptLineage) -> None:
        """Queue it; the stream waits while 32 MiB are waiting."""
        size = len(write.data) if isinstance(write, WriteChunk) else 0
        while self._waiting_bytes and self._waiting_bytes + size > QUEUE_BYTES:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(write)
        self._waiting_bytes += size
        self._arrived.set()

    async def run(self, moved: Callable[[], None]) -> None:
        """Write and sync until cancelled; `moved` is called after each step. Raises CorruptRecord, StoreFailed."""

        def received(end: PhysicalOffset) -> None:
            self.received = end
            moved()

        while True:
            await self._arrived.wait()
            await self._let_sync_follow()
            batch = self._take()
            flushed = await self._lane.run(self._steps(batch), received)
            if flushed is not None:
                self.flushed = max(self.flushed, flushed)
                moved()
            elif self._sync_each_group:
                self._behind.set()

    async def sync_behind(self, moved: Callable[[], None]) -> None:
        """Sync what `run` has written but not synced, until cancelled; `moved` is called after each sync. Raises StoreFailed."""
        while True:
            await self._behind.wait()
            self._behind.clear()
            self.flushed = max(self.flushed, await self._sync_lane.call(self._store.sync))
            self._synced.set()
            moved()

    async def flush(self) -> None:
        """Sync what is written."""
        self.flushed = await self._lane.call(self._store.sync)

    async def settle(self) -> None:
        """Forget what waits and what is no whole record: a new stream starts at a record's end."""
        self._waiting.clear()
        self._waiting_bytes = 0
        await self._lane.call(self._drop_partial)
        self.received, self.flushed = self._store.end, self._store.flushed

    async def cut(self, to: PhysicalOffset) -> None:
        """Cut the log, durably."""
        await self._lane.call(lambda: self._store.cut(to))
        self.received, self.flushed = self._store.end, self._store.flushed

    @property
    def lineage(self) -> Lineage:
        """As it is on disk."""
        return self._store.lineage

    def _take(self) -> list[WriteChunk | AdoptLineage]:
        batch: list[WriteChunk | AdoptLineage] = []
        size = 0
        while self._waiting and size < _BATCH_BYTES:
            write = self._waiting.popleft()
            size += len(write.data) if isinstance(write, WriteChunk) else 0
            batch.append(write)
        if not self._waiting:
            self._arrived.clear()
        self._waiting_bytes -= size
        self._room.set()
        return batch

    async def _let_sync_follow(self) -> None:
        """Write no further ahead of the sync than one batch: what is not flushed waits in memory for its queues."""
        while self._sync_each_group and self.received - self.flushed > _BATCH_BYTES:
            self._synced.clear()
            await self._synced.wait()

    def _drop_partial(self) -> None:
        if self._store.written_raw > self._store.end:
            self._store.cut(self._store.end)

    def _steps(self, batch: list[WriteChunk | AdoptLineage]) -> Generator[PhysicalOffset, None, PhysicalOffset | None]:
        for write in batch:
            if isinstance(write, AdoptLineage):
                self._store.adopt_lineage(write.lineage)
            else:
                self._store.write_chunk(write.offset, write.data)
        yield self._store.end
        return self._store.sync() if self._sync_each_group and not self._waiting else None
