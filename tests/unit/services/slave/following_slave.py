"""A slave that follows a master of the test's own."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields

from zlib_ng.zlib_ng import crc32

from dittomq.broker.config import NodeTable, ReplicationTable, StoreTable
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.doors import BrokerDoors
from dittomq.commitlog.store import Store
from dittomq.doors.transport import GrpcTransport
from dittomq.doors.workers import ThreadWorkers
from dittomq.epoch_history import EpochEntry, EpochHistory
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import (
    Chunk,
    Handshake,
    HandshakeResult,
    SlaveAck,
    SyncAction,
)
from services.broker_lifecycle import Lanes
from services.slave.config import SlaveConfig
from services.slave.full_resync import ResyncParts
from services.slave.replica import Replica, ReplicaParts
from services.slave.replica_fetcher import FetcherCallbacks, ReplicaFetcher, ReplicaFetcherParts
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import LoopClock
from tests.support.scripted_master import ScriptedMaster
from tests.support.stores import SMALL, Machine, filled

MASTERS = filled(Machine(random.Random(1)))
CONFIG = SlaveConfig(
    node=NodeTable(broker="a", broker_id=1),
    store=StoreTable(segment_bytes=SMALL.segment_bytes),
    replication=ReplicationTable(master_address="a-0:10912"),
)


def at(offset: int) -> PhysicalOffset:
    return PhysicalOffset(offset)


def entry(epoch: int, start: int) -> EpochEntry:
    return EpochEntry(Epoch(epoch), 0, 70 + epoch, at(start))


def stream(epoch_history: EpochHistory, start: int, master: str = "m1") -> HandshakeResult:
    return HandshakeResult(SyncAction.STREAM, at(start), "", epoch_history[-1].epoch, epoch_history, 5_000, replica_uuid=master)


def chunk(epoch: int, start: int, end: int, confirmed: int) -> Chunk:
    data = MASTERS.read_records(at(start), at(end), end - start)
    return Chunk(Epoch(epoch), at(start), crc32(data), data, at(confirmed), at(end))


@asynccontextmanager
async def following(
    machine: Machine, config: SlaveConfig = CONFIG, clock: LoopClock | None = None
) -> AsyncIterator[tuple[ScriptedMaster, ReplicaFetcher]]:
    """A slave on the machine's disk that follows while the block runs, and its master."""
    master = ScriptedMaster()
    storage = machine.storage()
    store = Store.open(storage, machine.options, chance=machine.chance, wall_ms=1_000)
    lane = InlineLane()
    own = Replica(ReplicaParts(config, storage, store, lane, lane, lane, lane, Dispatcher(store, lane)))
    doors = BrokerDoors(GrpcTransport(), storage, clock or LoopClock(), machine.chance, ThreadWorkers(), 1 << 30)
    resync = ResyncParts(config, doors, Lanes(*[lane] * len(fields(Lanes))), store)
    callers = FetcherCallbacks(lambda: "a-0:10912", lambda _: None, lambda _: None)
    slave = ReplicaFetcher(ReplicaFetcherParts(config, own, resync, master, doors.clock, machine.chance), callers)
    task = asyncio.create_task(slave.run())
    try:
        yield master, slave
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def handshake(master: ScriptedMaster) -> Handshake:
    """The next handshake; acks before it are passed over."""
    while not isinstance(said := await master.said.get(), Handshake):
        pass
    return said


async def flushed(master: ScriptedMaster, end: int) -> None:
    """Return when the slave has acknowledged that it has flushed up to `end`."""
    while not (isinstance(said := await master.said.get(), SlaveAck) and said.flushed == end):
        pass


def next_border(position: int) -> int:
    """End of a record behind `position`."""
    return position + len(MASTERS.read_records(at(position), MASTERS.end, 1_200))
