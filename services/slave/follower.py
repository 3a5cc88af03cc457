"""⑤ Keeps one stream to the master, one after the other, and what the slave learned from it."""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from typing import Any, NoReturn

import structlog

from dittomq.broker.fetching import LogSource
from dittomq.broker.heard import Heard
from dittomq.broker.remote_ranges import RemoteRanges
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, NotReady, StoreFailed
from dittomq.lineage import newest_incarnation
from dittomq.offsets import PhysicalOffset
from dittomq.reads import Readable
from dittomq.replication.events import Hello
from dittomq.replication.measuring import EndHistory
from dittomq.replication.pauses import Pauses
from dittomq.replication.slave_events import NoteCompared, SlaveLog, Stored
from dittomq.replication.slave_session import SlaveSession
from dittomq.routes import NO_OPENING, DataVersion, Opening
from dittomq.rpc.channel import Channels
from services.slave.config import SlaveConfig
from services.slave.copy_log import CopyLog
from services.slave.degraded import KnownDegraded
from services.slave.filling import Filling
from services.slave.holds import HoldsOfOthers
from services.slave.line import ReplicationLine
from services.slave.presence import MasterPresence
from services.slave.replica import Replica
from services.slave.resync import CopyComplete, Resync, ResyncParts
from services.slave.stream import MasterStream, StreamParts, ToldToCopyAnew

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FollowerParts:
    """What a follower works with."""

    config: SlaveConfig
    own: Replica
    resync: ResyncParts
    channels: Channels
    clock: Clock
    chance: random.Random


@dataclass(frozen=True, slots=True)
class Callers:
    """Who is asked for the master's address, told the version of its topics, and told that the node is to come back."""

    master_address: Callable[[], str]
    topics_at: Callable[[DataVersion], None]
    come_back: Callable[[str], None]


