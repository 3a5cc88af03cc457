"""What every node of a cluster says of replication, kept up to date: nodes come and go, and are asked again."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from dittomq.client.admin import Admin
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.errors import DittoError, Unavailable
from dittomq.ha_status import HaStatus
from dittomq.routes import Node
from dittomq.rpc.channel import CLIENT_LEFT

_NODES_S: Final = 5.0
_NODES_RETRY_S: Final = 0.5
_LONGEST_BACKOFF_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Nodes as nameservers list them, and by node name what each said last, or why it says nothing.

    `problem` says why no nameserver answers, None while one does: then nodes are those that were listed last.
    """

    nodes: tuple[Node, ...]
    answers: Mapping[str, HaStatus | DittoError]
    problem: DittoError | None


def status_of(node: Node, status: HaStatus) -> HaStatus:
    """What was told at the node's address; Unavailable where somebody else has that by now, who tells nothing of this node or its group."""
    if (status.node, status.cluster) != (node.name, node.cluster):
        raise Unavailable(node.name, f'{status.node} of cluster "{status.cluster}" has this address now')
    return status


class ClusterWatch:
    """Watches every node that nameservers know."""

    def __init__(self, admin: Admin, around: ClientContext, *, period_s: float) -> None:
        self._admin = admin
        self._around = around
        self._period_s = period_s
        self._nodes: dict[str, Node] | None = None
        self._answers: dict[str, HaStatus | DittoError] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._problem: DittoError | None = None

    @property
    def problem(self) -> DittoError | None:
        """Why no nameserver answers; None while one does, and before it is known."""
        return self._problem

    @property
    def view(self) -> ClusterView | None:
        """The cluster as far as it is known by now, with an Unavailable for who has not answered yet; None before nodes were listed."""
        if self._nodes is None:
            return None
        answers = {name: self._answers.get(name) or Unavailable(name, "no answer yet") for name in self._nodes}
        return ClusterView(tuple(self._nodes.values()), answers, self._problem)

    async def until(self, enough: Callable[[ClusterView], bool]) -> None:
        """Show the cluster once every node has answered or failed to, then at changes, at most once a period; return when it is enough.

        Raises Unavailable when the client is left before.
        """
        seen = False
        async with asyncio.TaskGroup() as tasks:
            finding = tasks.create_task(self._find_nodes(tasks))
            try:
                seen = await self._show(enough)
            finally:
                finding.cancel()
                for task in self._following.values():
                    task.cancel()
        if not seen:
            raise Unavailable("the cluster", CLIENT_LEFT)

    async def _show(self, enough: Callable[[ClusterView], bool]) -> bool:
        """Whether it was enough; otherwise the client was left."""
        while True:
            await self._changed.wait()
            if self._around.channels.closed:
                return False
            self._changed.clear()
            nodes = self._nodes
            if nodes is not None and nodes.keys() <= self._answers.keys():
                if enough(ClusterView(tuple(nodes.values()), dict(self._answers), self._problem)):
                    return True
                await asyncio.sleep(self._period_s)

    async def _find_nodes(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            try:
                nodes = await self._admin.list_brokers()
            except DittoError as silent:
                if self._problem is None or self._around.channels.closed:
                    self._problem = silent
                    self._changed.set()
                await asyncio.sleep(_NODES_RETRY_S)
                continue
            self._problem = None
            found = {node.name: node for node in nodes}
            for name in self._following.keys() - found.keys():
                self._following.pop(name).cancel()
                self._answers.pop(name, None)
            self._nodes = found
            for name in found.keys() - self._following.keys():
                self._following[name] = tasks.create_task(self._follow(name))
            self._changed.set()
            await asyncio.sleep(_NODES_S)

    async def _follow(self, name: str) -> None:
        """One watch of a node after the other."""
        failures = 0
        while True:
            assert self._nodes is not None  # whoever is followed was found
            before, problem = self._answers.get(name), None
            try:
                await self._listen(self._nodes[name])
            except DittoError as raised:
                problem = raised
            failures = failures + 1 if self._answers.get(name) is before else 1
            if problem is not None:
                self._answers[name] = problem
                self._changed.set()
            await asyncio.sleep(backoff_s(failures, self._around.chance, most_s=_LONGEST_BACKOFF_S))

    async def _listen(self, node: Node) -> None:
        """One watch, until it ends."""
        address = self._around.routing.address(node)
        async with contextlib.aclosing(self._admin.watch_ha_status(address, period_s=self._period_s)) as told:
            async for status in told:
                self._answers[node.name] = status_of(node, status)
                self._changed.set()
