"""Before a master leads: hears slaves, takes over the longest tail, waits for what Leadership demands."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import assert_never

import structlog

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.fetching import RangeSource
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.errors import CorruptRecord, OutOfReach
from dittomq.lineage import Lineage
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import Hello
from dittomq.replication.leadership import Lead, Leadership, OwnLog, Refuse, TakeOver, Wait

log = structlog.get_logger()

_TICK_S = 0.25


@dataclass(frozen=True, slots=True)
class RecoveryParts:
    """What a recovery works with."""

    store: Store
    store_lane: Lane
    dispatcher: Dispatcher
    clock: Clock


class Recovery:
    """One start of a master, until it may open an epoch. `waiting_for` says in words what is missing, empty when nothing is."""

    def __init__(self, leadership: Leadership, own: OwnLog, parts: RecoveryParts) -> None:
        self._leadership = leadership
        self._own = own
        self._store = parts.store
        self._lane = parts.store_lane
        self._dispatcher = parts.dispatcher
        self._clock = parts.clock
        self._bell = asyncio.Event()
        self.waiting_for = "its log to be read"

    def slave_heard(self, hello: Hello) -> None:
        """A slave said hello."""
        self._leadership.slave_heard(hello)
        self._bell.set()

    def slave_gone(self, node: str) -> None:
        """Its stream ended."""
        self._leadership.slave_gone(node)
        self._bell.set()

    def epoch_known(self, epoch: Epoch) -> None:
        """A nameserver has seen this epoch."""
        self._leadership.epoch_known(epoch)
        self._bell.set()

    def accept_loss(self) -> None:
        """The operator lets this master lead."""
        self._leadership.accept_loss()
        self._bell.set()

    async def run(self, source: Callable[[TakeOver], RangeSource]) -> Lead:
        """Return when this master may lead; raises StoreFailed when the disk fails."""
        while True:
            decision = self._leadership.decide(self._clock.monotonic())
            match decision:
                case Lead():
                    self.waiting_for = ""
                    return decision
                case TakeOver():
                    await self._take_over(decision, source(decision))
                case Wait() | Refuse():
                    self._say(decision)
                    await self._pause()
                case _:
                    assert_never(decision)

    def _say(self, decision: Wait | Refuse) -> None:
        words = decision.why if isinstance(decision, Wait) else f"an operator: {decision.why}"
        if words.split(":")[0] != self.waiting_for.split(":")[0]:
            log.info("recovery_waits", node=self._own.node, waiting_for=words)
        self.waiting_for = words

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_TICK_S):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()

    async def _take_over(self, plan: TakeOver, source: RangeSource) -> None:
        """Copy the slave's tail, durably. A copy that breaks off leaves whole records and is asked for again."""
        log.info("tail_taken_over", node=self._own.node, source=plan.source, start=plan.start, end=plan.end)
        self.waiting_for = f"the tail of {plan.source}, {plan.end - plan.start:,} bytes"
        try:
            if plan.start < self._store.end:
                async with self._dispatcher.cutting(plan.start):
                    await self._lane.call(lambda: self._store.cut(plan.start))
            for start, end in _by_epoch(plan):
                await self._lane.call(lambda start=start: self._store.adopt_lineage(_lineage_upto(plan.lineage, start)))  # type: ignore[misc]
                await self._copy(source.fetch(start, end))
            await self._lane.call(self._store.sync)
        except (OutOfReach, CorruptRecord) as problem:
            log.warning("take_over_broke_off", node=self._own.node, source=plan.source, problem=str(problem))
            self.slave_gone(plan.source)
            return
        self._own = replace(self._own, end=self._store.end, lineage=self._store.lineage)
        self._leadership.took_over(self._own)

    async def _copy(self, pieces: AsyncIterator[tuple[PhysicalOffset, int, bytes]]) -> None:
        async for offset, crc, data in pieces:
            if zlib.crc32(data) != crc:
                raise CorruptRecord(self._own.node, offset, "the bytes changed on their way")
            await self._lane.call(lambda offset=offset, data=data: self._store.write_chunk(offset, data))  # type: ignore[misc]


def _by_epoch(plan: TakeOver) -> list[tuple[PhysicalOffset, PhysicalOffset]]:
    """[start, end) in pieces that each lie in one epoch."""
    borders = [plan.start, *(entry.start for entry in plan.lineage if plan.start < entry.start < plan.end), plan.end]
    return list(zip(borders, borders[1:], strict=False))


def _lineage_upto(lineage: Lineage, position: PhysicalOffset) -> Lineage:
    return tuple(entry for entry in lineage if entry.start <= position)
