"""Reading: one reader of one queue, and what pulls cost a master while they wait; both beside gRPC alone."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc.aio

from bench.clients.bare import HOLD, READ, bare_server, unchanged, write_frames
from bench.peers.running import standing_still
from bench.product import BATCH, BODY_BYTES, MASTER
from bench.ratios import Figure
from bench.replication.pairs import PairBench, rate, rest
from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client import AsyncClient, Message
from dittomq.rpc.channel import CHANNEL_OPTIONS
from dittomq.testing import LocalCluster, Shape

_TOPIC = "bench-read"
_HELD = 5_000
_FEW = 100  # so many calls at first, on both sides: connections, threads and code are there then
_WINDOW_S = 5.0
_STILL_S = 2.0
_TAKES_THEM_S = 15.0
_WAIT_S = 60
_MIB = 1 << 20
_SERVICE = "ditto.messaging.v1.MessagingService"
_METHODS = {"Pull": "pulls", "PullStream": "streams of pulls"}


async def reader_beside_bare(bench: PairBench) -> list[Figure]:
    """Every message of a queue of 1 KiB messages by a reader, 256 in each page, and the same pages by a stream of nothing but gRPC.

    Its frames are decoded by the generated code, and each body is looked at.
    """
    mq, master = bench.product.mq, bench.product.cluster.node(MASTER).address
    await mq.admin.create_topic(_TOPIC, 1)
    body, count = os.urandom(BODY_BYTES), max(BATCH, bench.sizes.messages // BATCH * BATCH)
    async with mq.producer() as producer:
        for _ in range(0, count, BATCH):
            await producer.publish_many([Message(_TOPIC, body)] * BATCH)
    await bench.product.settle()
    write_frames(bench.folder / "frames", await _frames(master))

    async def ours() -> float:
        began, size = time.perf_counter(), 0
        async for message in mq.reader(_TOPIC, 0, max_messages=BATCH, max_bytes=_MIB).messages(until_end=True):
            size += len(message.body)
        assert size == count * BODY_BYTES, "it reads all"
        return count / (time.perf_counter() - began)

    with bare_server(bench.folder / "frames") as (address, pid):
        async with grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS)) as channel:
            await channel.channel_ready()
            pairs = [await _pair(bench, ours, lambda: _bare(channel, count), pid) for _ in range(bench.sizes.pairs + 1)]
    return [rate("one reader of one queue, a stream of the same frames by gRPC alone", pairs[1:], 0.5)]


async def _pair(
    bench: PairBench, ours: Callable[[], Awaitable[float]], theirs: Callable[[], Awaitable[float]], pid: int
) -> tuple[float, float]:
    with standing_still([pid]):
        mine = await ours()
    await rest()
    with standing_still(bench.product.pids):
        other = await theirs()
    await rest()
    bench.step("reader")
    return mine, other


async def _frames(master: str) -> list[bytes]:
    """Every page of the queue, as a pull brings it."""
    async with grpc.aio.insecure_channel(master, options=list(CHANNEL_OPTIONS)) as channel:
        pull: Any = channel.unary_unary(f"/{_SERVICE}/Pull", pb.PullRequest.SerializeToString, unchanged)
        frames, at = list[bytes](), 0
        while True:
            frame = await pull(pb.PullRequest(topic=_TOPIC, queue=0, offset=at, max_messages=BATCH, max_bytes=_MIB))
            page = pb.PullResponse.FromString(frame)
            if page.next_offset == at:
                return frames
            at = page.next_offset
            frames.append(frame)


async def _bare(channel: grpc.aio.Channel, count: int) -> float:
    read: Any = channel.unary_stream(READ, unchanged, pb.PullResponse.FromString)
    began, size = time.perf_counter(), 0
    async for page in read(b""):
        for message in page.messages:
            size += len(message.body)
    assert size == count * BODY_BYTES, "it brings all"
    return count / (time.perf_counter() - began)


async def held_pulls(bench: PairBench) -> list[Figure]:
    """5,000 pulls, and 5,000 streams of them, that wait at a master without messages: its memory and its processor time, beside as many
    calls that gRPC alone holds. Each side is a process of its own, because memory that was used once stays with it.
    """
    kib: dict[str, list[float]] = {method: [] for method in _METHODS}
    busy: dict[str, list[float]] = {method: [] for method in _METHODS}
    write_frames(bench.folder / "frames", [])
    takes_s = min(_TAKES_THEM_S, 4.0 * bench.sizes.pairs)
    with standing_still(bench.product.pids):
        for number in range(min(2, bench.sizes.pairs)):
            with bare_server(bench.folder / "frames") as (address, pid):
                bare_kib, _ = await _held(address, pid, _hold_nothing, takes_s)
            for method in _METHODS:
                mine, busy_ms = await _held_by_master(bench.folder / f"{method}-{number}", method, takes_s)
                kib[method].append(mine - bare_kib)
                busy[method].append(busy_ms)
        bench.step("held")
    return [
        figure
        for method, what in _METHODS.items()
        for figure in (
            Figure(f"5,000 held {what}: memory of each beyond a call of gRPC", "KiB", kib[method], at_most=4.0),
            Figure(f"5,000 held {what}: processor time beyond that of an idle master", "ms/s", busy[method], at_most=5.0),
        )
    ]


async def _held_by_master(folder: Path, method: str, takes_s: float) -> tuple[float, float]:
    with LocalCluster(folder, Shape(slaves=0, mode="ASYNC_MASTER", usual_ports=False)) as cluster:
        async with AsyncClient(cluster.nameserver) as mq:
            await mq.admin.create_topic(_TOPIC, 1)

        def hold(channel: grpc.aio.Channel) -> Any:
            stub: Any = MessagingServiceStub(channel)
            kind: Any = pb.PullRequest if method == "Pull" else pb.PullStreamRequest
            return getattr(stub, method)(kind(topic=_TOPIC, queue=0, offset=0, wait={"seconds": _WAIT_S}), timeout=_WAIT_S * 2)

        return await _held(cluster.node(MASTER).address, cluster.pid(MASTER), hold, takes_s)


def _hold_nothing(channel: grpc.aio.Channel) -> Any:
    hold: Any = channel.unary_unary(HOLD, unchanged, unchanged)
    return hold(b"", timeout=_WAIT_S * 2)


async def _held(address: str, pid: int, hold: Callable[[grpc.aio.Channel], Any], takes_s: float) -> tuple[float, float]:
    """KiB of each of 5,000 calls, and the ms of processor time in a second that the process takes more while it holds them."""
    async with grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS)) as channel:
        await channel.channel_ready()
        calls = [hold(channel) for _ in range(_FEW)]
        await asyncio.sleep(_STILL_S)
        idle_ms, before = await _busy_ms(pid), _resident_kib(pid)
        calls += [hold(channel) for _ in range(_HELD)]
        await asyncio.sleep(takes_s)
        held_ms, after = await _busy_ms(pid), _resident_kib(pid)
        assert not any(call.done() for call in calls), "all are held"
        for call in calls:
            call.cancel()
    return (after - before) / _HELD, held_ms - idle_ms


async def _busy_ms(pid: int) -> float:
    """Of each second of some."""
    before, began = _processor_s(pid), time.perf_counter()
    await asyncio.sleep(_WINDOW_S)
    return (_processor_s(pid) - before) * 1_000 / (time.perf_counter() - began)


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmRSS:")[2].split()[0])
