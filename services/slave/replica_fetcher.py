"""⑤ Keeps one stream to the master, one after the other, and what the slave learned from it."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import structlog

from dittomq.broker.range_client import RangeClient
from dittomq.broker.range_server import LogSource
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.epoch_history import newest_incarnation
from dittomq.errors import ConnectionRefused, DittoError, NotReady, StorageFailure
from dittomq.ha_status import NodeState, StreamEndReason, ended_by
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.reads import ReadableRange
from dittomq.replication.backoff import Backoff
from dittomq.replication.events import Handshake
from dittomq.replication.lag import LagHistory
from dittomq.replication.slave_events import LogWritten, RecordCompared, SlaveLog
from dittomq.replication.slave_session import SlaveSession
from dittomq.routes import DataVersion
from dittomq.rpc.channel import Channels
from services.slave.config import SlaveConfig
from services.slave.connection import ReplicationConnection
from services.slave.full_resync import FullResyncDone, Resync, ResyncParts
from services.slave.master_liveness import MasterLiveness
from services.slave.replica import Replica
from services.slave.replica_log_writer import ReplicaLogWriter
from services.slave.replication_slots import SlotsOfOthers
from services.slave.replication_stream import FullResyncRequired, ReplicationStream, ReplicationStreamParts

_GOODBYE_S: Final = 0.25

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReplicaFetcherParts:
    """What a follower works with."""

    config: SlaveConfig
    own: Replica
    resync: ResyncParts
    channels: Channels
    clock: Clock
    chance: random.Random


@dataclass(frozen=True, slots=True)
class FetcherCallbacks:
    """Who is asked for the master's address, told the version of its topics, and told that the node is to come back."""

    master_address: Callable[[], str]
    topics_at: Callable[[DataVersion], None]
    come_back: Callable[[str], None]


