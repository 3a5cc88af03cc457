"""⑤ Keeps one stream to the master, one after the other, and what the slave learned from it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from dittomq.broker.dispatching import Dispatcher
from dittomq.broker.heard import load_heard, save_heard
from dittomq.broker.reading import Readable
from dittomq.commitlog.disk.storage import Storage
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Lane
from dittomq.errors import DittoError, StoreFailed
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import PROTOCOL_VERSION, Hello, RangeDigest
from dittomq.replication.measuring import EndHistory
from dittomq.replication.slave_events import SlaveLog, Stored
from dittomq.replication.slave_session import SlaveSession
from dittomq.routes import DataVersion
from dittomq.rpc.channel import Channels
from services.slave.config import FlushMode, SlaveConfig
from services.slave.copy_log import CopyLog
from services.slave.line import ReplicationLine
from services.slave.stream import MasterStream, StreamParts
from services.slave.verified import load_verified, save_verified

log = structlog.get_logger()

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_HELLO_DIGESTS = 64


@dataclass(frozen=True, slots=True)
class FollowerParts:
    """What a follower works with. `store_lane` is the only lane that writes the log."""

    config: SlaveConfig
    storage: Storage
    store: Store
    store_lane: Lane
    reads: Lane
    files: Lane
    dispatcher: Dispatcher
    channels: Channels
    clock: Clock
    chance: random.Random


class Follower:
    """The slave's end of replication. Also the ears of its streams: it keeps what they hear."""

    def __init__(self, parts: FollowerParts, master_address: Callable[[], str], topics_at: Callable[[DataVersion], None]) -> None:
        """`topics_at` is told the version of the master's topics, as often as the master tells it."""
        self._parts = parts
        self._master_address = master_address
        self.topics_at = topics_at
        self._own_address = ""
        self._confirmed = PhysicalOffset(min(parts.store.confirmed_at_start, parts.store.end))
        self._verified = PhysicalOffset(0)
        self._verified_kept = PhysicalOffset(0)
        self._heard = Epoch(0)
        self._streaming = False
        self._left_at = self._heard_at = parts.clock.monotonic()
        self._wake = asyncio.Event()
        sync_each_group = parts.config.replication.flush_mode is FlushMode.SYNC_FLUSH
        self.copy = CopyLog(parts.store, parts.store_lane, sync_each_group=sync_each_group)
        self.state = "waiting"
        self.since_ms = parts.clock.wall_ms()
        self.problem = "no master is known yet"
        self.problem_ms: int | None = None
        self.epoch = Epoch(0)
        self.master_end: PhysicalOffset | None = None
        self.master_ends = EndHistory()

    # What streams tell.
    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None:
        """The master says what is confirmed, and where its log ends."""
        self._confirmed = max(self._confirmed, confirmed)
        self.master_end = master_end
        self._review()

    def stored(self) -> None:
        """The copy grew."""
        self._review()

    def equal_upto(self, end: PhysicalOffset) -> None:
        """Digests of both copies are equal in the segment that ends, or has its last byte, at `end`."""
        start, _ = self._parts.store.segment_of(PhysicalOffset(end - 1))
        if start <= max(self._verified, self._parts.store.min_offset):
            self._verified = max(self._verified, end)

    def heard(self) -> None:
        """The master said something."""
        self._streaming = True
        self._heard_at = self._parts.clock.monotonic()

    @property
    def applied(self) -> PhysicalOffset:
        """End of what is in the consume queues."""
        return self._parts.dispatcher.applied

    @property
    def verified(self) -> PhysicalOffset:
        """Up to here this copy was proven equal to its master's."""
        return self._verified

    def known_confirmed(self) -> PhysicalOffset:
        """What is known to be confirmed of this copy's own bytes."""
        return PhysicalOffset(min(self._confirmed, self.copy.received))

    def readable(self) -> Readable:
        """Up to what is flushed and confirmed; up to what is flushed when the master has been gone for long enough."""
        flushed = self.copy.flushed
        confirmed = PhysicalOffset(min(flushed, self._confirmed))
        gone_s = self._parts.clock.monotonic() - self._left_at
        if not self._streaming and gone_s >= self._parts.config.reading.master_gone_ms / 1000:
            return Readable(flushed, confirmed)
        return Readable(confirmed, confirmed)

    def nameservers_answered(self) -> None:
        """The master's address may have changed."""
        self._wake.set()

    def serves_at(self, address: str) -> None:
        """Where this node serves its log to others; told before `run`."""
        self._own_address = address

    async def run(self) -> None:
        """Follow until cancelled; raises StoreFailed when the disk fails."""
        self._verified = self._verified_kept = await self._parts.files.call(
            lambda: load_verified(self._parts.storage, self._parts.store.end)
        )
        self._heard = await self._parts.files.call(lambda: load_heard(self._parts.storage))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._look_around(), name="look around")
            tasks.create_task(self._dial_forever(), name="dial")

    async def _dial_forever(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            address = self._master_address()
            began = self._parts.clock.monotonic()
            if address:
                await self._follow(address)
            if self._parts.clock.monotonic() - began > 2 * _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            await self._pause(pause_s * (0.5 + self._parts.chance.random() / 2))
            pause_s = min(_LONGEST_PAUSE_S, 2 * pause_s)

    async def _follow(self, address: str) -> None:
        """One stream, from hello to its end."""
        parts = self._parts
        line = ReplicationLine(parts.channels, address)
        silence_s = parts.config.replication.silence_ms / 1000
        self._heard_at = parts.clock.monotonic()
        try:
            hello = await self._describe()
            stored = Stored(hello.end, hello.flushed, self.applied)
            held = SlaveLog(hello.lineage, hello.min_offset, stored, hello.heard)
            core = SlaveSession(held, silence_s=silence_s, now=parts.clock.monotonic())
            stream = MasterStream(
                StreamParts(parts.store, self.copy, parts.reads, parts.clock, self, self._describe, self._cut, self._begin, self._hear),
                core,
                line,
            )
            self._become("following")
            await stream.run(hello)
        except StoreFailed:
            raise
        except DittoError as problem:
            if str(problem) != self.problem:
                log.info("stream_ended", node=parts.config.name, master=address, reason=str(problem))
            self.problem, self.problem_ms = str(problem), parts.clock.wall_ms()
        finally:
            line.hang_up()
            self._become("waiting")
            useless = not self._streaming or parts.clock.monotonic() - self._heard_at >= silence_s
            if self._streaming:
                self._streaming = False
                self._left_at = parts.clock.monotonic()
        if useless:  # the next dial would use a half-open connection again, or one to a stranger who had the address for a while
            await parts.channels.forget(address)

    def _become(self, state: str) -> None:
        if state != self.state:
            self.state, self.since_ms = state, self._parts.clock.wall_ms()

    async def _describe(self) -> Hello:
        """Who this slave is and what it holds now."""
        parts, config = self._parts, self._parts.config
        await parts.store_lane.call(parts.store.sync)
        await self.copy.settle()
        self._confirmed = self.known_confirmed()  # what a master confirmed of bytes that never came says nothing of another one's
        store = parts.store
        digests = await parts.reads.call(lambda: _digests(store, self._verified))
        return Hello(
            cluster=config.node.cluster,
            broker=config.node.broker,
            broker_id=config.node.broker_id,
            replica_uuid=store.replica_uuid,
            protocol_version=PROTOCOL_VERSION,
            min_offset=store.min_offset,
            end=store.end,
            flushed=store.flushed,
            confirmed=self.known_confirmed(),
            lineage=store.lineage,
            digests=digests,
            verified_equal=self._verified,
            replication_address=self._own_address,
            segment_bytes=config.store.segment_bytes,
            heard=self._heard,
        )

    async def _cut(self, to: PhysicalOffset, reason: str) -> None:
        log.warning("log_cut", node=self._parts.config.name, to=to, end=self.copy.received, reason=reason)
        async with self._parts.dispatcher.cutting(to):
            await self.copy.cut(to)
        self._confirmed = min(self._confirmed, to)
        self._verified = min(self._verified, to)

    async def _hear(self, epoch: Epoch) -> None:
        await self._parts.files.call(lambda: save_heard(self._parts.storage, epoch))
        self._heard = epoch

    async def _begin(self, at: PhysicalOffset) -> None:
        """What the master no longer has is not to be had: this copy begins where the master's log does."""
        log.info("log_begins", node=self._parts.config.name, at=at)
        async with self._parts.dispatcher.cutting(at):
            await self.copy.begin(at)

    async def _look_around(self) -> None:
        """Time makes more readable when the master is gone; what was verified is written down; ASYNC_FLUSH flushes."""
        while True:
            await asyncio.sleep(0.5)
            if self.master_end is not None:
                self.master_ends.mark(self.master_end, self._parts.clock.monotonic())
            if self.copy.flushed < self.copy.received and self._parts.config.replication.flush_mode is FlushMode.ASYNC_FLUSH:
                await self.copy.flush()
            self._review()
            if self._verified != self._verified_kept:
                verified = self._verified
                await self._parts.files.call(lambda: save_verified(self._parts.storage, verified))  # noqa: B023  # awaited here
                self._verified_kept = verified

    def _review(self) -> None:
        self._parts.dispatcher.readable_to(self.readable().end)

    async def _pause(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def _digests(store: Store, verified: PhysicalOffset) -> tuple[RangeDigest, ...]:
    """Digests of the segments from the one that `verified` lies in, newest first, at most 64."""
    digests: list[RangeDigest] = []
    end = store.end
    while end > store.min_offset and len(digests) < _HELLO_DIGESTS:
        start, _ = store.segment_of(PhysicalOffset(end - 1))
        digests.append(RangeDigest(start, end, store.chain_digest(start, end)))
        if start <= verified:
            break
        end = start
    return tuple(digests)
