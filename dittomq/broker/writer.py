"""③ The one writer of a master's log: takes all that waits, writes it, syncs once for the whole group.

The loop hands frames over in one bounded queue; the writer's lane runs the steps. A crash may fall between the steps:

    take ▶ encode and write ▶ (written: slaves may have it, MASTER_RECEIVED is true) ▶ sync ▶ (flushed)

A StoreFailed ends the writer: every frame that is not answered becomes unknown, nothing is tried again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass

from dittomq.commitlog.store import Frame, Group, Placed, Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.errors import Refused, StoreFailed
from dittomq.offsets import PhysicalOffset


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Bytes. `queue_bytes` may wait for the writer; callers wait when it is full. A group ends at `group_bytes`."""

    queue_bytes: int = 64 * 1024 * 1024
    group_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WrittenFrame:
    """A frame that is in the log: where each message lies, and the end that must be acknowledged for all of it."""

    placed: list[Placed]
    end: PhysicalOffset
    store_ms: int


@dataclass(slots=True)
class _Waiting:
    frame: Frame
    size: int
    done: "asyncio.Future[WrittenFrame]"


@dataclass(frozen=True, slots=True)
class WriterEvents:
    """Called on the loop. `flushed` comes after `written` of the same group."""

    written: Callable[[Group], None]
    flushed: Callable[[PhysicalOffset], None]


class Writer:
    """Appends frames in the order of the calls."""

    def __init__(self, store: Store, lane: Lane, clock: Clock, limits: WriterLimits, *, sync_each_group: bool) -> None:
        """Without `sync_each_group` (ASYNC_FLUSH) somebody else calls `flush` from time to time."""
        self._store = store
        self._lane = lane
        self._clock = clock
        self._limits = limits
        self._sync_each_group = sync_each_group
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._failed: StoreFailed | None = None

    async def submit(self, frame: Frame) -> "asyncio.Future[WrittenFrame]":
        """Hand the frame over; the future is done when it is written, not when it is flushed. Waits only while the queue is full.

        The future's Refused means that nothing of it is in the log, its StoreFailed that nobody knows.
        """
        size = sum(len(body) + len(properties) + 128 for _, _, _, _, body, properties, _ in frame.drafts)
        while self._waiting_bytes and self._waiting_bytes + size > self._limits.queue_bytes:
            self._room.clear()
            await self._room.wait()
        if self._failed is not None:
            raise self._failed
        waiting = _Waiting(frame, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._waiting_bytes += size
        self._arrived.set()
        self._idle.clear()
        return waiting.done

    async def run(self, events: WriterEvents) -> None:
        """Write until cancelled; raises StoreFailed when the disk fails."""
        try:
            while True:
                await self._arrived.wait()
                batch = self._take()
                await self._write(batch, events)
                if not self._waiting:
                    self._arrived.clear()
                    self._idle.set()
        except StoreFailed as failure:
            self._failed = failure
            self._room.set()
            for waiting in self._waiting:
                _fail(waiting, failure)
            raise

    async def flush(self, events: WriterEvents) -> None:
        """Sync what is written, in the order of the groups."""
        events.flushed(await self._lane.call(self._store.sync))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no group is under way."""
        return self._idle.is_set()

    async def drained(self) -> None:
        """Return when nothing waits and no group is under way."""
        await self._idle.wait()

    def _take(self) -> list[_Waiting]:
        batch, size = [self._waiting.popleft()], 0
        size += batch[0].size
        while self._waiting and size + self._waiting[0].size <= self._limits.group_bytes:
            size += self._waiting[0].size
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= size
        self._room.set()
        return batch

    async def _write(self, batch: list[_Waiting], events: WriterEvents) -> None:
        def on_written(group: Group) -> None:
            events.written(group)
            _answer(batch, group)

        try:
            flushed = await self._lane.run(self._steps(batch), on_written)
        except Refused as refused:
            for waiting in batch:
                _fail(waiting, refused)
            return
        except StoreFailed as failure:
            for waiting in batch:
                _fail(waiting, failure)
            raise
        if flushed is not None:
            events.flushed(flushed)

    def _steps(self, batch: list[_Waiting]) -> Generator[Group, None, PhysicalOffset | None]:
        group = self._store.append([waiting.frame for waiting in batch], self._clock.wall_ms())
        yield group
        return self._store.sync() if self._sync_each_group else None


def _answer(batch: list[_Waiting], group: Group) -> None:
    for waiting, placed in zip(batch, group.placed, strict=True):
        if isinstance(placed, Refused):
            _fail(waiting, placed)
        elif not waiting.done.done():
            last = placed[-1]  # in the order of their sequences, which is their order in the log
            waiting.done.set_result(WrittenFrame(placed, PhysicalOffset(last.physical_offset + last.size), group.store_ms))


def _fail(waiting: _Waiting, error: Refused | StoreFailed) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)
        waiting.done.exception()  # a caller that left must not make the loop complain
