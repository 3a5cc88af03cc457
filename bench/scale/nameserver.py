"""One nameserver with 1,000 broker groups that hold 10,000 topics each, beside one with a single topic, in the same run by turns.

A route is asked for of a topic that one group holds, and of one that all groups hold; then the other nameserver has as many groups.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from bench.machine import processor_s, resident_bytes
from bench.ratios import Figure, percentile
from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1.naming_pb2_grpc import NameServerServiceStub
from dittomq.offsets import Epoch
from dittomq.routes import BrokerState, ChangedTopics, DataVersion, HeartbeatRequest, Registration, Role, TopicQueues
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.state import NAMESERVER
from dittomq.wire import naming as wire

ALONE = "alone"
_MIB = 1024 * 1024
_FIRST, _SECOND = DataVersion(1, 1_000, 1), DataVersion(1, 2_000, 2)
_SETTINGS = {"registry.broker_expiry_ms": 3_600_000}
_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class NameserverSizes:
    """Groups and topics of each; pairs of runs; routes in a run, of one group and of all groups; calls of each other kind."""

    groups: int = 1_000
    topics: int = 10_000
    pairs: int = 7
    narrow: int = 2_000
    wide: int = 60
    calls: int = 1_000


_QUICK = NameserverSizes(groups=5, topics=20, pairs=1, narrow=20, wide=5, calls=20)


class _NameserverProcess:
    """A nameserver process, and a connection to it."""

    def __init__(self, cluster: LocalCluster, channel: grpc.aio.Channel) -> None:
        self.pid = cluster.pid(NAMESERVER)
        self.sessions: list[str] = []
        self._cluster = cluster.settled().cluster
        self.stub: NameServerServiceStub = NameServerServiceStub(channel)

    async def register(self, group: int, topics: bytes) -> str:
        """The session of that group's master; `topics` are the field's bytes, encoded once for all."""
        request = pb.RegisterBrokerRequest.FromString(wire.registration_request(self._registration(group)).SerializeToString() + topics)
        answer: pb.RegisterBrokerResponse = await self.stub.RegisterBroker(request, timeout=_DEADLINE_S)
        return answer.session_id

    async def fill(self, groups: int, topics: bytes, alone: bytes) -> None:
        """Register so many groups, one after the other; the first has a topic more."""
        self.sessions = [await self.register(group, topics + (b"" if group else alone)) for group in range(groups)]

    async def route_ms(self, topic: str, calls: int) -> list[float]:
        """Milliseconds of as many calls, one after the other."""
        times, request = [], pb.GetRouteRequest(topic=topic)
        for _ in range(calls):
            began = time.perf_counter()
            await self.stub.GetRoute(request, timeout=_DEADLINE_S)
            times.append((time.perf_counter() - began) * 1_000)
        return times

    async def beat(self, number: int, changes: ChangedTopics, version: DataVersion) -> None:
        """A heartbeat of one of the groups."""
        session = self.sessions[number % len(self.sessions)]
        beat = HeartbeatRequest(session, version, Epoch(1), BrokerState.SERVING, changes)
        answer: pb.HeartbeatResponse = await self.stub.Heartbeat(wire.beat_request(beat), timeout=_DEADLINE_S)
        assert not answer.must_reregister, "the nameserver knows that version"

    def _registration(self, group: int) -> Registration:
        host = f"10.0.{group // 256}.{group % 256}"
        return Registration(
            cluster=self._cluster,
            broker=f"group-{group:04d}",
            broker_id=0,
            replica_uuid=f"{group:032x}",
            epoch=Epoch(1),
            role=Role.SYNC_MASTER,
            state=BrokerState.SERVING,
            addresses={"default": f"{host}:10911"},
            replication_addresses={"default": f"{host}:10912"},
            permission=6,
            topics=(),
            data_version=_FIRST,
            registration_period_ms=10_000,
        )


def measure(folder: Path, quick: bool) -> list[Figure]:
    """Routes are in milliseconds of the caller, calls of nodes in milliseconds of the nameserver's processor time."""
    return asyncio.run(_measured(folder, _QUICK if quick else NameserverSizes()))


