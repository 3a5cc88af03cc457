"""⑧ Keeps the consume queues built up to the readable end, and tells readers when there is more to read."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from dittomq.broker.pulse import GrowthPulse
from dittomq.commitlog.store import Store
from dittomq.doors.workers import Executor
from dittomq.offsets import PhysicalOffset


class Dispatcher:
    """Follows the readable end; one dispatch is under way at a time, and the next covers all that came meanwhile."""

    def __init__(self, store: Store, lane: Executor) -> None:
        self._store = store
        self._lane = lane
        self._target = store.applied
        self._readable = PhysicalOffset(0)
        self._wake = asyncio.Event()
        self._pulse = GrowthPulse()
        self._pulses: WeakValueDictionary[tuple[str, int], GrowthPulse] = WeakValueDictionary()  # those that somebody waits for
        self._turn = asyncio.Lock()
        self.applied = store.applied
        self.waits_are_over = False

    def readable_to(self, end: PhysicalOffset) -> None:
        """Records that end at or below `end` may be read; on a slave that is less again when its master comes back."""
        grows, self._readable = end > self._readable, end
        if end > self._target:
            self._target = end
            self._wake.set()
        elif grows:  # the queues hold them already, and nobody knows which
            self._notify(list(self._pulses))

    @asynccontextmanager
    async def truncating(self, to: PhysicalOffset) -> AsyncIterator[None]:
        """Inside it nothing is dispatched, because the log is cut to `to`; what lay above is gone from the queues too."""
        async with self._turn:
            try:
                yield
            finally:  # whoever asked for the cut may have been cancelled: it goes on in its lane all the same
                self._target = min(self._target, to)
                self._readable = min(self._readable, to)
                self.applied = min(self.applied, to)

    async def run(self) -> None:
        """Dispatch until cancelled; raises StorageFailure when the disk fails."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._turn:
                self.applied, grown = await self._lane.call(lambda: self._store.dispatch_grown(self._target))
            self._notify(grown)

    def _notify(self, grown: Iterable[tuple[str, int]]) -> None:
        pulse, self._pulse = self._pulse, GrowthPulse()
        pulse.set()
        for queue in grown:
            of_queue = self._pulses.pop(queue, None)
            if of_queue is not None:
                of_queue.set()

    def end_waits(self) -> None:
        """The node stops: whoever waits for more to read is woken, and is to see that nobody is to wait any longer."""
        self.waits_are_over = True
        self._notify(list(self._pulses))

    def pulse(self) -> GrowthPulse:
        """Set once, when more can be read next. Take it before looking, or growth in between is missed."""
        return self._pulse

    async def wait_applied(self, end: PhysicalOffset) -> None:
        """Return when the queues are built up to `end`."""
        pulse = self.pulse()
        while self.applied < end:
            await pulse.wait()
            pulse = self.pulse()

    def pulse_of(self, topic: str, queue: int) -> GrowthPulse:
        """The same, when more of that queue can be read next: whoever waits for one queue sleeps while others grow."""
        key = (topic, queue)
        pulse = self._pulses.get(key)
        if pulse is None:
            pulse = self._pulses[key] = GrowthPulse()
        return pulse
