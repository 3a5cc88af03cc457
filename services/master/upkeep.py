"""What a leading master does for its log all the time: zeros ahead of the end, and under ASYNC_FLUSH a sync now and then."""

import asyncio
from typing import Final, NoReturn

from dittomq.broker.writer import WriterEvents
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from services.master.term import Term

_FLUSH_S: Final = 0.5
_PREPARE_S: Final = 1.0
_LOOK_S: Final = 0.5


async def prepare_log(store: Store, lane: Executor, term: Term) -> NoReturn:
    """In idle moments, write zeros ahead of the log's end: a sync of bytes that lie in written blocks is quicker. Until cancelled.

    An append that comes meanwhile waits for one piece, some milliseconds: so the rest of a beginning pause fills the whole window, and
    under a light load what was used is made up for seldom.
    """

    def zero() -> bool:
        more = store.ahead.zero()
        if more:
            store.sync()
        return more

    while True:
        await asyncio.sleep(_PREPARE_S)
        while term.writer.is_idle and await lane.call(zero):
            pass


async def flush_now_and_then(term: Term, events: WriterEvents) -> NoReturn:
    """Sync what was written, until cancelled."""
    while True:
        await asyncio.sleep(_FLUSH_S)
        if term.flushed < term.written:
            await term.writer.flush(events)


class DiskCheck:
    """Whether this master's disk answers: what its lanes were given has been done within the time.

    A master whose disk does not answer stops its heartbeats: it can confirm nothing, and another member is to be elected.
    """

    def __init__(self, lanes: tuple[Executor, ...], clock: Clock, limit_s: float) -> None:
        """`lanes` are those that write and sync the log, each with one thread."""
        self._lanes = lanes
        self._clock = clock
        self._limit_s = limit_s
        self._asked: dict[Executor, float] = {}  # monotonic seconds

    @property
    def answers(self) -> bool:
        """Whether each lane answered within the time."""
        now = self._clock.monotonic()
        return all(now - asked < self._limit_s for asked in self._asked.values())

    async def run(self) -> None:
        """Ask twice a second, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for lane in self._lanes:
                tasks.create_task(self._ask(lane), name="disk answers")

    async def _ask(self, lane: Executor) -> NoReturn:
        while True:
            self._asked[lane] = self._clock.monotonic()
            await lane.call(_nothing)
            self._asked.pop(lane)
            await asyncio.sleep(_LOOK_S)


def _nothing() -> None:
    return
