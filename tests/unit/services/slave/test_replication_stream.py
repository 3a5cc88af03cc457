"""A slave's stream to its master, as the slave drives it."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

import pytest
from zlib_ng.zlib_ng import crc32

from dittomq.commitlog.store import Store
from dittomq.epoch_history import newest_epoch
from dittomq.errors import DittoError
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import (
    Chunk,
    Handshake,
    HandshakeResult,
    Heartbeat,
    MissingRange,
    MissingRanges,
    ReplicationSlots,
    SlaveAck,
    SyncAction,
)
from dittomq.replication.slave_events import LogWritten, RecordCompared, ReplaceEpochHistory, SlaveLog, WriteChunk
from dittomq.replication.slave_session import SlaveSession
from dittomq.routes import DataVersion
from services.slave.replica_log_writer import ReplicaLogWriter
from services.slave.replication_stream import FromMaster, FromSlave, ReplicationStream, ReplicationStreamEnded, ReplicationStreamParts
from tests.support.handshakes import handshake
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock, run
from tests.support.stores import Machine, frame, open_epoch
from tests.support.virtual_time import under

P = TypeVar("P")
R = TypeVar("R")


class Ears:
    """Nobody listens."""

    applied = PhysicalOffset(0)

    def confirmed(self, confirmed: PhysicalOffset, master_end: PhysicalOffset) -> None: ...

    def is_fresh(self, confirmed: PhysicalOffset, silent_s: float) -> None: ...

    def stored(self) -> None: ...

    def compared(self, found: RecordCompared) -> None: ...

    def topics_at(self, version: DataVersion) -> None: ...

    def received(self) -> None: ...


class Line:
    """`said` comes from the master; what is written is in `written` when it `flows`."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[FromMaster] = asyncio.Queue()
        self.written: list[FromSlave] = []
        self.flows = asyncio.Event()
        self.flows.set()

    async def read(self) -> FromMaster | None:
        return await self.said.get()

    async def write(self, message: FromSlave) -> None:
        await self.flows.wait()
        self.written.append(message)

    def missing_ranges(self) -> list[MissingRanges]:
        """What acks said to be lacked, each time that one said it."""
        return [message.missing_now for message in self.written if isinstance(message, SlaveAck) and message.missing_now is not None]

    def acked(self) -> PhysicalOffset:
        """The highest end that was acknowledged."""
        return max(message.received for message in self.written if isinstance(message, SlaveAck))


def masters_chunks(count: int) -> tuple[Store, list[Chunk]]:
    """A master's store, and its log in chunks."""
    store = Machine(random.Random(1)).open()
    open_epoch(store)
    pieces = [store.append([frame(b"body")], at).pieces[0] for at in range(count)]
    end = PhysicalOffset(0)
    return store, [Chunk(newest_epoch(store.epoch_history), start, crc32(data), data, end, store.end) for start, data in pieces]


async def keeps_at_once(holds: ReplicationSlots) -> None:
    """Nothing is to be written down."""


def stream_of(
    store: Store, line: Line, first: Handshake, keep: Callable[[ReplicationSlots], Awaitable[None]] = keeps_at_once
) -> ReplicationStream:
    async def describe() -> Handshake:
        return first

    async def cut(to: PhysicalOffset, reason: str) -> None: ...

    async def begin(at: PhysicalOffset) -> None: ...

    async def obey(epoch: Epoch, birth: str) -> None:
        store.promise(epoch)

    async def adopt(epoch: Epoch) -> None:
        store.adopt_epoch(epoch)

    lane, clock, nothing = InlineLane(), LoopClock(), PhysicalOffset(0)
    log = ReplicaLogWriter(store, lane, InlineLane(), sync_each_group=True)
    held = SlaveLog((), nothing, LogWritten(nothing, nothing, nothing, nothing), Epoch(0), "")
    session = SlaveSession(held, silence_s=20.0, now=clock.monotonic())
    parts = ReplicationStreamParts(store, log, lane, clock, Ears(), describe, cut, begin, obey, adopt, keep, lambda: None)
    return ReplicationStream(parts, session, line)


@under(run)
async def test_an_ack_that_waited_for_the_disk_names_no_less_than_one_before_it() -> None:
    master, chunks = masters_chunks(1)
    line, first, written = Line(), handshake(1, 0, epoch_history=()), asyncio.Event()

    async def keep(holds: ReplicationSlots) -> None:
        await written.wait()

    stream = stream_of(Machine(random.Random(2)).open(), line, first, keep)
    following = asyncio.create_task(stream.run(first))
    line.said.put_nowait(HandshakeResult(SyncAction.STREAM, PhysicalOffset(0), "", chunks[0].epoch, master.epoch_history, 5_000))
    line.said.put_nowait(chunks[0])
    line.said.put_nowait(Heartbeat(chunks[0].epoch, master.end, PhysicalOffset(0), None, None, slots=(("a/2", PhysicalOffset(0)),)))
    await asyncio.sleep(0.1)
    before = len(line.written)
    written.set()
    await asyncio.sleep(0.1)
    assert len(line.written) > before, "nothing waited"
    following.cancel()
    acked = [message.received for message in line.written if isinstance(message, SlaveAck)]
    assert acked == sorted(acked)
    assert acked[-1] > 0


