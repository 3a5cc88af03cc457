"""How a copy that was away, or differs, or is new comes back, and what an attached one costs its master."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from bench.peers import postgres, redis, rocketmq
from bench.product import BATCH, BODY_BYTES, SLAVE, TOPIC, Product, product_of
from bench.ratios import Figure
from bench.replication.pairs import PairBench, alternate, rest, up
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.message import Draft
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.configs import SEGMENT_BYTES
from dittomq.testing.state import Settings

_MIB = 1 << 20
_CALLERS = 8
_SHORT_SILENCE: Settings = {"replication.heartbeat_ms": 500, "replication.leave_ms": 800, "failover.peer_timeout_ms": 1_000}


async def new_slave(bench: PairBench) -> list[Figure]:
    """An empty slave, and a new one of RocketMQ: when it has its first byte, and how fast the others come."""
    async with up(rocketmq.rocketmq_in(bench.folder / "rocketmq")) as peer:
        await bench.product.fill(bench.sizes.copied)
        await asyncio.to_thread(peer.fill, bench.sizes.copied * 3 // 4)
        found = await alternate(bench, "new slave, RocketMQ", bench.product.copy, peer.copy, peer=peer)
    mine, theirs = ([each.size / _MIB / each.seconds for each in side] for side in zip(*found, strict=True))
    return [
        Figure(f"new slave, from its first byte to its last, {rocketmq.SHORT}", "MiB/s", mine, theirs, at_least=1.0),
        Figure("new slave, from its start to its first byte", "s", [each.first_byte_s for each, _ in found], at_most=1.0),
        Figure(f"  the same, {rocketmq.SHORT}", "s", [each.first_byte_s for _, each in found]),
    ]


async def gap(bench: PairBench) -> list[Figure]:
    """A slave that was stopped and cut off while 44 MiB were written: from its waking to the last byte flushed."""
    async with _group(bench, "gap", _SHORT_SILENCE) as product, up(redis.redis_in(bench.folder / "redis")) as peer:
        own, size = replace(bench, product=product), bench.sizes.gap
        found = await alternate(own, "gap, Redis", lambda: _resume(product, size), lambda: peer.resume_s(size), peer=peer)
    ours, theirs = zip(*found, strict=True)
    return [Figure(f"a gap of {bench.sizes.gap / _MIB:.0f} MiB, {redis.NAME}", "s", ours, theirs, at_most=3.0)]


async def divergence(bench: PairBench) -> list[Figure]:
    """A slave of the same length whose last 2 MiB are others: from its open store to the last byte repaired and flushed.

    Neither side's time has the start of the server in it; the slave's is told once more with that.
    """
    size = bench.sizes.diverged

    def rewind() -> float:
        with postgres.postgres_in(bench.folder / "rewound") as pair:
            return pair.rewind_s(size // 1024)

    async with _group(bench, "divergence", {}) as product:
        own = replace(bench, product=product)
        found = await alternate(own, "divergence, pg_rewind", lambda: _repair(product, size), rewind, peer=None)
    ours, theirs = zip(*found, strict=True)
    name = f"a divergence of {size / _MIB:g} MiB, pg_rewind, without the start of a server"
    return [
        Figure(name, "s", [each.from_open_s for each in ours], theirs, at_most=0.5),
        Figure("  the same, with the start of the slave's process", "s", [each.from_start_s for each in ours], theirs),
    ]


async def half_load(bench: PairBench) -> list[Figure]:
    """An ASYNC_MASTER that is offered half of what it can take, with its slave and without."""
    async with _group(bench, "half-load", {}) as product:
        rounds = max(1, bench.sizes.messages // (_CALLERS * BATCH))
        product.cluster.stop_node(SLAVE)
        await product.publish_paced(_CALLERS, rounds, 0.0)
        full = await product.publish_paced(_CALLERS, rounds, 0.0)
        period_s = 2 * _CALLERS * BATCH / full
        with_slave, without = [], []
        for _ in range(bench.sizes.pairs):
            without.append(await product.publish_paced(_CALLERS, rounds, period_s) / 1000)
            product.cluster.start_node(SLAVE)
            await product.settle()
            await rest()
            with_slave.append(await product.publish_paced(_CALLERS, rounds, period_s) / 1000)
            product.cluster.stop_node(SLAVE)
            bench.step("half load")
    return [Figure("half load, with an async slave against without", "k msg/s", with_slave, without, at_least=0.95)]


@asynccontextmanager
async def _group(bench: PairBench, name: str, settings: Settings) -> AsyncIterator[Product]:
    """A group of its own: an ASYNC_MASTER, which goes on while its slave is away, and one slave."""
    shape = Shape(slaves=1, mode="ASYNC_MASTER", master_settings=settings, usual_ports=False)
    async with up(LocalCluster(bench.folder / name, shape)) as cluster, product_of(cluster) as product:
        yield product


async def _resume(product: Product, size: int) -> float:
    await product.publish(tasks=1, rounds=1)
    process = product.cluster.pid(SLAVE)
    os.kill(process, signal.SIGSTOP)
    try:
        await product.dropped()
        await product.write(size)
        began = time.perf_counter()
    finally:
        os.kill(process, signal.SIGCONT)
    await product.settle()
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class _Repaired:
    """How long it took from the start of the slave's process, and from when that said that its store is open."""

    from_start_s: float
    from_open_s: float


async def _repair(product: Product, size: int) -> _Repaired:
    """Write bytes behind the slave's end that its master never had, and as many others to the master."""
    cluster = product.cluster
    record = await product.record_bytes()
    await product.settle()
    cluster.stop_node(SLAVE)
    await asyncio.to_thread(_write_behind, cluster, size // record)
    await product.write(size)
    began = time.time()
    cluster.start_node(SLAVE)
    await product.settle_after_start()
    ended = time.time()
    return _Repaired(ended - began, ended - _opened_at(cluster.log_file(SLAVE)))


def _opened_at(log: Path) -> float:
    """When the node opened its store last, in seconds since 1970, as its log says."""
    lines = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    said = [line["timestamp"] for line in lines if line.get("event") == "store_opened"]
    return datetime.fromisoformat(said[-1]).timestamp()


def _write_behind(cluster: LocalCluster, messages: int) -> None:
    """What a store holds that wrote on by itself, in the epoch that it had: the master must find the difference by content."""
    chance = random.Random(2)
    options = StoreOptions(segment_bytes=SEGMENT_BYTES)
    now_ms = time.time_ns() // 1_000_000
    store = Store.open(OsStorage(cluster.data_dir(SLAVE)), options, chance=chance, wall_ms=now_ms)
    for _ in range(max(1, messages // BATCH)):
        drafts = [Draft(TOPIC, 0, 0, now_ms, chance.randbytes(BODY_BYTES), b"", 0) for _ in range(BATCH)]
        store.append([AppendBatch(drafts)], now_ms)
    store.close(clean=True)
