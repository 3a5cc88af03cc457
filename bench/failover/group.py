"""The broker group that a scenario works on: who leads, when all replicas are equal, and whether all that was told is there."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.failover.load import ProducerLoad
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from dittomq.testing import LocalCluster
from dittomq.testing.processes import send
from tests.support.event_log import Place, Told, wrong_epochs, wrong_reads

TOPIC = "bench"
QUEUES = 8
SETTLES_S = 120.0
_LOOK_EVERY_S = 0.02
_PAGE_MESSAGES = 4096
_PAGE_BYTES = 4 * 1024 * 1024
_MOST_PROBLEMS = 3

T = TypeVar("T")

Read = dict[int, list[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True)
class LogCheck:
    """What the log says of a run: lost, there twice, or wrong in another way."""

    lost: int
    twice: int
    wrong: tuple[str, ...]


@dataclass(slots=True)
class MeasuredGroup:
    """A running cluster with one group, and a client. `begins`: where the run begins in each queue. `suspended`: nodes not to be asked."""

    cluster: LocalCluster
    mq: AsyncClient
    begins: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(QUEUES), 0))
    suspended: set[str] = field(default_factory=set)

    @property
    def names(self) -> list[str]:
        """The brokers."""
        return [node.name for node in self.cluster.nodes if node.role != "nameserver"]

    async def status(self, name: str) -> HaStatus | None:
        """What a node says; None while it cannot."""
        try:
            return await self.mq.admin.ha_status(self.cluster.node(name).address)
        except DittoError:
            return None

    async def master(self, *, but: Collection[str] = ()) -> str:
        """The node that takes writes, as soon as one does."""

        async def found() -> str:
            for name in self.names:
                if name not in self.suspended and name not in but and self.cluster.is_alive(name):
                    status = await self.status(name)
                    if status is not None and status.writable:
                        return name
            return ""

        return await until(found, "a node takes writes")

    async def epoch(self) -> int:
        """Of the master."""
        status = await self.status(await self.master())
        return 0 if status is None else status.epoch

    async def follows(self, name: str) -> None:
        """Return when the master says that this node is in sync."""

        async def is_in_sync() -> bool:
            status = await self.status(await self.master(but=(name,)))
            return status is not None and any(view.node == name and view.state == "in sync" for view in status.nodes)

        await until(is_in_sync, f"{name} follows in sync")

    async def whole(self) -> None:
        """Return when the master takes writes and every node is a member in sync."""

        async def is_whole() -> bool:
            status = await self.status(await self.master())
            in_sync = 0 if status is None else sum(view.state in ("leading", "in sync") for view in status.nodes)
            return status is not None and in_sync == len(self.names) == len(status.members)

        await until(is_whole, "every node is a member in sync")

    async def equal(self) -> None:
        """Return when all nodes end at the same confirmed offset, and their queues too."""

        async def are_equal() -> bool:
            ends: set[int | None] = set()
            for name in self.names:
                status = await self.status(name)
                if status is None:
                    return False
                ends |= {status.end, status.flushed, status.confirmed, status.nodes[0].applied}
            return len(ends) == 1

        await until(are_equal, "all nodes end at the same confirmed offset")

    def suspend(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)
        self.suspended.add(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._signal(name, signal.SIGCONT)
        self.suspended.discard(name)

    def _signal(self, name: str, number: signal.Signals) -> None:
        process = self.cluster.node(name).process
        assert process is not None, f"{name} runs"
        send(process, number)

    @asynccontextmanager
    async def load(self) -> AsyncIterator[ProducerLoad]:
        """Eight producers, until the block ends and all outcomes are known."""
        async with ProducerLoad(self.mq, TOPIC).running() as load:
            yield load

    async def check(self, told: Told) -> LogCheck:
        """Read back all of the run on every node, and hold it against what was told; the next run begins behind it."""
        await self.whole()
        await self.equal()
        reads = {name: await self._read(name) for name in self.names}
        lost, twice, wrong = 0, 0, list(itertools.islice(wrong_epochs(told), _MOST_PROBLEMS))
        for name, read in reads.items():
            node_lost, node_twice = _lost_and_twice(told, read)
            lost, twice = max(lost, node_lost), max(twice, node_twice)
            wrong += [f"{name}: {_short(problem)}" for problem in _some(wrong_reads(told, read, self.begins))]
        for queue, messages in next(iter(reads.values())).items():
            self.begins[queue] += len(messages)
        return LogCheck(lost, twice, tuple(wrong))

    async def _read(self, name: str) -> Read:
        return {queue: [each async for each in self._read_queue(name, queue)] for queue in range(QUEUES)}

    async def _read_queue(self, name: str, queue: int) -> AsyncIterator[tuple[int, bytes]]:
        reader = self.mq.reader(TOPIC, queue, node=name, max_messages=_PAGE_MESSAGES, max_bytes=_PAGE_BYTES)
        offset = self.begins[queue]
        while True:
            page = await reader.pull(offset)
            for message in page.messages:
                yield message.queue_offset, message.body
            if page.next_offset == offset:
                return
            offset = page.next_offset


@asynccontextmanager
async def group_of(cluster: LocalCluster) -> AsyncIterator[MeasuredGroup]:
    """A started cluster's, with its topic."""
    async with AsyncClient(cluster.nameserver) as mq:
        await mq.admin.create_topic(TOPIC, QUEUES)
        yield MeasuredGroup(cluster, mq)


async def until(look: Callable[[], Coroutine[Any, Any, T]], what: str, within_s: float = SETTLES_S) -> T:
    """What `look` returns once that is truthy. Raises TimeoutError with `what`."""
    try:
        async with asyncio.timeout(within_s):
            while not (found := await look()):  # noqa: ASYNC110  # what it waits for is in other processes
                await asyncio.sleep(_LOOK_EVERY_S)
            return found
    except TimeoutError:
        raise TimeoutError(f"after {within_s:g} s still not: {what}") from None


def _lost_and_twice(told: Told, read: Read) -> tuple[int, int]:
    counted: dict[bytes, int] = {}
    for messages in read.values():
        for _, body in messages:
            counted[body] = counted.get(body, 0) + 1
    acknowledged = [body for body, outcome in told.outcomes.items() if isinstance(outcome, Place)]
    return sum(body not in counted for body in acknowledged), sum(count > 1 for count in counted.values())


def _some(problems: Iterator[str]) -> list[str]:
    return list(itertools.islice(problems, _MOST_PROBLEMS))


def _short(problem: str) -> str:
    return problem if len(problem) < 400 else f"{problem[:200]} … {problem[-180:]}"