class Follower:
    """The slave's end of replication. Also the ears of its own store's streams: it keeps what they hear."""

    def __init__(self, parts: FollowerParts, callers: Callers) -> None:
        self._parts = parts
        self._callers = callers
        self.topics_at = callers.topics_at
        self._own_address = ""
        self._own = parts.own
        self._told = NO_OPENING
        self._notes = Heard(parts.config.name, parts.own.parts.storage, parts.own.parts.files)
        self._following: MasterStream | None = None
        self.filling = Filling(parts.config.name, parts.own.parts.storage, parts.own.parts.files)
        self.degraded = KnownDegraded(parts.own.parts.storage, parts.own.parts.files)
        self.held = HoldsOfOthers(parts.config.name, parts.own.parts.storage, parts.own.parts.files)
        self.master = MasterPresence(parts.config, parts.clock)
        self._wake = asyncio.Event()
        self.resync = Resync(parts.resync, self.master.heard, self._ends_at, callers.topics_at, self.filling.begin)
        self._silence_s = parts.config.replication.silence_ms / 1000
        self._dialled: asyncio.Task[None] | None = None
        self.dials = ""
        self._is_retired = False
        self._has_taken_up = False
        self._between_streams = asyncio.Event()
        self._between_streams.set()
        self.alone: Callable[[], None] = _nobody  # called whenever there is no stream: somebody else may lead by now
        self.state = "waiting"
        self.since_ms = parts.clock.wall_ms()
        self.problem = "no master is known yet"
        self.problem_ms: int | None = None
        self.readable_ends = EndHistory()

    # What streams tell.
    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None:
        """The master says what is confirmed, and where its log ends."""
        self._own.learn(confirmed)
        self.filling.master_ends_at(master_end)
        self.filling.holds(self.copy.flushed, self.newest_heard.epoch)
        self._ends_at(master_end)
        self._review()

    def stored(self) -> None:
        """The copy grew."""
        self.filling.holds(self.copy.flushed, self.newest_heard.epoch)
        self._review()

    def compared(self, found: NoteCompared) -> None:
        """A range of both copies was compared."""
        self._own.compared(found)

    def heard(self) -> None:
        """The master said something."""
        self.master.heard()

    def _ends_at(self, master_end: PhysicalOffset) -> None:
        self.master.ends_at(master_end)
        self._look()

    def _look(self) -> None:
        """Whom it hears may only tell it to wait."""
        stream = self._following
        state = "following" if stream is not None and stream.follows else "waiting"
        if state != self.state:
            self.state, self.since_ms = state, self._parts.clock.wall_ms()

    @property
    def master_waits_for(self) -> str:
        """What the master says that it waits for, where it tells this slave to wait for that too; empty otherwise."""
        return "" if self._following is None else self._following.master_waits_for

    @property
    def copy(self) -> CopyLog:
        """The log of the store that serves reads."""
        return self._own.copy

    @property
    def applied(self) -> PhysicalOffset:
        """End of what is in the consume queues."""
        return self._own.applied

    @property
    def newest_heard(self) -> Opening:
        """Newest epoch that this slave was told of, and has written down; its lineage may not have come so far."""
        return self._notes.newest

    @property
    def newest(self) -> Replica:
        """What this node stands with among its peers: the store that its hello describes, whose acks count."""
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
        """What this node holds; the store that its hello describes comes first."""
        copy = self.resync.replica
        return (self._own.store,) if copy is None else (copy.store, self._own.store)

    def known_confirmed(self) -> PhysicalOffset:
        """What is known to be confirmed of this copy's own bytes."""
        return self._own.known_confirmed

    def readable(self) -> Readable:
        """Up to what is flushed and confirmed; up to what is flushed when the master has been gone for long enough."""
        flushed = self.copy.flushed
        confirmed = PhysicalOffset(min(flushed, self._own.confirmed))
        return Readable(flushed if self.master.is_gone else confirmed, confirmed)

    def master_is_named(self) -> None:
        """Nameservers name a master that they did not name before: dial it now, and wait no more for one that has given no verdict yet."""
        self._wake.set()
        is_waiting = not self.master.is_there or (self._following is not None and self._following.is_waiting)
        if self._dialled is not None and is_waiting and self.dials != self._callers.master_address():
            self._dialled.cancel()

    async def announced(self, opening: Opening) -> Opening:
        """A node of the group is about to open this epoch: what was heard before. Durable when this returns; raises DiskFull.

        Nameservers may name it by now. Another one of an epoch as new waits for no disk: it hears at once of what is being written down.
        """
        newest = max(self._told, self.newest_heard, key=lambda each: each.epoch)
        if newest.epoch >= opening.epoch and newest.opener_id not in (None, opening.opener_id):
            return newest
        self.told_of(opening)
        if not self.master.is_there:
            self.alone()
        return await self._notes.promise(opening)

    def told_of(self, opening: Opening) -> None:
        """There is this epoch, or will be: nothing more is acknowledged to a master of an older one."""
        if opening.epoch > max(self._told.epoch, self.newest_heard.epoch):
            self._told = opening
            if self._following is not None:
                self._following.told_of(opening)

    def serves_at(self, address: str) -> None:
        """Where this node serves its log to others; told before `run`."""
        self._own_address = address

    async def retire(self) -> None:
        """Follow nobody any more; what was received is durable when this returns, and no byte is added."""
        self._is_retired = True
        if self._dialled is not None:
            self._dialled.cancel()
        await self._between_streams.wait()
        await self.copy.settle()
        await self.copy.flush()

    def follow_again(self) -> None:
        """Follow a master as before `retire`: this node takes no place after all."""
        self._is_retired = False

    def all_is_confirmed(self) -> None:
        """A master that stepped down had confirmed all of its log, which this copy holds."""
        self._own.learn(self.copy.received)

    async def run(self) -> None:
        """Follow until cancelled, or until a copy is to take the store's place; raises StoreFailed when the disk fails."""
        await self._own.load()
        await self.degraded.load()
        await self._notes.load()
        await self.filling.load(self._own.store)
        async with self.resync, asyncio.TaskGroup() as tasks:
            await self.resync.take_up(tasks)
            self._has_taken_up = True
            tasks.create_task(self._notes.watch(), name="watch notes")
            tasks.create_task(self._look_around(), name="look around")
            tasks.create_task(self._dial_forever(tasks), name="dial")

    async def _dial_forever(self, tasks: asyncio.TaskGroup) -> None:
        pauses = Pauses()
        while not self.resync.is_done:
            address = self._callers.master_address()
            began = self._parts.clock.monotonic()
            if address and not self._is_retired:
                self._between_streams.clear()
                self.dials = address
                self._dialled = tasks.create_task(self._follow(address), name="stream")
                await asyncio.wait([self._dialled])
                self._between_streams.set()
                await self._clear_away(address)
            self.alone()
            await self._pause(pauses.after(self._parts.clock.monotonic() - began, self._parts.chance.random()))

    async def _follow(self, address: str) -> None:
        """One stream, from hello to its end."""
        parts = self._parts
        line = ReplicationLine(parts.channels, address)
        source = RemoteRanges(parts.channels, address, parts.config)
        self.master.dialled()
        try:
            await self._stream(line, source)
        except StoreFailed:
            raise
        except CopyComplete:
            line.hang_up()
            await self.resync.finish()
            self._callers.come_back("its log was copied anew")
        except DittoError as problem:
            if str(problem) != self.problem:
                log.info("stream_ended", node=parts.config.name, master=address, reason=str(problem))
            self.problem, self.problem_ms = str(problem), parts.clock.wall_ms()
        finally:
            line.hang_up()
            self._look()
            self.master.stream_ended()

    async def _clear_away(self, address: str) -> None:
        """What a stream leaves, also one that was cancelled."""
        await self.resync.tidy()
        if self.master.was_useless:  # the next dial would use a half-open connection again, or one to a stranger who had the address
            await self._parts.channels.forget(address)

    async def _stream(self, line: ReplicationLine, source: LogSource) -> None:
        """Sessions of the copy, or of the own store until it is told to be copied anew; ends by raising.

        Each in a task of its own: one whose group has failed counts as cancelled from then on, and may hide that it was.
        """
        ears: Follower | Resync = self
        replica = self._own
        if self.resync.replica is not None:
            ears, replica = self.resync, self.resync.replica
        while True:
            async with asyncio.TaskGroup() as tasks:
                session = tasks.create_task(_end_of(self._session(line, source, replica, ears)), name="session")
            told = session.result()
            if not isinstance(told, ToldToCopyAnew):
                raise told
            self.problem, self.problem_ms = told.order.reason, self._parts.clock.wall_ms()
            if replica is self._own:  # what a copy agrees on says nothing of the bytes of the own store
                await self.degraded.end_at(told.order.agreed)
                self._own.learn(told.order.agreed)
                await self._own.keep_confirmed()
            ears, replica = self.resync, await self.resync.begin(told.order)

    async def _session(self, line: ReplicationLine, source: LogSource, replica: Replica, ears: "Follower | Resync") -> NoReturn:
        clock = self._parts.clock

        async def describe() -> Hello:
            if replica.holds_nothing:
                await replica.ask_where_to_begin(source)
            if replica is self._own or not replica.holds_nothing:  # where a copy is to begin says nothing of the bytes of the own store
                await self.degraded.end_at(replica.store.end)
            return await replica.describe(self._own_address, self._notes, is_filling=self.filling.goes_on)

        if self._told.epoch > self.newest_heard.epoch:
            await self._hear(self._told)
        self.filling.session_begins()
        if replica is self._own and not replica.store.lineage:
            await self.filling.begin()
        hello = await describe()
        stored = Stored(hello.end, hello.flushed, replica.applied, hello.min_offset, newest_incarnation(hello.lineage))
        held = SlaveLog(hello.lineage, hello.min_offset, stored, hello.heard)
        session = SlaveSession(held, silence_s=self._silence_s, now=clock.monotonic())
        parts = StreamParts(
            *(replica.store, replica.copy, replica.parts.reads, clock, ears),
            *(describe, self.filling.begin, replica.cut, replica.begin),
            hear=self._hear,
            obey=self._obey,
            learn_degraded=self.degraded.learn,
            learn_holds=self.held.learn,
            doubted=replica.take_doubted,
        )
        self._following = MasterStream(parts, session, line)
        if self._told.epoch > hello.heard:
            self._following.told_of(self._told)
        try:
            await self._following.run(hello)
        finally:
            self._following = None
            self.master.session_ended()

    async def _hear(self, opening: Opening) -> None:
        """Write it down. Raises DiskFull; until there is room no stream begins, or an older master would be obeyed."""
        if opening.epoch > self._told.epoch:
            self._told = opening
        await self._notes.note(opening)

    async def _obey(self, opening: Opening, said: Collection[Opening]) -> None:
        """The same for the master of this stream, to whom those promises were said. Raises NotReady too."""
        if opening.epoch > self._told.epoch:
            self._told = opening
        await self._notes.obey(opening, said)

    async def _look_around(self) -> None:
        """Time makes more readable when the master is gone; the store is looked after."""
        while True:
            await asyncio.sleep(0.5)
            self._look()
            self.master.mark()
            self.readable_ends.mark(self.readable().end, self._parts.clock.monotonic())
            await self._own.look_after()
            await self.filling.look_after()
            await self.degraded.look_after()
            self._review()

    def _review(self) -> None:
        self._own.parts.dispatcher.readable_to(self.readable().end)

    async def _pause(self, seconds: float) -> None:
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


def _nobody() -> None:
    return
