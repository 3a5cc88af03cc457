"""A broker group whose nodes start with large tables, and what its processes use and hold."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import grpc.aio

from bench.machine import processor_s
from dittomq._pb.ditto.metadata.v1 import metadata_pb2 as pb
from dittomq._pb.ditto.metadata.v1.metadata_pb2_grpc import MetadataServiceStub
from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.metadata.formats import TableKind
from dittomq.routes import DataVersion
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.state import NAMESERVER
from dittomq.wire import metadata as wire

MASTER, SLAVE = "a/0", "a/1"
_LOOK_EVERY_S = 0.02
_FOLLOWS_S = 60.0
_DEADLINE_S = 30.0


@contextmanager
def started_with(folder: Path, slaves: int, files: list[tuple[TableKind[Any], bytes]]) -> Iterator[LocalCluster]:
    """A running group, all of whose nodes began with these tables."""
    with LocalCluster(folder, Shape(slaves=slaves, usual_ports=False)) as cluster:
        cluster.stop()
        for name in [node.name for node in cluster.nodes if node.name != NAMESERVER]:
            kept = ConfigFiles(OsStorage(cluster.data_dir(name)), name)
            deque(chain.from_iterable(kept.save_bytes(kind, data) for kind, data in files), maxlen=0)
        cluster.start()
        cluster.wait_in_sync()
        yield cluster


def leader_first(cluster: LocalCluster) -> list[str]:
    """The broker nodes: the master, then its slave."""
    roles = cluster.roles()
    return sorted((name for name in roles if name != NAMESERVER), key=lambda name: roles[name] != "master")


class NodeTables:
    """The tables of one node, asked for as a slave asks."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = MetadataServiceStub(channel)

    async def version(self, kind: TableKind[Any]) -> DataVersion:
        """That of the table."""
        async for answer in self._stub.WatchVersions(pb.WatchVersionsRequest(max_responses=1), timeout=_DEADLINE_S):
            return wire.versions(answer)[kind.name]
        raise RuntimeError("the node tells no versions")

    async def behind(self, known: DataVersion) -> int:
        """Bytes of the master's answer to a slave that holds that version of the offsets."""
        request = pb.GetAllConsumerOffsetRequest(known_version=wire.version_to_pb(known), takes_changes=True, page_size=10_000)
        answer: pb.GetAllConsumerOffsetResponse = await self._stub.GetAllConsumerOffset(request, timeout=_DEADLINE_S)
        assert answer.is_delta, "one commit behind, what has changed is enough"
        return answer.ByteSize()


@asynccontextmanager
async def tables_of(cluster: LocalCluster, name: str) -> AsyncIterator[NodeTables]:
    """Connected to that node."""
    async with grpc.aio.insecure_channel(cluster.node(name).address) as channel:
        await channel.channel_ready()
        yield NodeTables(channel)


async def followed(master: NodeTables, slave: NodeTables, kind: TableKind[Any]) -> float:
    """Seconds until the slave has the master's version, or a later one."""
    began, wanted = time.perf_counter(), await master.version(kind)
    async with asyncio.timeout(_FOLLOWS_S):
        while wanted.is_newer_than(await slave.version(kind)):  # noqa: ASYNC110  # what it waits for is in another process
            await asyncio.sleep(_LOOK_EVERY_S)
    return time.perf_counter() - began


async def used_by(pids: list[int], work: Callable[[], Awaitable[object]], idle_s: float) -> list[float]:
    """Seconds of processor time of each process during the work, without what it uses in as long a time at rest."""
    before = [processor_s(pid) for pid in pids]
    await asyncio.sleep(idle_s)
    idle = [(processor_s(pid) - each) / idle_s for pid, each in zip(pids, before, strict=True)]
    before, began = [processor_s(pid) for pid in pids], time.perf_counter()
    await work()
    took = time.perf_counter() - began
    return [processor_s(pid) - each - rest * took for pid, each, rest in zip(pids, before, idle, strict=True)]
