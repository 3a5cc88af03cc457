"""The other replicas of a group: asked where they stand, or told of an epoch."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from dittomq.errors import DittoError
from dittomq.naming.route_cache import RouteCache
from dittomq.replication.standings import KnownBefore, Standing
from dittomq.routes import Opening
from dittomq.rpc.replicas import RemoteReplicas

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Others:
    """Finds those of the group `broker` by what the nameservers list."""

    broker: str
    replicas: RemoteReplicas
    routes: RouteCache
    names: set[str] = field(default_factory=set)
    """Every node that nameservers have listed."""

    async def hear(self, own_uuid: str, known: Iterable[str] = ()) -> dict[str, Standing]:
        """Each that answers within a second, by the address of its replication port; at the `known` ones too. `own_uuid` is left out.

        A nameserver that is silent is waited for, 3 s at most.
        """
        return await self.hear_at(own_uuid, await self._addresses(known))

    async def hear_at(self, own_uuid: str, addresses: Iterable[str]) -> dict[str, Standing]:
        """The same of those at these addresses only, whatever nameservers list."""
        heard = await self._each(addresses, self.replicas.standing)
        return {address: standing for address, standing in heard.items() if standing.replica_uuid != own_uuid}

    async def announce(self, opening: Opening, known: Iterable[str]) -> dict[str, KnownBefore]:
        """Let all know that this epoch is opened, who are found as by `hear`: what each that answers knew before, by its address."""
        return await self._each(await self._addresses(known), lambda address: self.replicas.announce(address, opening))

    async def _addresses(self, known: Iterable[str]) -> set[str]:
        addresses = set(known)
        with contextlib.suppress(DittoError):
            nodes = await self.routes.nodes_of(self.broker)
            self.names.update(node.name for node in nodes)
            addresses |= {node.replication_address for node in nodes}
        return addresses - {""}

    async def _each(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> dict[str, T]:
        answers: dict[str, T] = {}

        async def answer(address: str) -> None:
            with contextlib.suppress(DittoError):
                answers[address] = await ask(address)

        async with asyncio.TaskGroup() as tasks:
            for address in sorted(addresses):
                tasks.create_task(answer(address))
        return answers
