"""One master's term: from the moment it opens its epoch. What exists only while a master leads lives here.

Positions move on the loop: the writer and the slaves report, Confirm decides, and whoever waits is told:
producers (`acks`), readers (`dispatcher`), slaves (`listeners`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from dittomq.broker.acks import Acks
from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.writer import Writer
from dittomq.commitlog.store import Group
from dittomq.doors.clock import Clock
from dittomq.errors import EpochOver
from dittomq.lineage import Lineage, newest_incarnation
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirm import Confirm
from dittomq.replication.confirm_states import Degrade
from dittomq.replication.events import Lacks
from dittomq.replication.master_log import AS_CONFIGURED, Succession
from dittomq.replication.lacking import Ranges
from dittomq.routes import NO_OPENING, Opening
from services.master.counting import MessageCount
from services.master.degraded import DegradedRanges, write_down
from services.master.tail import Tail

TICK_S = 0.5
_COUNT_KEPT_S = 1.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Opened:
    """The epoch a term opened. `start` is where its first byte lies; `degraded` is what earlier terms recorded.

    `loss_accepted`: the operator let it begin without what only others may have. `node`: who opened it, for the log.
    """

    epoch: Epoch
    start: PhysicalOffset
    lineage: Lineage
    degraded: DegradedRanges
    loss_accepted: bool = False
    node: str = ""
    succession: Succession = AS_CONFIGURED

    @property
    def witnessed(self) -> Epoch:
        """Of what was confirmed in epochs up to this one all is known here, or given up by an operator."""
        return self.epoch if self.loss_accepted else self.succession.witnessed


class Term:
    """A master that leads."""

    def __init__(self, opened: Opened, confirm: Confirm, writer: Writer, dispatcher: Dispatcher, clock: Clock) -> None:
        self.opened = opened
        self.confirm = confirm
        self.writer = writer
        self.acks = Acks(confirm, clock)
        self.tail = Tail()
        self.written = opened.start
        self.flushed = opened.start
        self.refuses_writes = ""  # why, and what an operator may do
        self.lacks = ""  # why, alone: what is given up by whoever does it
        self.outgrown = asyncio.Event()  # set when a slave holds all that is confirmed here, and other bytes, confirmed, behind it
        self.outgrown_at = opened.start  # where those begin
        self.newer = NO_OPENING  # the newest epoch that was heard of, if it is newer than this one
        self.outdated = asyncio.Event()  # set whenever that has changed
        self.damage: Callable[[], Ranges] = tuple  # what of its log is not whole, as far as is known; the same object until that changes
        self.degraded = opened.degraded
        self.messages = MessageCount()
        self.joined: set[str] = set()  # slaves with this epoch, and all before it, on their disks: their logs outrank those of older ones
        self._dispatcher = dispatcher
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._must_record = asyncio.Event()
        self._logged_degraded = False
        self._lacks: Ranges = ()

    @property
    def is_over(self) -> bool:
        """Whether a newer epoch was heard of: then nothing is acknowledged, confirmed or taken any more."""
        return self.newer is not NO_OPENING

    def on_written(self, group: Group) -> None:
        """The writer has written a group."""
        self.tail.add(group)
        self.messages.written(group.end, group.messages)
        self.written = group.end
        self._master_moved()

    def on_flushed(self, end: PhysicalOffset) -> None:
        """The writer has synced up to `end`."""
        self.flushed = max(self.flushed, end)  # two threads sync: the later end may be told first
        self._master_moved()

    def know_damage(self) -> None:
        """What was found not to be whole here is no copy any more, from the next word of a slave's on: it is called so on other threads."""
        if (lacks := self.damage()) is not self._lacks and not self.is_over:
            self._lacks = lacks
            self.confirm.master_lacks(lacks)

    def slave_at(self, node: str, received: PhysicalOffset, flushed: PhysicalOffset, incarnation: int | None = None) -> None:
        """A slave of accepted lineage acknowledged. `incarnation` is that of the newest entry of its own, as it is on its disk."""
        if self.is_over:
            return
        self.know_damage()
        self.joined.discard(node)
        start, is_ours = self.opened.start, incarnation == newest_incarnation(self.opened.lineage)
        if flushed > start or (is_ours and flushed == start):  # a byte of the epoch follows its entry
            self.joined.add(node)
        self.confirm.slave_at(node, received=received, flushed=flushed, now=self._clock.monotonic())
        self._moved()

    def stream_begins(self, node: str, start: PhysicalOffset, lacks: Lacks | None) -> None:
        """What a slave acknowledged behind `start` in an earlier stream is not counted as a copy any more, nor is what it `lacks`.

        None: it is to cut its log, and says then what it lacks, or it does not tell, and lacks what it was known to lack.
        """
        if not self.is_over:
            self.confirm.ends_at(node, start)
            if lacks is not None:
                self.confirm.lacks(node, lacks, start)

    def lacks_now(self, node: str, lacks: Lacks, upto: PhysicalOffset) -> None:
        """What a slave that follows `lacks` of what it has received `upto` there; its ack of that is counted after this."""
        if not self.is_over:
            self.confirm.lacks(node, lacks, upto)

    def holed(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """That slave is told to leave these bytes out, which are damaged here."""
        if not self.is_over:
            self.confirm.holed(node, start, end)
            self._moved()

    def disk_gone(self, node: str, why: str) -> None:
        """What the slave acknowledged is not on a disk of its own any more."""
        if self.is_over:
            return
        self.joined.discard(node)
        self.confirm.disk_gone(node, why, now=self._clock.monotonic())
        self._moved()

    def forget(self, node: str) -> None:
        """Who is not connected, and does not count as in sync, is remembered no more."""
        self.joined.discard(node)
        self.confirm.forget(node)

    def stop_writes(self, why: str, remedy: str = "") -> None:
        """Refuse every write from now on; an operator must look. The first reason counts."""
        if not self.refuses_writes:
            self.lacks, self.refuses_writes = why, "; ".join(filter(None, (why, remedy)))

    def needs_operator(self, remedy: str) -> None:
        """What it lacks does not come by itself."""
        self.refuses_writes = f"{self.lacks}; {remedy}"

    def outgrow(self, common: PhysicalOffset) -> None:
        """A slave holds this log up to `common`, with all that is confirmed here, and other bytes, confirmed, behind it."""
        self.outgrown_at = common
        self.outgrown.set()

    def end(self, why: str, newer: Opening) -> None:
        """Acknowledge nothing more: `newer` was opened, or may have been. Whoever waits gets EpochOver, readers see no more than now."""
        if newer.epoch < self.newer.epoch or (newer.epoch == self.newer.epoch and newer.opener_id is None):
            return
        self.newer = newer
        self.stop_writes(why)
        self.acks.close(EpochOver(f"the master of epoch {self.opened.epoch}", why))
        self.outdated.set()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the log or confirmed moves; returns the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def tick(self) -> None:
        """Let time pass for Confirm and the sessions, until cancelled."""
        kept_at, kept = self._clock.monotonic(), self.confirm.confirmed
        while True:
            now = self._clock.monotonic()
            self.know_damage()
            if not self.is_over:
                self.confirm.tick(now)
            if self.confirm.degrade is Degrade.NO:
                self.degraded.enough_copies()
            elif now - kept_at >= _COUNT_KEPT_S and self.confirm.confirmed > kept:
                kept_at, kept = now, self.confirm.confirmed
                self._must_record.set()
            self._moved()
            await asyncio.sleep(TICK_S)

    async def record_degraded(self, persist: Callable[[bytes], Awaitable[None]]) -> None:
        """Write down where a degraded range begins before anything is confirmed in it, what came, and where it ended; until cancelled."""
        while True:
            await self._must_record.wait()
            self._must_record.clear()
            messages = self.degraded.messages(self.messages.confirmed)
            began = await write_down(self.degraded, self.confirm, self.messages.confirmed, self._clock.wall_ms(), persist)
            if began and not self.is_over:
                self.confirm.range_recorded()
            self._log_degraded(messages)
            self._moved()

    def _log_degraded(self, messages: int | None) -> None:
        """Once when fewer copies than asked confirm, and once when enough do again: `messages` meanwhile, None where that is not known.

        A range that has ended before it was written down degraded nobody: so it is at a start, until slaves are heard.
        """
        degrade, confirm = self.confirm.degrade, self.confirm
        where = {"node": self.opened.node, "confirmed": confirm.confirmed, "copies_in_sync": confirm.copies_in_sync}
        if degrade is Degrade.YES and not self._logged_degraded:
            self._logged_degraded = True
            log.warning("group_degraded", **where)
        elif degrade is Degrade.NO and self._logged_degraded:
            self._logged_degraded = False
            log.info("group_no_longer_degraded", messages=messages, **where)

    def _master_moved(self) -> None:
        self.know_damage()
        if not self.is_over:
            self.confirm.master_at(written=self.written, flushed=self.flushed, now=self._clock.monotonic())
        self._moved()

    def _moved(self) -> None:
        degrade = self.confirm.degrade
        if not self.is_over and (degrade is Degrade.RECORDING or (degrade is Degrade.NO and self.degraded.is_open)):
            self._must_record.set()
        self.messages.confirmed_to(self.confirm.confirmed)
        self.acks.moved()
        self._dispatcher.readable_to(self.confirm.confirmed)
        for listener in self._listeners:
            listener()
