"""④ One slave's stream: obeys its MasterSession, reads what it asks for, counts what it acknowledges."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from zlib_ng.zlib_ng import crc32

from dittomq.broker.digesting import digest_of
from dittomq.broker.range_server import damaged_end, whole_records
from dittomq.broker.record_starts import record_start
from dittomq.commitlog.store import Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import CorruptRecord, DittoError, NeedsOperator, NotReady, StreamReset, first_of
from dittomq.ha_status import NodeState
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import master_events
from dittomq.replication.events import (
    Chunk,
    Goodbye,
    Handshake,
    HandshakeResult,
    Heartbeat,
    LeafDigests,
    ReplicationSlots,
    SyncAction,
    Tick,
)
from dittomq.replication.master_session import MasterSession
from dittomq.replication.throttle import ThrottleTurns, chunk_bytes
from dittomq.routes import DataVersion
from services.master.mailbox import Mailbox, SlaveMessage
from services.master.replica_registry import SlaveRecord
from services.master.stream_writer import MasterMessage, StreamWriter
from services.master.term import Term

LeavesJudged = master_events.LeafDiffers | master_events.LeavesCompared
Found = master_events.DigestsCompared | master_events.HeartbeatReady

_CONFIRMED_WAITS_S = 0.01
_TICK_S = 0.25  # several times between heartbeats


@dataclass(frozen=True, slots=True)
class ReplicaSenderParts:
    """What a stream works with.

    `topics` tells the version of the topics, `holds` for whom the log is kept, None while that is not known, `speaks` whether it is still
    its replica's newest stream; `turns` is this stream's own. `remove` has a member removed from the group record, `promised_above` hears
    that a slave has promised a higher epoch, `disk_answers` tells whether this master's disk does. `silent_s`: see Heartbeat.
    """

    term: Term
    store: Store
    lane: Executor
    clock: Clock
    node: str
    topics: Callable[[], DataVersion]
    slots: Callable[[], ReplicationSlots | None]
    speaks: Callable[[], bool]
    remove: Callable[[str], None]
    promised_above: Callable[[Epoch, str], Awaitable[None]]
    disk_answers: Callable[[], bool]
    silent_s: Callable[[], float | None]
    turns: ThrottleTurns


@dataclass(frozen=True, slots=True)
class _DelayedChunk:
    """A chunk that was read and waits for its time. One at a time: that, and what gRPC buffers, is what a slow slave costs."""

    command: master_events.SendChunk
    data: bytes


class ReplicaSender:
    """Drives one session from its handshake until either side ends it."""

    def __init__(
        self, parts: ReplicaSenderParts, session: MasterSession, record: SlaveRecord, send: Callable[[MasterMessage], Awaitable[None]]
    ) -> None:
        self._parts = parts
        self._session = session
        self._record = record
        self._writer = StreamWriter(parts.node, parts.clock, session.silence_s, send)
        self._inbox = Mailbox()
        self._handshake: Handshake | None = None  # the last one that was taken
        self._ended = False
        self.sent_goodbye = False  # the slave stops in order
        self._moved = True
        self._written = PhysicalOffset(0)
        self._late: asyncio.TimerHandle | None = None
        self._ticked = False
        self._held: _DelayedChunk | None = None
        self._to_compare: asyncio.Queue[master_events.CompareDigests] = asyncio.Queue(1)  # of each the session has one under way at a time
        self._to_digest: asyncio.Queue[master_events.PrepareHeartbeat] = asyncio.Queue(1)
        self._found: deque[Found] = deque()
        self._due: asyncio.TimerHandle | None = None
        self._bell = asyncio.Event()

    async def run(self, handshake: Handshake, messages: AsyncIterator[SlaveMessage | Goodbye]) -> None:
        """Serve until the slave leaves.

        Raises StreamReset or NeedsOperator when the session ends it, NotReady when the term is over, CorruptRecord, StorageFailure.
        """
        await self._inbox.put(handshake)
        self._bell.set()
        unlisten = self._parts.term.listen(self._log_moved)
        ended: DittoError | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = tasks.create_task(self._listen(messages))
                ticking = tasks.create_task(self._tick())
                comparing = tasks.create_task(self._compare_handshakes())
                digesting = tasks.create_task(self._digest_steps())
                try:
                    await self._work()
                finally:
                    listening.cancel()
                    ticking.cancel()
                    comparing.cancel()
                    digesting.cancel()
        except* DittoError as problems:
            ended = first_of(problems)
        finally:
            unlisten()
            for timer in (self._late, self._due):
                if timer is not None:
                    timer.cancel()
        if ended is not None:
            raise ended

    async def _listen(self, messages: AsyncIterator[SlaveMessage | Goodbye]) -> None:
        try:
            async for event in messages:
                self._writer.received()
                if isinstance(event, Goodbye):
                    self.sent_goodbye = True
                    break
                await self._inbox.put(event)
                self._bell.set()
        finally:
            self._ended = True
            self._bell.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._writer.check()
            self._ticked = True
            self._bell.set()

    async def _compare_handshakes(self) -> None:
        """It may take long: the session has the slave wait meanwhile."""
        while True:
            self._report_found(await self._compare(await self._to_compare.get()))

    async def _digest_steps(self) -> None:
        """Old bytes are read beside the stream, which does not wait for them."""
        store = self._parts.store
        while True:
            step = await self._to_digest.get()
            digest = await digest_of(store, self._parts.lane, max(step.start, store.min_offset), step.end)
            self._report_found(master_events.HeartbeatReady(digest, store.min_offset))

    def _report_found(self, found: Found) -> None:
        self._found.append(found)
        self._bell.set()

    def _log_moved(self) -> None:
        """Bytes leave at once. That something was confirmed waits a moment for bytes to travel with."""
        if self._parts.term.written > self._written or self._parts.term.is_over:
            self._report()
        elif self._late is None:
            self._late = asyncio.get_running_loop().call_later(_CONFIRMED_WAITS_S, self._report)

    def _report(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
        self._moved = True
        self._bell.set()

    async def _work(self) -> None:
        while not self._ended:
            await self._bell.wait()
            self._bell.clear()
            if self._parts.term.is_over:
                raise NotReady(self._parts.node, f"its term is over: {self._parts.term.why_over}")
            while self._inbox and not self._ended:
                event = self._inbox.take()
                self._handshake = event if isinstance(event, Handshake) else self._handshake
                await self._handle(event)
            if self._moved:
                self._moved = False
                self._written = self._parts.term.written
                await self._handle(self._log_now())
            while self._found and not self._ended:
                await self._handle(self._found.popleft())
            if self._ticked and not self._inbox:  # what it has said meanwhile shows that it was not silent
                self._ticked = False
                await self._handle(Tick())
            if self._held is not None and self._due is None:
                await self._let_go(self._held)

    def _log_now(self) -> master_events.LogMoved:
        term = self._parts.term
        return master_events.LogMoved(term.written, term.confirm.confirmed, self._parts.topics())

    async def _handle(self, event: master_events.Event) -> None:
        pending: deque[master_events.Event] = deque([event])
        while pending and not self._ended:
            for command in self._session.handle(pending.popleft(), self._parts.clock.monotonic()):
                answer = await self._apply(command)
                if answer is not None:
                    pending.append(answer)

    async def _apply(self, command: master_events.Command) -> master_events.Event | None:
        match command:
            case master_events.SendChunk():
                return await self._send_chunk(command)
            case master_events.SendMissingRange():
                self._parts.term.record_skipped(self._record.node, command.missing_range.start, command.missing_range.end)
                await self._writer.write(command.missing_range)
                return master_events.ChunkSent(command.missing_range.end)
            case master_events.RecordAck():
                self._count(command)
            case master_events.SendHandshakeResult():
                await self._send_handshake_result(command.handshake_result)
            case master_events.SendHeartbeat(heartbeat):
                await self._beat(heartbeat)
            case master_events.SendProbe(probe):
                await self._writer.write(probe)
            case master_events.PrepareHeartbeat():
                self._to_digest.put_nowait(command)
            case master_events.CompareDigests():
                self._to_compare.put_nowait(command)
            case master_events.CompareLeaves():
                return await self._compare_leaves(command.leaves)
            case master_events.RecordVerified():
                self._record.verified_offset = command.end
            case master_events.RemoveMember(node):
                self._parts.remove(node)
            case master_events.PromisedAbove(epoch, node):
                await self._parts.promised_above(epoch, node)
            case master_events.EndSlaveStream() | master_events.RejectSlave():
                raise _ended(self._parts.node, command)
            case _:
                assert_never(command)
        return None

    async def _beat(self, heartbeat: Heartbeat) -> None:
        """A master whose disk does not answer is silent: another member is to be elected."""
        if self._parts.disk_answers():
            await self._writer.write(replace(heartbeat, slots=self._parts.slots(), silent_s=self._parts.silent_s()))

    def _count(self, ack: master_events.RecordAck) -> None:
        record, term = self._record, self._parts.term
        if not self._parts.speaks():
            return
        record.acked(ack.received, ack.flushed, ack.applied, self._parts.clock)
        if ack.missing_now is not None:
            term.record_missing(record.node, ack.missing_now, ack.received)
        term.slave_at(record.node, record.replica, ack.received, ack.flushed, adopted=ack.adopted)

    async def _send_handshake_result(self, handshake_result: HandshakeResult) -> None:
        """From here on the replica has a stream; what it acknowledged behind its beginning counts no longer."""
        record, handshake = self._record, self._handshake
        if handshake_result.action in {SyncAction.STREAM, SyncAction.TRUNCATE} and handshake is not None and self._parts.speaks():
            missing_ranges = handshake.missing_ranges if handshake_result.action is SyncAction.STREAM else None
            self._parts.term.stream_begins(
                record.node, record.replica, handshake_result.start, missing_ranges, address=handshake.replication_address
            )
        record.become(NodeState.WAITING if handshake_result.action is SyncAction.WAIT else NodeState.CATCHING_UP, self._parts.clock)
        await self._writer.write(handshake_result)

    async def _send_chunk(self, command: master_events.SendChunk) -> master_events.Event | None:
        """Send it when it is due: until then what happens is handled, and what is confirmed goes ahead of it."""
        if command.limit == command.start:
            await self._send_bytes(command, b"")
            return None
        size = chunk_bytes(self._record.sent.bytes_per_s(self._parts.clock.monotonic()))
        data = self._parts.term.tail.read(command.start, command.limit, size) or await self._read_disk(command, size)
        if not data:
            return await self._damage_at(command.start)
        if self._waits:  # a line may take long for each chunk, and there may be many: the slave is heard before the next one
            self._held = _DelayedChunk(command, data)
            self._bell.set()
            return None
        if self._is_due(len(data)):
            return await self._send_bytes(command, data)
        self._held = _DelayedChunk(command, data)
        self._report()
        return None

    @property
    def _waits(self) -> bool:
        """Whether something is to be handled before the next chunk leaves."""
        return bool(self._inbox) or self._ticked or self._moved or bool(self._found)

    async def _let_go(self, held: _DelayedChunk) -> None:
        if self._is_due(len(held.data)):
            self._held = None
            await self._handle(await self._send_bytes(held.command, held.data))

    def _is_due(self, size: int) -> bool:
        """Whether a chunk may leave now; otherwise the bell rings when to ask again."""
        now = self._parts.clock.monotonic()
        due = self._parts.turns.due(size, now)
        if due <= now:
            return True
        self._due = asyncio.get_running_loop().call_later(due - now, self._now_due)
        return False

    def _now_due(self) -> None:
        self._due = None
        self._bell.set()

    async def _send_bytes(self, command: master_events.SendChunk, data: bytes) -> master_events.ChunkSent:
        term = self._parts.term
        await self._writer.write(Chunk(command.epoch, command.start, crc32(data), data, term.confirm.confirmed, term.written))
        self._record.sent.add(len(data), self._parts.clock.monotonic())
        return master_events.ChunkSent(PhysicalOffset(command.start + len(data)))

    async def _read_disk(self, command: master_events.SendChunk, size: int) -> bytes:
        """Rot is not copied: every record's checksum is verified before it leaves. b"" when the first one is not whole."""
        return await self._parts.lane.call(lambda: whole_records(self._parts.store, command.start, command.limit, size))

    async def _damage_at(self, start: PhysicalOffset) -> master_events.BytesDamaged:
        """The damage that begins there, durably noted; CorruptRecord, which ends the stream, when it is not flushed or gone again."""
        end = await self._parts.lane.call(lambda: damaged_end(self._parts.store, start))
        if end is None:
            raise CorruptRecord(self._parts.node, start, "it was not whole when it was to be sent")
        return master_events.BytesDamaged(start, end)

    async def _compare(self, command: master_events.CompareDigests) -> master_events.DigestsCompared:
        """What is not whole here is not compared, so nothing behind it is proven either, whatever was before it was damaged."""
        store = self._parts.store
        equal_end = PhysicalOffset(store.damage.whole_end(command.verified))
        for theirs in sorted(command.digests, key=lambda digest: digest.start):
            ours = await digest_of(store, self._parts.lane, theirs.start, theirs.end)
            if ours is not None and ours != theirs:
                return master_events.DigestsCompared(equal_end, theirs)
            if ours is not None and theirs.start <= max(equal_end, store.min_offset):
                equal_end = max(equal_end, theirs.end)
        return master_events.DigestsCompared(equal_end, None)

    async def _compare_leaves(self, leaves: LeafDigests) -> LeavesJudged:
        return await self._parts.lane.call(lambda: compare_leaves(self._parts.store, leaves))


