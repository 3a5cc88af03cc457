"""Bugs between a master and a slave."""

import asyncio
from dataclasses import replace
from typing import Any

from dittomq.commitlog.replica_append import ReplicaAppender
from dittomq.offsets import PhysicalOffset
from dittomq.replication import master_session
from dittomq.replication.events import Chunk, SlaveAck
from dittomq.replication.master_events import DigestsCompared
from dittomq.replication.slave_events import SendAck, WriteChunk
from dittomq.replication.slave_session import SlaveSession
from services.master.replica_sender import ReplicaSender
from services.slave.connection import ReplicationConnection
from services.slave.replica_fetcher import ReplicaFetcher
from tests.simulation.bugs.patches import Patches
from tests.simulation.cluster import Cluster

_EVERY = 40  # chunks
_LEFT_BEHIND = 4  # tasks


def acknowledge_before_writing(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def handle(session: SlaveSession, event: Any, now: float) -> Any:
            commands = honest(session, event, now)
            ends = [PhysicalOffset(write.offset + len(write.data)) for write in commands if isinstance(write, WriteChunk)]
            return [*(SendAck(SlaveAck(session.epoch, end, end, PhysicalOffset(0))) for end in ends), *commands]

        return handle

    patches.put(SlaveSession, "handle", make)


def say_flushed_when_received(patches: Patches, _: Cluster) -> None:
    def make(honest: Any) -> Any:
        def handle(session: SlaveSession, event: Any, now: float) -> Any:
            commands = honest(session, event, now)
            return [SendAck(replace(each.ack, flushed=each.ack.received)) if isinstance(each, SendAck) else each for each in commands]

        return handle

    patches.put(SlaveSession, "handle", make)


def write_behind_a_gap(patches: Patches, _: Cluster) -> None:
    """A chunk is lost now and then, and the slave writes the next one where it belongs."""
    heard = 0

    def losing(honest: Any) -> Any:
        async def read(line: ReplicationConnection) -> Any:
            nonlocal heard
            while isinstance(said := await honest(line), Chunk) and said.data:
                heard += 1
                if heard % _EVERY:
                    break
            return said

        return read

    def taking(honest: Any) -> Any:
        def write(session: SlaveSession, chunk: Chunk) -> Any:
            session._end = max(session._end, chunk.offset)
            return honest(session, chunk)

        return write

    def writing(honest: Any) -> Any:
        def write(receiver: ReplicaAppender, offset: int, data: bytes) -> Any:
            if offset > receiver._log.end and offset < receiver._log.segment_of(receiver._log.end)[1]:
                receiver._log.end = receiver.end = offset
            return honest(receiver, offset, data)

        return write

    patches.put(ReplicationConnection, "read", losing)
    patches.put(SlaveSession, "_write", taking)
    patches.put(ReplicaAppender, "write", writing)


def trust_equal_length(patches: Patches, _: Cluster) -> None:
    def shorter(*, ours: Any, our_end: int, theirs: Any, their_end: int) -> int:
        return min(our_end, their_end)

    async def equal(stream: ReplicaSender, digests: Any) -> DigestsCompared:
        return DigestsCompared(PhysicalOffset(0), None)

    async def nothing(stream: ReplicaSender) -> None:
        await asyncio.Event().wait()

    patches.put(master_session, "common_end", lambda _: shorter)
    patches.put(ReplicaSender, "_compare", lambda _: equal)
    patches.put(ReplicaSender, "_digest_steps", lambda _: nothing)


def leave_tasks_behind(patches: Patches, _: Cluster) -> None:
    """Whenever a slave dials, tasks of the stream before go on for ever."""
    left: set[asyncio.Task[Any]] = set()  # a loop alone does not keep them

    def make(honest: Any) -> Any:
        async def follow(fetcher: ReplicaFetcher, address: str) -> None:
            left.update(asyncio.get_running_loop().create_task(asyncio.Event().wait()) for _ in range(_LEFT_BEHIND))
            await honest(fetcher, address)

        return follow

    patches.put(ReplicaFetcher, "_follow", make)
