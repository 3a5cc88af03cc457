"""⑤ The slave's copy of the log: written chunk by chunk in the order of arrival, synced once for all that came meanwhile."""

import asyncio
from collections import deque
from collections.abc import Callable, Generator

from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.traces import CopySpans
from dittomq.doors.workers import Executor
from dittomq.epoch_history import EpochHistory
from dittomq.offsets import PhysicalOffset
from dittomq.replication.slave_events import ReplaceEpochHistory, SkipRange, WriteChunk

QUEUE_BYTES = 32 * 1024 * 1024


class ReplicaLogWriter:
    """Takes a session's writes. `flushed` is what survives power loss; both ends are ends of whole records."""

    def __init__(self, store: Store, lane: Executor, sync_lane: Executor, *, sync_each_group: bool, spans: CopySpans | None = None) -> None:
        """`lane` is the only one that writes the log; `sync_lane` syncs it meanwhile. `spans`: those of the messages that come."""
        self._store = store
        self._lane = lane
        self._sync_lane = sync_lane
        self._sync_each_group = sync_each_group
        self._spans = spans
        self._waiting: deque[WriteChunk | SkipRange | ReplaceEpochHistory] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._must_sync = asyncio.Event()
        self._syncs = 0  # under way in their lane, also those of a stream that has ended
        self.received = store.end
        self.flushed = store.flushed

    @property
    def sync_is_under_way(self) -> bool:
        """What was received will be flushed without anybody asking for it."""
        return self._sync_each_group and self.flushed < self.received

    async def put(self, write: WriteChunk | SkipRange | ReplaceEpochHistory) -> None:
        """Queue it; the stream waits while 32 MiB are waiting."""
        size = len(write.data) if isinstance(write, WriteChunk) else 0
        while self._waiting_bytes and self._waiting_bytes + size > QUEUE_BYTES:
            self._room.clear()
            await self._room.wait()
        if self._spans is not None and isinstance(write, WriteChunk):
            self._spans.arrived(write.offset, write.data)
        self._waiting.append(write)
        self._waiting_bytes += size
        self._arrived.set()

    def master_ended_at(self, end: PhysicalOffset) -> None:
        """The master has named the end of its log."""
        if self._spans is not None:
            self._spans.master_ended_at(end)

    async def run(self, moved: Callable[[], None]) -> None:
        """Write until cancelled, and sync what nothing waits behind; `moved` is called after each step.

        Raises CorruptRecord, StorageFailure.
        """

        def received(end: PhysicalOffset) -> None:
            self.received = end
            if self._spans is not None:
                self._spans.written(end)
            moved()

        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self._room.set()
            flushed = await self._lane.run(self._steps(batch), received)
            if flushed is not None:
                self._flushed_to(max(self.flushed, flushed))
                moved()
            elif self._sync_each_group:
                self._must_sync.set()

    async def sync_behind(self, moved: Callable[[], None]) -> None:
        """Sync, beside what is being written, what was not synced where it was written; until cancelled. Raises StorageFailure."""
        while True:
            await self._must_sync.wait()
            self._must_sync.clear()
            self._flushed_to(await self._sync())
            moved()

    async def flush(self) -> None:
        """Sync what is written, also by a stream that has ended."""
        await self._lane.call(lambda: None)
        self._flushed_to(await self._sync())

    def _flushed_to(self, end: PhysicalOffset) -> None:
        self.flushed = end
        if self._spans is not None:
            self._spans.flushed(end)

    async def _sync(self) -> PhysicalOffset:
        """One after the other; whoever leaves does not end what is under way; no batch is synced where it is written meanwhile."""
        self._syncs += 1
        flushed = await self._sync_lane.run(self._sync_steps(), self._synced)
        return min(flushed, self.received)  # of what is written only just now nobody has been told

    def _sync_steps(self) -> Generator[None, None, PhysicalOffset]:
        flushed = self._store.sync()
        yield
        return flushed

    def _synced(self, _: None) -> None:
        self._syncs -= 1

    async def settle(self) -> None:
        """Forget what waits and what is no whole record: a new stream starts at a record's end."""
        self._waiting.clear()
        self._waiting_bytes = 0
        if self._spans is not None:
            self._spans.dropped()
        await self._lane.call(self._drop_partial)
        self.received, self.flushed = self._store.end, self._store.flushed

    async def truncate(self, to: PhysicalOffset) -> None:
        """Cut the log, durably."""
        await self._lane.call(lambda: self._store.truncate(to))
        self.received, self.flushed = self._store.end, self._store.flushed

    async def begin(self, log_start: LogStart) -> None:
        """Let the log, which holds nothing, begin elsewhere, durably."""
        await self._lane.call(lambda: self._store.set_log_start(log_start))
        self.received, self.flushed = self._store.end, self._store.flushed

    @property
    def epoch_history(self) -> EpochHistory:
        """As it is on disk."""
        return self._store.epoch_history

    def _drop_partial(self) -> None:
        if self._store.written_raw > self._store.end:
            self._store.truncate(self._store.end)

    def _steps(self, batch: list[WriteChunk | SkipRange | ReplaceEpochHistory]) -> Generator[PhysicalOffset, None, PhysicalOffset | None]:
        adopts = False
        for write in batch:
            if isinstance(write, ReplaceEpochHistory):
                self._store.replace_epoch_history(write.epoch_history)
                adopts = True
            elif isinstance(write, SkipRange):
                self._store.skip_range(write.start, write.end)
            else:
                self._store.write_chunk(write.offset, write.data)
        yield self._store.end
        elsewhere = self._syncs or self._must_sync.is_set() or self._waiting
        if self._sync_each_group and not elsewhere:
            return self._store.sync()
        return self._store.flushed if adopts else None  # what is before a new epoch was synced for it
