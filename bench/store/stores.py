"""What the measures put into stores, and a store with the parts of a master that write it."""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import count, islice
from pathlib import Path

from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.writer import Writer, WriterEvents, WriterLanes, WriterLimits
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import AppendBatch, AppendGroup, Store, StoreOptions
from dittomq.doors.clock import OsClock
from dittomq.doors.workers import ThreadWorkers, Workers
from dittomq.epoch_history import EpochEntry, newest_epoch, truncate_history
from dittomq.message import DraftBatch, DraftRuns
from dittomq.offsets import Epoch, PhysicalOffset

BATCH = 256
BODY_BYTES = 1024
QUEUES = 8
TOPIC = "bench"
BORN_MS = 1_700_000_000_000
_PRODUCER = "5d1f6a0c7b3e4f7e8a9b0c1d2e3f4a5b"
# More than a core's caches keep, as with real traffic; what is read before it is encoded costs the same on both sides.
_BODIES = 8_192


def bodies() -> list[bytes]:
    """Different ones, of the usual size."""
    chance = random.Random(1)
    return [chance.randbytes(BODY_BYTES) for _ in range(_BODIES)]


def stream() -> Iterator[AppendBatch]:
    """Batches of one producer without end, as a master hands them to its writer: each for one queue, without keys."""
    filling, identity = bodies(), b"PID\x01%b\x02SEQ\x01%%d\x02" % _PRODUCER.encode()
    for batch in count():
        first = batch * BATCH
        sequences = range(first, first + BATCH)
        run = DraftBatch(
            TOPIC, batch % QUEUES, BORN_MS, [filling[at % _BODIES] for at in sequences], [identity % at for at in sequences], tags_code=0
        )
        yield AppendBatch(DraftRuns([run]), _PRODUCER, first)


def frames(batches: int) -> list[AppendBatch]:
    """The first ones of such a stream."""
    return list(islice(stream(), batches))


def open_store(folder: Path, options: StoreOptions | None = None) -> Store:
    """A store on real files, made when it is not there."""
    return Store.open(OsStorage(folder), options or StoreOptions(), chance=random.Random(1), wall_ms=BORN_MS)


def lead(store: Store) -> None:
    """Open the next epoch, as a starting master does."""
    epoch = Epoch(newest_epoch(store.epoch_history) + 1)
    store.replace_epoch_history((*truncate_history(store.epoch_history, store.end), EpochEntry(epoch, 0, epoch, store.end)))


class Leader:
    """The writer and the dispatcher of a master without slaves; readable is what it has flushed, or written if it never syncs."""

    def __init__(self, store: Store, workers: Workers, *, syncs: bool) -> None:
        self.group_bytes: list[int] = []
        self._store = store
        self._syncs = syncs
        self._writer = Writer(
            store, WriterLanes(workers.lane("store"), workers.lane("sync")), OsClock(), WriterLimits(), sync_each_group=syncs
        )
        self._dispatcher = Dispatcher(store, workers.lane("dispatch"))
        self._waiting: deque[tuple[int, asyncio.Event]] = deque()
        self._reached = 0

    async def publish(self, frames: Sequence[AppendBatch], tasks: int) -> float:
        """`tasks` hand over one frame after the other, each waiting until its frame is safe; the seconds until all queues are built."""
        share = [frames[at::tasks] for at in range(tasks)]
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for mine in share:
                group.create_task(self._publish(mine))
        while self._dispatcher.applied < self._store.end:
            grown = self._dispatcher.pulse()
            if self._dispatcher.applied < self._store.end:
                await grown.wait()
        return time.perf_counter() - began

    async def run(self) -> None:
        """Write and dispatch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run(WriterEvents(self._written, self._flushed)))
            tasks.create_task(self._dispatcher.run())

    async def _publish(self, frames: Sequence[AppendBatch]) -> None:
        for frame in frames:
            first = frame.drafts[0]
            size = len(frame.drafts) * (len(first.body) + len(first.properties))  # the wire counts it while it decodes
            end = (await (await self._writer.submit(frame, size)))[-1].end
            if end > self._reached:
                safe = asyncio.Event()
                self._waiting.append((end, safe))
                await safe.wait()

    def _written(self, group: AppendGroup) -> None:
        self.group_bytes.append(group.end - group.start)
        if not self._syncs:
            self._move(group.end)

    def _flushed(self, end: PhysicalOffset) -> None:
        self._move(end)

    def _move(self, end: PhysicalOffset) -> None:
        self._reached = end
        self._dispatcher.readable_to(end)
        while self._waiting and self._waiting[0][0] <= end:
            self._waiting.popleft()[1].set()


@asynccontextmanager
async def leader_of(store: Store, *, syncs: bool) -> AsyncIterator[Leader]:
    """At work until left."""
    workers = ThreadWorkers()
    leader = Leader(store, workers, syncs=syncs)
    try:
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(leader.run())
            yield leader
            work.cancel()
    finally:
        workers.close()
