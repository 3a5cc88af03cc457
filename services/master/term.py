"""⑦ One master's term: from the moment it opens its epoch. What exists only while a master leads lives here.

Positions move on the loop: the writer and the slaves report, ConfirmedOffset decides, and whoever waits is told:
producers (`acks`), readers (`dispatcher`), slaves (`listeners`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dittomq.broker.ack_waiters import AckWaiters
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.writer import Writer
from dittomq.commitlog.store import AppendGroup
from dittomq.doors.clock import Clock
from dittomq.epoch_history import EpochHistory
from dittomq.errors import FencedEpoch
from dittomq.group_record import ReplicaId
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.confirmed_offset import ConfirmedOffset, may_change
from dittomq.replication.election_events import DataLoss
from dittomq.replication.events import MissingRanges
from dittomq.replication.missing_ranges import Ranges
from services.master.log_tail_cache import LogTailCache

TICK_S = 0.5

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Opened:
    """The epoch a term opened. `start` is where its first byte lies; `node` opened it.

    `birth` is that of the group record, "" without one; `data_loss` says what may have been lost by that, None for nothing.
    """

    epoch: Epoch
    start: PhysicalOffset
    epoch_history: EpochHistory
    node: str
    birth: str = ""
    data_loss: DataLoss | None = None


class Term:
    """A master that leads."""

    def __init__(self, opened: Opened, confirm: ConfirmedOffset, writer: Writer, dispatcher: Dispatcher, *, clock: Clock) -> None:
        self.opened = opened
        self.confirm = confirm
        self.writer = writer
        self.acks = AckWaiters(confirm, clock)
        self.tail = LogTailCache()
        self.written = opened.start
        self.flushed = opened.start
        self.why_over = ""
        self.over = asyncio.Event()
        self.damage: Callable[[], Ranges] = tuple  # what of its log is not whole, as far as is known; the same object until that changes
        self.degraded_since_ms: int | None = None
        self._dispatcher = dispatcher
        self._clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._missing_ranges: Ranges = ()

    @property
    def is_over(self) -> bool:
        """Whether this master leads no longer: then nothing is acknowledged, confirmed or taken."""
        return self.over.is_set()

    @property
    def has_been_adopted(self) -> bool:
        """Whether each election quorum has a member that has adopted this epoch: what its log lacks, no later master's log has."""
        return may_change(self.confirm.record, self.confirm.progress.ends)

    def on_written(self, group: AppendGroup) -> None:
        """The writer has written a group."""
        self.tail.add(group)
        self.written = group.end
        self._master_moved()

    def on_flushed(self, end: PhysicalOffset) -> None:
        """The writer has synced up to `end`."""
        self.flushed = max(self.flushed, end)  # two threads sync: the later end may be told first
        self._master_moved()

    def know_damage(self) -> None:
        """What was found not to be whole here is no copy from the next word of a slave's on: it is called so on other threads."""
        if (missing_ranges := self.damage()) is not self._missing_ranges and not self.is_over:
            self._missing_ranges = missing_ranges
            self.confirm.record_missing_on_master(missing_ranges)

    def slave_at(self, node: str, replica: ReplicaId, received: PhysicalOffset, flushed: PhysicalOffset, *, adopted: bool) -> None:
        """A slave of accepted epoch history acknowledged; `adopted`: it has adopted this epoch."""
        if self.is_over:
            return
        self.know_damage()
        now = self._clock.monotonic()
        self.confirm.slave_at(node, replica, received=received, flushed=flushed, adopted=adopted, now=now)
        self.moved()

    def stream_begins(
        self, node: str, replica: ReplicaId, start: PhysicalOffset, missing_ranges: MissingRanges | None, *, address: str
    ) -> None:
        """What a slave acknowledged behind `start` in an earlier stream is not counted as a copy, nor are its `missing_ranges`.

        None: it is to truncate its log, and says then what it lacks, or it does not tell, and lacks what it was known to lack.
        """
        if not self.is_over:
            self.confirm.stream_begins(node, replica, start, missing_ranges, address=address, now=self._clock.monotonic())
            self.moved()

    def stream_ended(self, node: str, *, sent_goodbye: bool) -> None:
        """The node has no stream now."""
        if not self.is_over:
            self.confirm.stream_ended(node, sent_goodbye=sent_goodbye, now=self._clock.monotonic())
            self.moved()

    def record_missing(self, node: str, missing_ranges: MissingRanges, upto: PhysicalOffset) -> None:
        """What a slave that follows lacks of what it has received `upto` there; its ack of that is counted after this."""
        if not self.is_over:
            self.confirm.record_missing(node, missing_ranges, upto)

    def record_skipped(self, node: str, start: PhysicalOffset, end: PhysicalOffset) -> None:
        """That slave is told to leave these bytes out, which are damaged here."""
        if not self.is_over:
            self.confirm.record_skipped(node, start, end)
            self.moved()

    def forget(self, node: str) -> None:
        """That node is neither connected nor a member: none of its copies is claimed from now on."""
        self.confirm.forget(node)

    def end(self, why: str) -> None:
        """Acknowledge nothing more. Whoever waits gets FencedEpoch, readers see no more than now. The first reason counts."""
        if self.is_over:
            return
        self.why_over = why
        self.over.set()
        self.acks.close(FencedEpoch(f"the master of epoch {self.opened.epoch}", why))
        log.warning("term_ended", node=self.opened.node, epoch=self.opened.epoch, confirmed=self.confirm.confirmed, reason=why)
        self._notify_listeners()

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever the log or confirmed moves, or the term ends; returns the call that ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def tick(self) -> None:
        """Let time pass for ConfirmedOffset and the sessions, until cancelled."""
        while True:
            self.know_damage()
            if not self.is_over:
                self.confirm.tick(self._clock.monotonic())
            self.moved()
            await asyncio.sleep(TICK_S)

    def moved(self) -> None:
        """A position or the members changed: release whoever waited for that."""
        if not self.is_over:
            self._record_degraded()
            self.acks.moved()
            self._dispatcher.readable_to(self.confirm.confirmed)
        self._notify_listeners()

    def _notify_listeners(self) -> None:
        for listener in list(self._listeners):
            listener()

    def _record_degraded(self) -> None:
        """Once when the record has fewer members than copies are asked for, and once when it has enough again."""
        confirm = self.confirm
        if confirm.degraded is (self.degraded_since_ms is not None):
            return
        where = {"node": self.opened.node, "members": confirm.members, "copies": confirm.record.copies, "confirmed": confirm.confirmed}
        if confirm.degraded:
            self.degraded_since_ms = self._clock.wall_ms()
            log.warning("group_degraded", **where)
        else:
            self.degraded_since_ms = None
            log.info("group_no_longer_degraded", **where)

    def _master_moved(self) -> None:
        self.know_damage()
        if not self.is_over:
            self.confirm.master_at(written=self.written, flushed=self.flushed, now=self._clock.monotonic())
        self.moved()