async def _measured(folder: Path, sizes: NameserverSizes) -> list[Figure]:
    names = [f"topic-{number:05d}" for number in range(sizes.topics)]
    many, one, alone = (_encoded(each) for each in (names, names[:1], [ALONE]))
    async with _started(folder / "large") as large, _started(folder / "narrow") as narrow, _started(folder / "wide") as wide:
        before = resident_bytes(large.pid)
        began, used = time.perf_counter(), processor_s(large.pid)
        await large.fill(sizes.groups, many, alone)
        took, used = time.perf_counter() - began, processor_s(large.pid) - used
        await narrow.fill(1, b"", alone)
        await wide.fill(sizes.groups, one, b"")
        memory = (resident_bytes(large.pid) - before) / _MIB
        figures = await _routes("a route of one group", ALONE, (large, narrow), (sizes.pairs, sizes.narrow))
        figures += await _routes(f"a route of {sizes.groups:,} groups", names[0], (large, wide), (sizes.pairs, sizes.wide))
        where = f"{sizes.groups:,} groups with {sizes.topics:,} topics each"
        return [
            *figures,
            Figure(f"{where}: memory of the nameserver", "MiB", [memory]),
            Figure(f"{where}: all of them registered, one after the other", "s", [took]),
            Figure("a registration of all topics, processor time", "ms", [used / sizes.groups * 1_000]),
            *await _calls_of_nodes(sizes, large, many),
        ]


async def _routes(name: str, topic: str, pair: tuple[_NameserverProcess, _NameserverProcess], runs: tuple[int, int]) -> list[Figure]:
    pairs, calls = runs
    times = [[await each.route_ms(topic, calls) for each in pair] for _ in range(pairs + 1)][1:]

    def figure(percent: int, goal: float | None) -> Figure:
        ours, floor = ([percentile(run[side], percent) for run in times] for side in (0, 1))
        return Figure(f"{name}, floor in a one-topic registry, p{percent}", "ms", ours, floor, at_most=goal)

    return [figure(50, None), figure(99, 2.0)]


async def _calls_of_nodes(sizes: NameserverSizes, large: _NameserverProcess, many: bytes) -> list[Figure]:
    """What the nameserver spends on a heartbeat, on one that brings a changed topic, and on a registration of all topics again."""

    nothing = ChangedTopics(_FIRST, (), ())
    used = processor_s(large.pid)
    for number in range(sizes.calls):
        await large.beat(number, nothing, _FIRST)
    unchanged = (processor_s(large.pid) - used) / sizes.calls * 1_000

    used, versions = processor_s(large.pid), [_FIRST, _SECOND]
    for number in range(sizes.calls):
        before, after = versions[number // len(large.sessions) % 2], versions[(number // len(large.sessions) + 1) % 2]
        await large.beat(number, ChangedTopics(before, (TopicQueues("one-more", 8, 8, 6),), ()), after)
    changed = (processor_s(large.pid) - used) / sizes.calls * 1_000

    again = max(1, sizes.calls // 10)
    used = processor_s(large.pid)
    for number in range(again):
        await large.register(number % sizes.groups, many)
    whole = (processor_s(large.pid) - used) / again * 1_000
    return [
        Figure("a heartbeat of a node whose topics are unchanged, processor time", "ms", [unchanged]),
        Figure("a heartbeat with one changed topic, processor time", "ms", [changed]),
        Figure("a registration of all topics again, processor time", "ms", [whole]),
    ]


def _encoded(names: list[str]) -> bytes:
    """These topics as a field of a registration: what lies behind each other in a message is one message."""
    request = pb.RegisterBrokerRequest()
    for name in names:
        request.topics.add(topic=name, read_queues=8, write_queues=8, permission=6)
    return request.SerializeToString()


@contextlib.asynccontextmanager
async def _started(folder: Path) -> AsyncIterator[_NameserverProcess]:
    with LocalCluster(folder, Shape(slaves=0, brokers=(), nameserver_settings=_SETTINGS, usual_ports=False)) as cluster:
        async with grpc.aio.insecure_channel(cluster.nameserver, options=[("grpc.max_receive_message_length", 64 * _MIB)]) as channel:
            await channel.channel_ready()
            yield _NameserverProcess(cluster, channel)
