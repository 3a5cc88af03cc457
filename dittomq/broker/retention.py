"""Drops the beginning of the log as the rules allow, one segment at a time, in the background.

Master and slaves each do so by themselves, from what they hold and by their own clock and disk; but slaves keep what their master
keeps for others.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from dittomq.broker.retention_pins import Pins
from dittomq.broker.waiting_messages import waiting_floors
from dittomq.commitlog.retention import Decision, LogFacts, RetentionFloor, RetentionRules, Segment, decide
from dittomq.commitlog.store import Store
from dittomq.copies import LogStart
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, NotReady
from dittomq.offsets import PhysicalOffset

log = structlog.get_logger()

_PAUSE_S = 0.1


async def _no_log_start() -> None:
    return


@dataclass(frozen=True, slots=True)
class RetentionLoopParts:
    """What the work needs. `lane` is not the one that writes the log: looking at 100,000 queues takes a while.

    `told` is where the log that this one follows begins now, with its queues; None while nobody tells.
    """

    node: str
    store: Store
    lane: Executor
    clock: Clock
    pins: Pins
    master_start: Callable[[], Awaitable[LogStart | None]] = _no_log_start


class RetentionLoop:
    """Looks at the log every `period_s`. `retained_bytes` by holder and `dropped_bytes` are for metrics; only the loop changes them."""

    def __init__(
        self, parts: RetentionLoopParts, rules: RetentionRules, period_s: float, floors: Callable[[], Sequence[RetentionFloor]]
    ) -> None:
        self._parts = parts
        self._rules = rules
        self._period_s = period_s
        self._floors = floors
        self._surveyed: dict[PhysicalOffset, Segment] = {}
        self._passing: frozenset[PhysicalOffset] = frozenset()  # of those the ones that will look otherwise once they are repaired
        self._wall_began = parts.clock.wall_ms()
        self._began = parts.clock.monotonic()
        self._full = ""  # why not all was dropped the last time that may go; empty: nothing of that
        self.retained_bytes: dict[str, int] = {}
        self.dropped_bytes = 0

    async def run(self) -> None:
        """Drop what may go, until cancelled; raises StorageFailure when the disk fails."""
        while not self._rules.keep_all:
            await asyncio.sleep(self._period_s)
            await self.step()

    async def step(self) -> None:
        """Look once, and drop all that may go now."""
        parts, store = self._parts, self._parts.store
        await parts.pins.remove_ended()
        begin, lost = store.min_offset, dict[str, None]()
        full = ""
        master_log_start = await parts.master_start() if self._full and store.unread.ranges else None
        try:
            await parts.lane.call(self._survey)
            while dropped := await self._drop_one(lost, master_log_start):
                self.dropped_bytes += dropped
                await asyncio.sleep(_PAUSE_S)
        except (DiskFull, NotReady) as found:
            full = str(found)
        if full and not self._full:
            log.warning("log_not_dropped", node=parts.node, reason=full)
        self._full = full
        if store.min_offset > begin:
            log.info("log_dropped", node=parts.node, before=store.min_offset, bytes=store.min_offset - begin)
            for name in lost:
                log.warning("retention_overridden", node=parts.node, holder=name, log_start=store.min_offset)

    async def _drop_one(self, lost: dict[str, None], master_log_start: LogStart | None) -> int:
        """Drop the first segment, if it may go now; how many bytes went. `lost` learns who wanted them.

        No pin is taken from the decision until the drop is done.
        """
        parts, store = self._parts, self._parts.store
        async with parts.pins.still:
            now_ms = self._now_ms()
            floors = (*self._floors(), *parts.pins.floors(now_ms))
            decision = await parts.lane.call(lambda: self._decide(floors, now_ms))
            self.retained_bytes = dict(decision.held)
            before = store.min_offset
            if decision.min_offset > before:
                _, end = store.segment_of(before)
                await parts.lane.call(lambda: self._drop_before(end, master_log_start))
                lost.update(dict.fromkeys(decision.lost))
            return store.min_offset - before

    def _drop_before(self, end: PhysicalOffset, master_log_start: LogStart | None) -> None:
        """On a full disk, with the room of the segment that is prepared; blocks. Raises DiskFull when that is not enough."""
        store = self._parts.store
        try:
            store.drop_before(end, master_log_start)
        except DiskFull:
            store.ahead.give_room()
            store.drop_before(end, master_log_start)

    def _survey(self) -> None:
        """Learn what has become of segments since the last time; blocks."""
        store = self._parts.store
        begin, settled, end, damage = store.min_offset, store.settled, store.end, store.damage
        surveyed = {start: each for start, each in self._surveyed.items() if start >= begin and start not in self._passing}
        for start in range(begin, settled - store.segment_bytes + 1, store.segment_bytes):
            at = PhysicalOffset(start)
            if at not in surveyed and start + store.segment_bytes < end:
                surveyed[at] = store.survey(at)
        self._surveyed = surveyed
        self._passing = frozenset(
            start
            for start, each in surveyed.items()
            if each.newest_ms is None or not each.disk_bytes or damage.touches(each.start, each.end)
        )

    def _decide(self, floors: Sequence[RetentionFloor], now_ms: int) -> Decision:
        store = self._parts.store
        segments = [self._surveyed[start] for start in sorted(self._surveyed) if start >= store.min_offset]
        if not segments:
            return Decision(store.min_offset)
        floors = (*floors, *waiting_floors(store))
        return decide(LogFacts(segments, store.settled, store.end, store.disk_use(), now_ms), self._rules, floors)

    def _now_ms(self) -> int:
        """A clock that was set forward while we run makes nothing old."""
        elapsed_ms = int((self._parts.clock.monotonic() - self._began) * 1000)
        return min(self._parts.clock.wall_ms(), self._wall_began + elapsed_ms)
