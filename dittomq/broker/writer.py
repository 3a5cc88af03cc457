"""③ The one writer of a master's log: takes all that waits, writes it, syncs once for the whole group.

The loop hands batches over in one bounded queue; the writer's lane runs the steps. A crash may fall between the steps:

    take ▶ encode and write ▶ (written: slaves may have it, MASTER_RECEIVED is true) ▶ sync ▶ (flushed)

A group is synced where it was written, which is the shortest way, unless more batches wait already: then it is synced on a lane of
its own, while the next group is encoded, and one sync covers all groups that were written before it.

A StorageFailure ends the writer: every batch that is not answered becomes unknown, nothing is tried again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from dittomq.commitlog.store import AppendBatch, AppendGroup, Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, Refused, StorageFailure
from dittomq.offsets import PhysicalOffset
from dittomq.places import AppendResult

_ROOM_S = 1.0
_OVERHEAD_BYTES = 128
"""What a record holds besides its body and its properties, about."""


@dataclass(frozen=True, slots=True)
class WriterLimits:
    """Bytes. `queue_bytes` may wait for the writer; callers wait when it is full. A group ends at `group_bytes`.

    Groups of a megabyte let the next one be encoded while the last is synced; larger ones win nothing from the disk.
    """

    queue_bytes: int = 64 * 1024 * 1024
    group_bytes: int = 1024 * 1024


def _nothing() -> None:
    return


WrittenBatch = Sequence[AppendResult]
"""A batch that is in the log: where its messages lie, in their order, which is that of their places too."""


@dataclass(slots=True)
class _Waiting:
    number: int
    batch: AppendBatch
    size: int
    done: "asyncio.Future[WrittenBatch]"


@dataclass(frozen=True, slots=True)
class WriterLanes:
    """`write` is the only lane that writes the log; `sync` syncs it meanwhile."""

    write: Executor
    sync: Executor


@dataclass(frozen=True, slots=True)
class WriterEvents:
    """Called on the loop. `flushed` comes after `written` of the same group."""

    written: Callable[[AppendGroup], None]
    flushed: Callable[[PhysicalOffset], None]


class Writer:
    """Appends batches in the order of the calls."""

    def __init__(self, store: Store, lanes: WriterLanes, clock: Clock, limits: WriterLimits, *, sync_each_group: bool) -> None:
        """Without `sync_each_group` (ASYNC_FLUSH) somebody else calls `flush` from time to time."""
        self._store = store
        self._lanes = lanes
        self._clock = clock
        self._limits = limits
        self._sync_each_group = sync_each_group
        self._waiting: deque[_Waiting] = deque()
        self._waiting_bytes = 0
        self._calls = 0
        self._open: dict[int, None] = {}  # the numbers of calls whose batches are neither written nor refused; the lowest comes first
        self._went_on = asyncio.Event()
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._must_sync = asyncio.Event()
        self._writing = self._syncing = False
        self._written = store.end
        self._failed: StorageFailure | None = None
        self._refusal: Refused | None = None
        self.full: DiskFull | None = None  # what batches were refused with last, while it stands
        self._ran_full = asyncio.Event()
        self._takes = asyncio.Event()
        self._takes.set()

    def pause(self) -> None:
        """Let every further batch wait until `resume`, also those that wait for room already."""
        self._takes.clear()

    def resume(self, refusal: Refused | None = None) -> None:
        """Take batches again, or refuse them all from now on; those that waited come first."""
        self._refusal = refusal
        self._takes.set()

    async def submit(self, batch: AppendBatch, size: int, check: Callable[[], object] = _nothing) -> "asyncio.Future[WrittenBatch]":
        """Hand the batch over; the future is done when it is written, not when it is flushed. Waits while the queue is full, or paused.

        `size` is the bytes of its bodies and properties. `check` refuses it by raising, when it has waited. The future's Refused means
        that nothing of it is in the log, its StorageFailure that nobody knows.
        """
        size += _OVERHEAD_BYTES * len(batch.drafts)
        number = self._calls
        self._calls += 1
        self._open[number] = None
        try:
            await self._admitted(size)
            check()
        except BaseException:
            self._close([number])
            raise
        waiting = _Waiting(number, batch, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._waiting_bytes += size
        self._arrived.set()
        self._idle.clear()
        return waiting.done

    async def caught_up(self) -> None:
        """Return when every batch that was handed over before this call is written or refused, also one that waits for room or a pause."""
        calls = self._calls
        while next(iter(self._open), calls) < calls:
            self._went_on.clear()
            await self._went_on.wait()

    async def run(self, events: WriterEvents) -> None:
        """Write until cancelled; raises StorageFailure, in a group, when the disk fails."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_groups(events))
            tasks.create_task(self._sync_behind(events))
            tasks.create_task(self._look_for_room())

    async def flush(self, events: WriterEvents) -> None:
        """Sync what is written, in the order of the groups."""
        events.flushed(await self._lanes.write.call(self._store.sync))

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and no group is under way."""
        return self._idle.is_set()

    async def drained(self) -> None:
        """Return when nothing waits and no group is under way."""
        await self._idle.wait()

    async def _write_groups(self, events: WriterEvents) -> None:
        while True:
            await self._arrived.wait()
            await self._write_group(events)
            if not self._waiting:
                self._arrived.clear()
            self._rest()

    async def _write_group(self, events: WriterEvents) -> None:
        """A call of its own, so that nothing of the group is kept until the next one comes."""
        taken = self._take()
        try:
            await self._write(taken, events)
        except StorageFailure as failure:
            self._fail_all(taken, failure)
            raise

    async def _sync_behind(self, events: WriterEvents) -> None:
        """Sync, beside what is being written, the groups that were not synced where they were written."""
        while True:
            await self._must_sync.wait()
            self._must_sync.clear()
            self._syncing = True
            try:
                flushed = await self._lanes.sync.call(self._store.sync)
            except StorageFailure as failure:
                self._fail_all((), failure)
                raise
            self._syncing = False
            events.flushed(min(flushed, self._written))  # of a group that is written only just now nobody has been told
            self._rest()

    async def _look_for_room(self) -> None:
        """A disk that refused a batch has room when that one would fit: nobody may come with another to find out."""
        while True:
            await self._ran_full.wait()
            await asyncio.sleep(_ROOM_S)
            if (full := self.full) is None:
                self._ran_full.clear()
                continue
            found = await self._lanes.write.call(lambda: self._still(full))  # it is called before the next one is looked at
            if self.full is full:
                self.full = found

    async def _admitted(self, size: int) -> None:
        """Return when the batch may be taken; raises why none is."""
        await self._takes.wait()
        while not self._has_room(size):
            self._room.clear()
            await self._room.wait()
            await self._takes.wait()
        if self._failed is not None:
            raise self._failed
        if self._refusal is not None:
            raise self._refusal

    def _close(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._open.pop(number, None)
        self._went_on.set()

    def _has_room(self, size: int) -> bool:
        return not self._waiting_bytes or self._waiting_bytes + size <= self._limits.queue_bytes

    def _rest(self) -> None:
        if not (self._waiting or self._writing or self._syncing or self._must_sync.is_set()):
            self._idle.set()

    def _take(self) -> list[_Waiting]:
        taken, size = [self._waiting.popleft()], 0
        size += taken[0].size
        while self._waiting and size + self._waiting[0].size <= self._limits.group_bytes:
            size += self._waiting[0].size
            taken.append(self._waiting.popleft())
        self._waiting_bytes -= size
        self._room.set()
        return taken

    async def _write(self, taken: list[_Waiting], events: WriterEvents) -> None:
        def on_written(group: AppendGroup) -> None:
            self._written = group.end
            self.full = None
            events.written(group)
            _answer(taken, group)

        self._writing = True
        try:
            flushed = await self._lanes.write.run(self._steps(taken), on_written)
        except Refused as refused:
            if isinstance(refused, DiskFull):
                self.full = refused
                self._ran_full.set()
            for waiting in taken:
                _fail(waiting, refused)
            return
        finally:
            self._writing = False
            self._close(waiting.number for waiting in taken)
        if flushed is not None:
            events.flushed(flushed)
        elif self._sync_each_group:
            self._must_sync.set()

    def _still(self, full: DiskFull) -> DiskFull | None:
        try:
            self._store.check_free(full.needed)
        except DiskFull as still:
            return still
        return None

    def _steps(self, taken: list[_Waiting]) -> Generator[AppendGroup, None, PhysicalOffset | None]:
        group = self._store.append([waiting.batch for waiting in taken], self._clock.wall_ms())
        yield group
        elsewhere = self._syncing or self._waiting
        return self._store.sync() if self._sync_each_group and not elsewhere else None

    def _fail_all(self, taken: Sequence[_Waiting], failure: StorageFailure) -> None:
        """Nobody is answered any more but with it."""
        self._failed = failure
        self._room.set()
        self._takes.set()
        for waiting in (*taken, *self._waiting):
            _fail(waiting, failure)
        self._close(waiting.number for waiting in self._waiting)


def _answer(taken: list[_Waiting], group: AppendGroup) -> None:
    for waiting, placed in zip(taken, group.placed, strict=True):
        if isinstance(placed, Refused):
            _fail(waiting, placed)
        elif not waiting.done.done():
            waiting.done.set_result(placed)


def _fail(waiting: _Waiting, error: Refused | StorageFailure) -> None:
    if not waiting.done.done():
        waiting.done.set_exception(error)
        waiting.done.exception()  # a caller that left must not make the loop complain