@under(run)
async def test_a_stream_whose_handshake_never_leaves_ends_when_its_master_was_silent() -> None:
    line, first = Line(), handshake(1, 0, epoch_history=())
    line.flows.clear()

    with pytest.raises(ReplicationStreamEnded, match="the master was silent"):
        async with asyncio.timeout(30.0):
            await stream_of(Machine(random.Random(2)).open(), line, first).run(first)


@under(run)
async def test_an_ack_that_waited_while_a_newer_epoch_was_promised_never_leaves() -> None:
    """What was being written before may leave: the promise is answered when the stream has ended."""

    master, chunks = masters_chunks(3)
    line, first = Line(), handshake(1, 0, epoch_history=())
    stream = stream_of(Machine(random.Random(2)).open(), line, first)

    async def follow() -> DittoError:
        try:
            await stream.run(first)
        except DittoError as ended:
            return ended

    following = asyncio.create_task(follow())
    line.said.put_nowait(HandshakeResult(SyncAction.STREAM, PhysicalOffset(0), "", chunks[0].epoch, master.epoch_history, 5_000))
    line.said.put_nowait(chunks[0])
    await asyncio.sleep(0.1)
    line.flows.clear()
    line.said.put_nowait(chunks[1])
    await asyncio.sleep(0.1)
    stream.promised(Epoch(2))
    line.said.put_nowait(chunks[2])
    await asyncio.sleep(1.5)

    line.flows.set()
    ended = await following

    assert "promises epoch 2" in str(ended)
    assert line.acked() == chunks[2].offset


@under(run)
async def test_acks_name_the_epoch_from_when_it_is_adopted_durably_on() -> None:
    master, (first,) = masters_chunks(1)
    line, greeting, machine = Line(), handshake(1, 0, epoch_history=()), Machine(random.Random(2))
    store = machine.open()
    line.said.put_nowait(HandshakeResult(SyncAction.STREAM, PhysicalOffset(0), "", first.epoch, master.epoch_history, 500))
    following = asyncio.create_task(stream_of(store, line, greeting).run(greeting))
    await asyncio.sleep(0.1)

    assert (store.promised_epoch, store.adopted_epoch) == (first.epoch, first.epoch)
    assert [message.adopted for message in line.written if isinstance(message, SlaveAck)][-1] == first.epoch
    following.cancel()
    await asyncio.wait([following])
    machine.kill()
    assert machine.open().adopted_epoch == first.epoch


@under(run)
async def test_an_ack_says_what_the_slave_lacks_whenever_that_has_changed_and_once() -> None:
    master, chunks = masters_chunks(3)
    line, first, machine = Line(), handshake(1, 0, epoch_history=()), Machine(random.Random(2))
    store = machine.open()
    following = asyncio.create_task(stream_of(store, line, first).run(first))
    rotten, left_out = ((chunks[at].offset, chunks[at + 1].offset) for at in (0, 1))
    epoch, end, nothing = chunks[0].epoch, master.end, PhysicalOffset(0)

    async def beat() -> None:
        line.said.put_nowait(Heartbeat(epoch, end, nothing, None, None))
        await asyncio.sleep(1.5)

    line.said.put_nowait(HandshakeResult(SyncAction.STREAM, nothing, "", epoch, master.epoch_history, 5_000))
    line.said.put_nowait(chunks[0])
    line.said.put_nowait(MissingRange(epoch, *left_out, nothing, end))
    line.said.put_nowait(chunks[2])
    for _ in range(3):
        await beat()
    assert line.missing_ranges() == [(left_out,)]

    machine.disk.names.files[f"commitlog/{0:020d}"].flip(90, 1)
    store.verify(0, end)
    for _ in range(3):
        await beat()
    assert line.missing_ranges()[1:] == [((rotten[0], left_out[1]),)]

    for chunk in chunks[:2]:
        store.repair(chunk.offset, chunk.data)
    for _ in range(3):
        await beat()
    assert line.missing_ranges()[2:] == [()]
    following.cancel()


class HeldLane(InlineLane):
    """Runs steps when it is let go, and tells of them when it is let tell."""

    def __init__(self) -> None:
        super().__init__()
        self.goes, self.tells = asyncio.Event(), asyncio.Event()

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        await self.goes.wait()
        told: list[P] = []
        result = await super().run(steps, told.append)
        await self.tells.wait()
        if progress is not None:
            for value in told:
                progress(value)
        return result


@under(run)
async def test_flushed_never_passes_received_during_a_write() -> None:
    """They are just being written."""
    master, (first, second) = masters_chunks(2)
    writes, syncs = HeldLane(), HeldLane()
    log = ReplicaLogWriter(Machine(random.Random(2)).open(), writes, syncs, sync_each_group=False)
    running = asyncio.create_task(log.run(lambda: None))
    for lane in (writes, syncs):
        lane.tells.set()
    writes.goes.set()
    await log.put(ReplaceEpochHistory(master.epoch_history))
    await log.put(WriteChunk(first.offset, first.data))
    await asyncio.sleep(0.1)
    flushing = asyncio.create_task(log.flush())
    await asyncio.sleep(0.1)
    writes.tells.clear()
    await log.put(WriteChunk(second.offset, second.data))
    await asyncio.sleep(0.1)
    syncs.goes.set()
    await flushing

    assert log.flushed == log.received == second.offset
    running.cancel()
