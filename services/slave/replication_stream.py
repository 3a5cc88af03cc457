"""⑤⑥ One stream to the master: obeys its SlaveSession."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol, assert_never

import structlog

from dittomq.broker.digesting import digest_of
from dittomq.broker.record_starts import record_start
from dittomq.commitlog.store import Store
from dittomq.copies import LEAF_BYTES
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.epoch_history import newest_incarnation
from dittomq.errors import DittoError, first_of
from dittomq.offsets import NO_EPOCH, Epoch, PhysicalOffset
from dittomq.replication import slave_events
from dittomq.replication.consistency_check import Range
from dittomq.replication.events import (
    Chunk,
    Handshake,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    LeafProbe,
    MissingRange,
    MissingRanges,
    RangeDigest,
    ReplicationSlots,
    SlaveAck,
    SyncAction,
    Tick,
)
from dittomq.replication.slave_session import SlaveSession
from dittomq.replication.slave_states import SlaveSessionState
from dittomq.routes import DataVersion
from services.slave.missing_ranges import missing_ranges
from services.slave.replica_log_writer import ReplicaLogWriter

FromMaster = HandshakeResult | Chunk | MissingRange | Heartbeat | LeafProbe
FromSlave = Handshake | SlaveAck | LeafDigests

_TICK_S = 0.5
_QUICK_SYNC_S = 0.002
_ORIGIN = PhysicalOffset(0)

log = structlog.get_logger()


class StreamConnection(Protocol):
    """An open stream, in values."""

    async def read(self) -> FromMaster | None:
        """What the master says next, None when it has left; raises the typed error of a stream that broke."""
        ...

    async def write(self, message: FromSlave) -> None:
        """Say it."""
        ...


@dataclass(eq=False)
class ReplicationStreamEnded(DittoError):
    """The session ended the stream; another one may be dialled."""

    why: str

    def __str__(self) -> str:
        return self.why


@dataclass(eq=False)
class FullResyncRequired(DittoError):
    """The session is over, its stream is not: the copy's may begin on it."""

    order: slave_events.StartFullResync

    def __str__(self) -> str:
        return self.order.reason


class StreamListener(Protocol):
    """Who learns what the master says. `confirmed` may raise a DittoError to end the stream."""

    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None: ...

    def is_fresh(self, confirmed: PhysicalOffset, silent_s: float) -> None: ...

    def stored(self) -> None: ...

    def compared(self, found: slave_events.RecordCompared) -> None: ...

    def topics_at(self, version: DataVersion) -> None: ...

    def received(self) -> None: ...

    @property
    def applied(self) -> PhysicalOffset: ...


@dataclass(frozen=True, slots=True)
class ReplicationStreamParts:
    """What a stream works with. `cut` cuts the log and everything that hangs on it, `begin` lets an empty one begin elsewhere.

    `obey` durably promises an epoch and keeps a birth, `adopt` durably adopts an epoch. `update_slots` writes down for whom the master
    keeps its log. `reverify_from` tells, once, where the first damage begins that was found since the last handshake.
    """

    store: Store
    log: ReplicaLogWriter
    reads: Executor
    clock: Clock
    ears: StreamListener
    describe: Callable[[], Awaitable[Handshake]]
    truncate: Callable[[PhysicalOffset, str], Awaitable[None]]
    begin: Callable[[PhysicalOffset], Awaitable[None]]
    bind: Callable[[Epoch, str], Awaitable[None]]
    adopt: Callable[[Epoch], Awaitable[None]]
    update_slots: Callable[[ReplicationSlots], Awaitable[None]]
    reverify_from: Callable[[], PhysicalOffset | None]