def compare_leaves(store: Store, leaves: LeafDigests) -> LeavesJudged:
    """Find the first of a slave's leaves that is not ours and, once that is a byte, whether our record there is whole. Blocks.

    Damage is noted.
    """
    size = leaves.leaf_bytes
    try:
        ours = store.leaf_digests(leaves.start, leaves.end, leaf_bytes=size)
    except OSError:
        store.verify(leaves.start, leaves.end)
        return master_events.LeavesCompared(leaves.start, ours_whole=False)
    differing = next((at for at, (mine, other) in enumerate(zip(ours, leaves.digests, strict=False)) if mine != other), None)
    if differing is None:
        return master_events.LeavesCompared(None, ours_whole=True)
    first, end = PhysicalOffset(leaves.start + differing * size), PhysicalOffset(min(leaves.end, leaves.start + (differing + 1) * size))
    if end - first > 1:
        return master_events.LeafDiffers(first, end)
    start = record_start(store, first)
    damaged = store.damage.within(first, end)
    return master_events.LeavesCompared(PhysicalOffset(damaged[0].start) if damaged else start, ours_whole=not damaged)


def _ended(node: str, by: master_events.EndSlaveStream | master_events.RejectSlave) -> DittoError:
    """What the slave is answered: whether its next handshake settles it, or a person must."""
    return NeedsOperator(node, by.why) if isinstance(by, master_events.RejectSlave) else StreamReset(node, by.reason)
