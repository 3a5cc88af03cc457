"""The product's processes, and the three things they are asked for."""

import asyncio
import random
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.copying import Copied, bytes_came, first_segment
from dittomq.client import AsyncClient, Message, Producer
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from dittomq.testing import LocalCluster, Shape

BATCH = 256
TOPIC = "bench"
MASTER, SLAVE = "a/0", "a/1"
BODY_BYTES = 1024
_SEGMENT_BYTES = 1024 * 1024 * 1024  # the product's own default
_LOOK_EVERY_S = 0.005
_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A new slave's catch-up: from the first look that saw it stream, to all flushed and all queues built."""

    size: int
    seconds: float


def cluster_in(folder: Path) -> LocalCluster:
    """A SYNC_MASTER and one slave, both flush before they acknowledge; segments of the default size."""
    settings = {"store.segment_bytes": _SEGMENT_BYTES}
    return LocalCluster(folder, Shape(slaves=1, master_settings=settings, slave_settings=settings, usual_ports=False))


class Product:
    """A client of a running cluster."""

    def __init__(self, cluster: LocalCluster, mq: AsyncClient, producer: Producer) -> None:
        self.cluster = cluster
        self.mq = mq
        self._producer = producer
        body = random.Random(1).randbytes(BODY_BYTES)
        self._batch = [Message(TOPIC, body)] * BATCH

    @property
    def pids(self) -> list[int]:
        """Those of its nodes, which all run."""
        return [self.cluster.pid(node.name) for node in self.cluster.nodes]

    async def publish(self, *, tasks: int, rounds: int, batch: int = BATCH) -> float:
        """`tasks` publish `rounds` batches each, waiting for the receipts of each; the seconds until all queues are built on both."""
        messages = self._batch[:batch]
        return await self._publish(tasks, rounds, lambda: self._producer.publish_many(messages))

    async def publish_singly(self, *, tasks: int, rounds: int) -> float:
        """The same with messages, not batches: each task waits for the receipt of one before it publishes the next."""
        return await self._publish(tasks, rounds, self.publish_one)

    async def _publish(self, tasks: int, rounds: int, publish: Callable[[], Awaitable[object]]) -> float:
        async def one_task() -> None:
            for _ in range(rounds):
                await publish()

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(one_task())
        await self.settle()
        return time.perf_counter() - began

    async def publish_one(self) -> None:
        """Publish one message and wait for its receipt."""
        await self._producer.publish_message(self._batch[0])

    async def call_times(self, calls: int) -> list[float]:
        """Milliseconds of as many messages, one after the other."""
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            await self.publish_one()
            times.append((time.perf_counter() - began) * 1000)
        return times

    async def record_bytes(self) -> int:
        """What one message takes in the log."""
        receipts = await self._producer.publish_many(self._batch[:2])
        return receipts[1].physical_offset - receipts[0].physical_offset

    async def settle(self) -> None:
        """Return when both nodes have flushed, confirmed and queued all of the master's log."""
        async with asyncio.timeout(_TIMEOUT_S):
            while not await self._is_settled():  # noqa: ASYNC110  # what it waits for is in other processes
                await asyncio.sleep(_LOOK_EVERY_S)

    async def settle_after_start(self) -> None:
        """The same while the slave starts, on a new connection: gRPC leaves one that was refused alone for a while."""
        host, port = self._address(SLAVE).split(":")
        async with asyncio.timeout(_TIMEOUT_S):
            while not await _accepts(host, int(port)):  # noqa: ASYNC110  # as above
                await asyncio.sleep(_LOOK_EVERY_S)
        async with AsyncClient(self.cluster.nameserver) as mq:
            await Product(self.cluster, mq, self._producer).settle()

    async def catch_up(self) -> CaughtUp:
        """Empty the slave and start it anew.

        The time begins before the look that first saw it stream, and what it held at that look does not count: never too short a time.
        A look that fails proves nothing, the connection to a node that has just started may be in a pause. A log so small that the
        first look finds all of it is counted whole, from the start of the process on.
        """
        cluster = self.cluster
        cluster.stop_node(SLAVE)
        shutil.rmtree(cluster.data_dir(SLAVE))
        started = time.perf_counter()
        cluster.start_node(SLAVE)
        async with asyncio.timeout(_TIMEOUT_S):
            began, first = time.perf_counter(), None
            while first is None:
                await asyncio.sleep(_LOOK_EVERY_S)
                began = time.perf_counter()
                first = await self._status(SLAVE, streams=True)
            await self.settle()
            ended = time.perf_counter()
            master = await self.mq.admin.ha_status(self._address(MASTER))
            if first.end == master.end:
                return CaughtUp(master.end, ended - started)
            return CaughtUp(master.end - first.end, ended - began)

    async def fill(self, size: int) -> None:
        """Let the log hold at least that many bytes."""
        missing = size - (await self.mq.admin.ha_status(self._address(MASTER))).end
        if missing > 0:
            await self.publish(tasks=8, rounds=-(-missing // (8 * BATCH * await self.record_bytes())))

    async def write(self, size: int) -> None:
        """Publish about that many bytes; the slave may be away."""
        for _ in range(max(1, size // (BATCH * BODY_BYTES))):
            await self._producer.publish_many(self._batch)

    async def publish_paced(self, tasks: int, rounds: int, period_s: float) -> float:
        """Messages a second of `tasks` that publish `rounds` batches each, one batch every `period_s` at most, until the last receipt."""
        began = time.perf_counter()

        async def one_task() -> None:
            for number in range(rounds):
                await asyncio.sleep(max(0.0, began + number * period_s - time.perf_counter()))
                await self._producer.publish_many(self._batch)

        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(one_task())
        return tasks * rounds * BATCH / (time.perf_counter() - began)

    async def lead(self, node: str) -> None:
        """Let that slave take its master's place, as planned; all copies are in sync again when this returns."""
        await self.mq.admin.switchover(node)
        async with asyncio.timeout(_TIMEOUT_S):
            while not await self._leads(node):  # noqa: ASYNC110  # what it waits for is in other processes
                await asyncio.sleep(_LOOK_EVERY_S)

    async def longest_pause(self, tasks: int, batch: int, meanwhile: Awaitable[None]) -> float:
        """Seconds of the longest time between two receipts of any of `tasks`, which publish all the time until `meanwhile` is over."""
        messages, pauses, over = self._batch[:batch], [0.0], asyncio.Event()

        async def one_task() -> None:
            last = time.perf_counter()
            while not over.is_set():
                await self._producer.publish_many(messages)
                last, before = time.perf_counter(), last
                pauses.append(last - before)

        async with asyncio.TaskGroup() as group:
            for _ in range(tasks):
                group.create_task(one_task())
            await meanwhile
            over.set()
        return max(pauses)

    async def dropped(self) -> None:
        """Return when the master has given its slave up."""
        async with asyncio.timeout(_TIMEOUT_S):
            while any(node.state in ("in sync", "catching up") for node in (await self._master()).nodes[1:]):  # noqa: ASYNC110  # as above
                await asyncio.sleep(_LOOK_EVERY_S)

    async def _leads(self, node: str) -> bool:
        status = await self._status(node)
        return status is not None and status.writable and status.in_sync_now == len(self.cluster.nodes) - 1

    async def _master(self) -> HaStatus:
        return await self.mq.admin.ha_status(self._address(MASTER))

    async def copy(self) -> Copied:
        """Empty the slave and start it anew: all is flushed and its queues are built at the end."""
        cluster = self.cluster
        cluster.stop_node(SLAVE)
        shutil.rmtree(cluster.data_dir(SLAVE))
        size = (await self.mq.admin.ha_status(self._address(MASTER))).end
        started = time.perf_counter()
        cluster.start_node(SLAVE)
        first = await bytes_came(first_segment(cluster.data_dir(SLAVE)), 0, 64, _TIMEOUT_S)
        await self.settle()
        return Copied(size, first - started, time.perf_counter() - first)

    async def _is_settled(self) -> bool:
        master, slave = await self._status(MASTER), await self._status(SLAVE, streams=True)
        if master is None or slave is None:
            return False
        applied = (master.nodes[0].applied, slave.nodes[0].applied)
        return {master.flushed, master.confirmed, slave.end, slave.flushed, slave.confirmed, *applied} == {master.end}

    async def _status(self, node: str, *, streams: bool = False) -> HaStatus | None:
        """None while it cannot tell, or does not stream yet."""
        try:
            status = await self.mq.admin.ha_status(self._address(node))
        except DittoError:
            return None
        return status if not streams or (status.nodes[0].state == "following" and status.epoch > 0) else None

    def _address(self, node: str) -> str:
        return self.cluster.node(node).address


async def _accepts(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True


@asynccontextmanager
async def product_of(cluster: LocalCluster) -> AsyncIterator[Product]:
    """Connected, with its topic made, until left."""
    async with AsyncClient(cluster.nameserver) as mq:
        await mq.admin.create_topic(TOPIC, 8)
        async with mq.producer() as producer:
            product = Product(cluster, mq, producer)
            if not (await mq.admin.ha_status(cluster.node(MASTER).address)).writable:  # another node was ready first
                await product.lead(MASTER)
            yield product