class ReplicaFetcher:
    """The slave's end of replication. Also the ears of its own store's streams: it keeps what they hear."""

    def __init__(self, parts: ReplicaFetcherParts, callers: FetcherCallbacks) -> None:
        self._parts = parts
        self._callers = callers
        self.topics_at = callers.topics_at
        self._own_address = ""
        self._own = parts.own
        self._promised = NO_EPOCH  # given, or about to be
        self._following: ReplicationStream | None = None
        self._line: ReplicationConnection | None = None
        self.slots = SlotsOfOthers(parts.config.name, parts.own.parts.storage, parts.own.parts.files)
        self.master = MasterLiveness(parts.config, parts.clock)
        self._wake = asyncio.Event()
        self.resync = Resync(parts.resync, self.master.received, self._ends_at, callers.topics_at)
        self._silence_s = parts.config.failover.peer_timeout_ms / 1000
        self._dialled: asyncio.Task[None] | None = None
        self._backoff = Backoff()
        self.dials = ""
        self._named = ""  # where the master is, as last looked up
        self._refused_at = ""  # the address where nothing listened when it was dialled last
        self._stream_blocks = 0  # who wants no stream now
        self._has_taken_up = False
        self._between_streams = asyncio.Event()
        self._between_streams.set()
        self.state = NodeState.WAITING
        self.since_ms = parts.clock.wall_ms()
        self.problem = "no master is known yet"
        self.problem_kind: StreamEndReason | None = None
        self.problem_ms: int | None = None
        self.readable_ends = LagHistory()

    # What streams tell.
    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None:
        """The master says what is confirmed, and where its log ends."""
        self._own.update_confirmed(confirmed)
        self._ends_at(master_end)
        self._review()

    def is_fresh(self, confirmed: PhysicalOffset, silent_s: float) -> None:
        """So much was confirmed `silent_s` seconds ago, when the master last heard that nobody else leads."""
        self.master.confirmed_at(confirmed, silent_s)

    def stored(self) -> None:
        """The copy grew."""
        self._review()

    def compared(self, found: RecordCompared) -> None:
        """A range of both copies was compared."""
        self._own.compared(found)

    def received(self) -> None:
        """The master said something."""
        self._refused_at = ""
        self.master.received()

    def _ends_at(self, master_end: PhysicalOffset) -> None:
        self.master.ends_at(master_end)
        self._look()

    def _look(self) -> None:
        """Whom it hears may only tell it to wait."""
        stream = self._following
        state = NodeState.FOLLOWING if stream is not None and stream.follows else NodeState.WAITING
        if state != self.state:
            self.state, self.since_ms = state, self._parts.clock.wall_ms()

    @property
    def master_waits_for(self) -> str:
        """What the master says that it waits for, where it tells this slave to wait for that too; empty otherwise."""
        return "" if self._following is None else self._following.master_waits_for

    @property
    def copy(self) -> ReplicaLogWriter:
        """The log of the store that serves reads."""
        return self._own.copy

    @property
    def applied(self) -> PhysicalOffset:
        """End of what is in the consume queues."""
        return self._own.applied

    # What elections ask.
    @property
    def sees_master(self) -> bool:
        """Whether there is a stream of the master that is named now, and something was heard on it within the time of silence."""
        return self.master.is_live and self.dials == self._callers.master_address()

    @property
    def silent_s(self) -> float:
        """Seconds since the master was heard, or was named, or since this node began; not those in which the process was suspended."""
        return self.master.silent_s

    @property
    def connection_refused(self) -> bool:
        """Whether nothing listened where the master is named now when it was dialled last."""
        return self._refused_at != "" and self._refused_at == self._callers.master_address()

    def promised(self, epoch: Epoch) -> None:
        """This replica promises this epoch: from here on no master of a lower one is obeyed, and no ack of a lower one begins to leave."""
        self._promised = max(self._promised, epoch)
        if self._following is not None:
            self._following.promised(self._promised)

    async def end_stream(self) -> None:
        """End the stream that is under way; what it brought is written and synced when this returns. Raises NotReady, StorageFailure."""
        async with self.without_stream():
            return

    @contextlib.asynccontextmanager
    async def without_stream(self) -> AsyncIterator[None]:
        """No stream in here: another part writes the log. What the last one brought is written and synced. Raises NotReady,
        StorageFailure.
        """
        self.check_taken_up()
        self._stream_blocks += 1
        try:
            if self._dialled is not None:
                self._dialled.cancel()
            await self._between_streams.wait()
            await self.copy.settle()
            await self.copy.flush()
            yield
        finally:
            self._stream_blocks -= 1
            self._wake.set()

    async def leave(self, *, sends_goodbye: bool) -> None:
        """Follow no master any longer, and tell it where this node stops: it need not wait for this member. Ends within a moment."""
        self._stream_blocks += 1
        if sends_goodbye and self._line is not None:
            with contextlib.suppress(DittoError, TimeoutError, asyncio.InvalidStateError):
                async with asyncio.timeout(_GOODBYE_S):
                    await self._line.send_goodbye()

    async def truncate(self, to: PhysicalOffset, reason: str) -> None:
        """Cut the log of the store in use and all that hangs on it, durably; only without a stream."""
        await self._own.truncate(to, reason)

    @property
    def newest(self) -> Replica:
        """What this node stands with among its peers: the store that its handshake describes, whose acks count."""
        return self.resync.replica or self._own

    def check_taken_up(self) -> None:
        """Raise NotReady while it is not known what this node stands with.

        A copy may have been begun before its start. One that is complete is closed first, and then takes its store's place.
        """
        if not self._has_taken_up:
            raise NotReady(self._parts.config.name, "it starts, and opens what it holds")
        if self.resync.is_leaving:
            raise NotReady(self._parts.config.name, "it is about to come back with the log that it has copied anew")

    def stores(self) -> tuple[Store, ...]:
        """What this node holds; the store that its handshake describes comes first."""
        copy = self.resync.replica
        return (self._own.store,) if copy is None else (copy.store, self._own.store)

    def known_confirmed(self) -> PhysicalOffset:
        """What is known to be confirmed of this copy's own bytes."""
        return self._own.known_confirmed

    def readable(self) -> ReadableRange:
        """Up to what is flushed and confirmed; up to what is flushed when the master has been gone for long enough."""
        flushed = self.copy.flushed
        confirmed = PhysicalOffset(min(flushed, self._own.confirmed))
        return ReadableRange(flushed if self.master.is_gone else confirmed, confirmed)

    def master_is_named(self) -> None:
        """Where the master is may have changed: dial it now, and follow nobody elsewhere."""
        address = self._callers.master_address()
        if address and address != self._named:
            self._named = address
            self._backoff = Backoff()  # those of the dead master before say nothing of this one
            self.master.named()
            if self._dialled is not None and self.dials != address:
                self._dialled.cancel()
        self._wake.set()

    def serves_at(self, address: str) -> None:
        """Where this node serves its log to others; told before `run`."""
        self._own_address = address

    async def run(self) -> None:
        """Follow until cancelled, or until a copy is to take the store's place; raises StorageFailure when the disk fails."""
        await self._own.load()
        async with self.resync, asyncio.TaskGroup() as tasks:
            await self.resync.take_up(tasks)
            self._has_taken_up = True
            tasks.create_task(self._look_around(), name="look around")
            tasks.create_task(self._dial_forever(tasks), name="dial")

    async def _dial_forever(self, tasks: asyncio.TaskGroup) -> None:
        while not self.resync.is_done:
            address = self._callers.master_address()
            began = self._parts.clock.monotonic()
            if address and not self._stream_blocks:
                self._between_streams.clear()
                self.dials = address
                self._dialled = tasks.create_task(self._follow(address), name="stream")
                await asyncio.wait([self._dialled])
                self._between_streams.set()
                await self._clear_away(address)
            await self._back_off(self._backoff.after(self._parts.clock.monotonic() - began, self._parts.chance.random()))

    async def _follow(self, address: str) -> None:
        """One stream, from handshake to its end."""
        parts = self._parts
        line = self._line = ReplicationConnection(parts.channels, address)
        source = RangeClient(parts.channels, address, parts.config)
        try:
            await self._stream(line, source)
        except StorageFailure:
            raise
        except FullResyncDone:
            line.hang_up()
            await self.resync.finish()
            self._callers.come_back("its log was copied anew")
        except DittoError as problem:
            self._refused_at = address if isinstance(problem, ConnectionRefused) else ""
            if str(problem) != self.problem:
                log.info("stream_ended", node=parts.config.name, master=address, reason=str(problem))
            self.problem, self.problem_kind, self.problem_ms = str(problem), ended_by(problem), parts.clock.wall_ms()
        finally:
            self._line = None
            line.hang_up()
            self._look()
            self.master.stream_ended()

    async def _clear_away(self, address: str) -> None:
        """What a stream leaves, also one that was cancelled."""
        await self.resync.tidy()
        if self.master.was_useless:  # the next dial would use a half-open connection again, or one to a stranger who had the address
            await self._parts.channels.forget(address)

    async def _stream(self, line: ReplicationConnection, source: LogSource) -> None:
        """Sessions of the copy, or of the own store until it is told to be copied anew; ends by raising.

        Each in a task of its own: one whose group has failed counts as cancelled from then on, and may hide that it was.
        """
        ears: ReplicaFetcher | Resync = self
        replica = self._own
        if self.resync.replica is not None:
            ears, replica = self.resync, self.resync.replica
        while True:
            async with asyncio.TaskGroup() as tasks:
                session = tasks.create_task(_end_of(self._session(line, source, replica, ears)), name="session")
            told = session.result()
            if not isinstance(told, FullResyncRequired):
                raise told
            self.problem, self.problem_kind = told.order.reason, StreamEndReason.MUST_RESYNC
            self.problem_ms = self._parts.clock.wall_ms()
            if replica is self._own:  # what a copy agrees on says nothing of the bytes of the own store
                self._own.update_confirmed(told.order.agreed)
                await self._own.keep_confirmed()
            ears, replica = self.resync, await self.resync.begin(told.order)

    async def _session(self, line: ReplicationConnection, source: LogSource, replica: Replica, ears: "ReplicaFetcher | Resync") -> NoReturn:
        clock, own = self._parts.clock, self._own.store

        async def describe() -> Handshake:
            if replica.holds_nothing:
                await replica.ask_where_to_begin(source)
            return await replica.describe(
                self._own_address, birth=own.birth, promised=max(own.promised_epoch, replica.store.promised_epoch)
            )

        async def adopt(epoch: Epoch) -> None:
            if replica is self._own:  # elections ask the own store: what a copy acknowledges must not count
                await replica.parts.files.call(lambda: replica.store.adopt_epoch(epoch))

        handshake = await describe()
        incarnation = newest_incarnation(handshake.epoch_history)
        stored = LogWritten(
            handshake.end,
            handshake.flushed,
            replica.applied,
            handshake.min_offset,
            incarnation=incarnation,
            adopted=replica.store.adopted_epoch,
        )
        held = SlaveLog(handshake.epoch_history, handshake.min_offset, stored, max(handshake.promised, self._promised), handshake.birth)
        session = SlaveSession(held, silence_s=self._silence_s, now=clock.monotonic())
        parts = ReplicationStreamParts(
            *(replica.store, replica.copy, replica.parts.reads, clock, ears),
            *(describe, replica.truncate, replica.begin),
            bind=self._bind,
            adopt=adopt,
            update_slots=self.slots.update,
            reverify_from=replica.take_reverify_from,
        )
        self._following = ReplicationStream(parts, session, line)
        try:
            await self._following.run(handshake)
        finally:
            self._following = None
            self.master.session_expired()

    async def _bind(self, epoch: Epoch, birth: str) -> None:
        """Promise it and belong to that group record, durably. It is the node that does, also while a copy is made: a swap keeps both."""
        own = self._own.store

        def record() -> None:
            own.promise(epoch)
            if birth:
                own.take_birth(birth)

        if own.promised_epoch < epoch or (birth and own.birth != birth):
            await self._own.parts.files.call(record)

    async def _look_around(self) -> None:
        """Time makes more readable when the master is gone; the store is looked after."""
        while True:
            await asyncio.sleep(0.5)
            self._look()
            self.master.mark()
            self.readable_ends.mark(self.readable().end, self._parts.clock.monotonic())
            await self._own.look_after()
            self._review()

    def _review(self) -> None:
        self._own.parts.dispatcher.readable_to(self.readable().end)

    async def _back_off(self, seconds: float) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


async def _end_of(session: Coroutine[Any, Any, NoReturn]) -> DittoError:
    """Why it ended."""
    try:
        await session
    except DittoError as why:
        return why
