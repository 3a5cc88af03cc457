"""Holds back the retention of every copy while an audit runs."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from dittomq.client.replica_reader import NodeAddress
from dittomq.copies import Pin
from dittomq.doors.workers import Executor
from dittomq.errors import DittoError, SessionExpired

LEASE_S = 120.0
"""So long a copy keeps its old files for an auditor that died; several renewals may fail before it runs out."""
RENEWAL_S = 30.0

R = TypeVar("R")


class PinSource(Protocol):
    """Takes, renews and gives up pins of nodes; ReplicaReader does."""

    async def pin(self, node: NodeAddress, run: str, lease_s: float) -> Pin: ...

    async def renew(self, node: NodeAddress, pin: Pin, lease_s: float) -> None: ...

    async def unpin(self, node: NodeAddress, pin: Pin) -> bool: ...


class Pinning:
    """Pins of one run, on each copy one. `problems` says for each broker group what was not held back and why."""

    def __init__(self, source: PinSource, run: str) -> None:
        self._source = source
        self._run = run
        self._pins: dict[NodeAddress, Pin] = {}
        self.problems: dict[NodeAddress, str] = {}

    async def take(self, nodes: Sequence[NodeAddress]) -> None:
        """Pin all that these copies hold, all at once."""
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._take(node))

    async def during(self, lane: Executor, work: Callable[[], R]) -> R:
        """Do the work on that lane, and renew the pins meanwhile."""
        async with asyncio.TaskGroup() as group:
            working = group.create_task(lane.call(work))
            while not (await asyncio.wait([working], timeout=RENEWAL_S))[0]:
                await self._with_each(self._renew)
        return working.result()

    async def release(self) -> None:
        """Give all pins up; one that had not held until now is a problem."""
        await self._with_each(self._release)

    async def _with_each(self, work: Callable[[NodeAddress, Pin], Coroutine[Any, Any, None]]) -> None:
        async with asyncio.TaskGroup() as group:
            for node, pin in self._pins.items():
                group.create_task(work(node, pin))

    async def _take(self, node: NodeAddress) -> None:
        try:
            self._pins[node] = await self._source.pin(node, self._run, LEASE_S)
        except DittoError as error:
            self.problems[node] = f"{node.name}: its retention was not held back during the run: {error}"

    async def _renew(self, node: NodeAddress, pin: Pin) -> None:
        try:
            await self._source.renew(node, pin, LEASE_S)
        except SessionExpired:
            self._ended(node)
        except DittoError:
            return  # it may answer the next time, and the lease is longer than that

    async def _release(self, node: NodeAddress, pin: Pin) -> None:
        try:
            if not await self._source.unpin(node, pin):
                self._ended(node)
        except DittoError:
            return  # the survey at the end says that it does not answer; the lease ends by itself

    def _ended(self, node: NodeAddress) -> None:
        why = "its lease was over or its disk too full"
        self.problems[node] = f"{node.name}: its retention was not held back until the end of the run: {why}"