class ReplicationStream:
    """Drives one session until either side ends it; always ends by raising."""

    def __init__(self, parts: ReplicationStreamParts, session: SlaveSession, line: StreamConnection) -> None:
        self._parts = parts
        self._session = session
        self._line = line
        self._stored = asyncio.Event()
        self._writing = asyncio.Lock()
        self._late: asyncio.TimerHandle | None = None
        self._handshake: Handshake | None = None  # the last one
        self._promised: Epoch | None = None  # given beside the stream, and the session does not know it yet
        self._newest_promised = NO_EPOCH
        self._to_digest: RangeDigest | None = None
        self._asked_to_digest = asyncio.Event()
        self._verified: Range = (PhysicalOffset(0), PhysicalOffset(0))  # where a probe has found no damage
        self._missing_ranges: MissingRanges | None = ()  # as told last
        self._last_ack: SlaveAck | None = None  # the newest ack since the last handshake
        self._may_miss_else = False
        self._ended = False
        self.master_waits_for = ""  # as it says to whoever is to wait for that too

    @property
    def follows(self) -> bool:
        """Whether the master lets this copy follow; one that is only told to wait, or to cut, does not."""
        return self._session.state is SlaveSessionState.STREAMING

    def promised(self, epoch: Epoch) -> None:
        """This replica promises this epoch: from here on no ack of a lower one begins to be written, and the session ends."""
        self._promised = self._newest_promised = epoch
        self._stored.set()

    async def run(self, handshake: Handshake) -> NoReturn:
        """Follow; raises ReplicationStreamEnded, FullResyncRequired, what the ears raise, the error of a broken stream, CorruptRecord or
        StorageFailure.

        It listens before its handshake is out: of a stream that was given up while it was being connected, gRPC tells only who reads. And
        it counts the master's silence before that: a handshake may never leave.
        """
        ended: DittoError | None = None
        self._handshake, self._missing_ranges = handshake, handshake.missing_ranges
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._receive(), name="hear")
                tasks.create_task(self._tick(), name="tick")
                await self._send(handshake)
                tasks.create_task(self._parts.log.run(self._moved), name="write")
                tasks.create_task(self._parts.log.sync_behind(self._moved), name="sync")
                tasks.create_task(self._acknowledge(), name="acknowledge")
                tasks.create_task(self._digest_asked(), name="digest")
        except* DittoError as problems:
            ended = first_of(problems)
        finally:
            self._ended = True
        assert ended is not None, "its tasks end by raising"
        raise ended

    def _moved(self) -> None:
        """What is received is worth an ack of its own only when its sync takes long: the ack of the sync says it too.

        A write that was under way when the stream ended goes on, and what it wrote to may be gone: nobody hears of it.
        """
        if self._ended:
            return
        if self._late is not None:
            self._late.cancel()
        if self._parts.log.sync_is_under_way:
            self._late = asyncio.get_running_loop().call_later(_QUICK_SYNC_S, self._stored.set)
        else:
            self._stored.set()
        self._parts.ears.stored()

    async def _receive(self) -> None:
        while True:
            message = await self._line.read()
            if message is None:
                raise ReplicationStreamEnded("the master ended the stream")
            self._parts.ears.received()
            await self._handle(message)
            if isinstance(message, HandshakeResult):
                self.master_waits_for = message.reason if message.action is SyncAction.WAIT else ""
                if self.follows and not message.counts:
                    log.info("not_counted", epoch=message.epoch, why="replicas_expected of its master is 0, which confirms alone")
                if self.follows:  # what another master was equal to says nothing of this one
                    self._parts.ears.compared(slave_events.RecordCompared(_ORIGIN, _ORIGIN, True, message.replica_uuid))

    async def _acknowledge(self) -> None:
        while True:
            await self._stored.wait()
            self._stored.clear()
            if self._promised is not None:
                promised, self._promised = self._promised, None
                await self._handle(slave_events.Promised(promised))
            await self._handle(self._stored_now())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._may_miss_else = True
            await self._handle(Tick())
            if (reverify_from := self._parts.reverify_from()) is not None:
                await self._handle(slave_events.VerifiedEndLowered(reverify_from))
            await self._handle(self._stored_now())

    async def _digest_asked(self) -> None:
        """Old bytes are read beside the stream, which does not wait for them. Of several questions only the newest is still open."""
        while True:
            await self._asked_to_digest.wait()
            self._asked_to_digest.clear()
            theirs = self._to_digest
            assert theirs is not None, "it was asked for"
            ours = await digest_of(self._parts.store, self._parts.reads, theirs.start, theirs.end)
            await self._handle(slave_events.DigestReady(theirs, ours))

    def _stored_now(self) -> slave_events.LogWritten:
        log, store = self._parts.log, self._parts.store
        incarnation = newest_incarnation(store.epoch_history)
        return slave_events.LogWritten(
            log.received, log.flushed, self._parts.ears.applied, store.min_offset, incarnation=incarnation, adopted=store.adopted_epoch
        )

    async def _handle(self, event: slave_events.Event) -> None:
        for command in self._session.handle(event, self._parts.clock.monotonic()):
            answer = await self._apply(command)
            if answer is not None:
                await self._handle(answer)

    def _report(self, news: slave_events.UpdateConfirmed | slave_events.UpdateFreshness | slave_events.UpdateTopics) -> None:
        ears = self._parts.ears
        match news:
            case slave_events.UpdateConfirmed():
                ears.confirmed(news.confirmed, news.master_end)
                self._parts.log.master_ended_at(news.master_end)
            case slave_events.UpdateFreshness():
                ears.is_fresh(news.confirmed, news.silent_s)
            case slave_events.UpdateTopics():
                ears.topics_at(news.version)

    async def _apply(self, command: slave_events.Command) -> slave_events.Event | None:
        ears = self._parts.ears
        match command:
            case slave_events.WriteChunk() | slave_events.SkipRange() | slave_events.ReplaceEpochHistory():
                await self._parts.log.put(command)
            case slave_events.UpdateConfirmed() | slave_events.UpdateFreshness() | slave_events.UpdateTopics():
                self._report(command)
            case slave_events.UpdateReplicationSlots():
                await self._parts.update_slots(command.slots)
            case slave_events.SendAck():
                await self._send(self._with_missing(command.ack))
            case slave_events.SendHandshake():
                assert self._handshake is not None, "it was described when the log had been cut"
                self._missing_ranges, self._last_ack = self._handshake.missing_ranges, None
                await self._send(self._handshake)
            case slave_events.BindToMaster() | slave_events.AdoptEpoch():
                return await self._bind(command)
            case slave_events.TruncateLog():
                return await self._truncate(command)
            case slave_events.SetLogStart():
                await self._parts.begin(command.at)
            case slave_events.DigestRange():
                self._to_digest = command.theirs
                self._asked_to_digest.set()
            case slave_events.AnswerProbe():
                return await self._answer(command.probe)
            case slave_events.RecordCompared():
                ears.compared(command)
            case slave_events.StartFullResync():
                raise FullResyncRequired(command)
            case slave_events.Reconnect():
                raise ReplicationStreamEnded(command.reason)
            case _:
                assert_never(command)
        return None

    async def _bind(self, command: slave_events.BindToMaster | slave_events.AdoptEpoch) -> slave_events.LogWritten | None:
        if isinstance(command, slave_events.BindToMaster):
            await self._parts.bind(command.epoch, command.birth)
            return None
        await self._parts.adopt(command.epoch)
        return self._stored_now()

    def _with_missing(self, ack: SlaveAck) -> SlaveAck:
        """What is damaged changes seldom: it is looked at twice a second. A missing range is on the register before it is received."""
        if not self._may_miss_else:
            return ack
        self._may_miss_else = False
        before, self._missing_ranges = self._missing_ranges, missing_ranges(self._parts.store, ack.received)
        return ack if self._missing_ranges == before else replace(ack, missing_now=self._missing_ranges)

    async def _truncate(self, command: slave_events.TruncateLog) -> slave_events.Truncated:
        """Where a record lies over the place it is cut from its start on, which may be of an epoch that both have; then this raises.

        The log is not the master's from there on, and the session does not know of that.
        """
        store, asked = self._parts.store, command.to
        to = await self._parts.reads.call(lambda: record_start(store, asked))
        await self._parts.truncate(to, command.reason)
        if to < asked:
            raise ReplicationStreamEnded(f"told to cut to {asked:,}, where no record begins here: cut to {to:,}")
        self._handshake = await self._parts.describe()
        return slave_events.Truncated(self._stored_now())

    async def _answer(self, probe: LeafProbe) -> slave_events.DamageFound | None:
        """Own damage is repaired, and nobody cut for it."""
        store = self._parts.store
        digests = await self._parts.reads.call(lambda: self._leaves(probe))
        if damaged := store.damage.within(probe.start, probe.end):
            low, high = damaged[0]
            return slave_events.DamageFound(PhysicalOffset(low), PhysicalOffset(high))
        await self._send(LeafDigests(probe.start, probe.end, digests))
        return None

    def _leaves(self, probe: LeafProbe) -> tuple[bytes, ...]:
        """What is asked for; damage there is noted. Blocks.

        Of many leaves of a megabyte none is verified: the one that differs is asked for by itself next, and verified once.
        """
        store, (start, end) = self._parts.store, self._verified
        if probe.leaf_bytes < LEAF_BYTES and not start <= probe.start < probe.end <= end:
            store.verify(probe.start, probe.end)
            self._verified = probe.start, probe.end
        try:
            return tuple(store.leaf_digests(probe.start, probe.end, leaf_bytes=probe.leaf_bytes))
        except OSError:
            store.verify(probe.start, probe.end)
            return ()

    async def _send(self, message: FromSlave) -> None:
        async with self._writing:
            if isinstance(message, SlaveAck):
                if message.epoch < self._newest_promised:
                    return
                message = self._last_ack = _not_behind(message, self._last_ack)
            await self._line.write(message)


def _not_behind(ack: SlaveAck, last: SlaveAck | None) -> SlaveAck:
    """An ack that waited, while this node wrote something down, names no less than one that left before it."""
    if last is None:
        return ack
    received, flushed, applied = max(ack.received, last.received), max(ack.flushed, last.flushed), max(ack.applied, last.applied)
    return replace(ack, received=received, flushed=flushed, applied=applied, adopted=max(ack.adopted, last.adopted))
