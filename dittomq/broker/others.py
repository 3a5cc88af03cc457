"""The other replicas of a group, asked where they stand."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from dittomq.errors import DittoError
from dittomq.naming.route_cache import RouteCache
from dittomq.replication.promotion import Standing
from dittomq.rpc.replicas import RemoteReplicas


@dataclass(frozen=True, slots=True)
class Others:
    """Finds those of the group `broker` by what the nameservers list."""

    broker: str
    replicas: RemoteReplicas
    routes: RouteCache

    async def hear(self, own_uuid: str, known: Iterable[str] = ()) -> dict[str, Standing]:
        """Each that answers within a second, by the address of its replication port; at the `known` ones too. `own_uuid` is left out.

        A nameserver that is silent is waited for, 3 s at most.
        """
        addresses = set(known)
        with contextlib.suppress(DittoError):
            addresses |= {node.replication_address for node in await self.routes.nodes_of(self.broker)}
        heard: dict[str, Standing] = {}

        async def hear(address: str) -> None:
            with contextlib.suppress(DittoError):
                standing = await self.replicas.standing(address)
                if standing.replica_uuid != own_uuid:
                    heard[address] = standing

        async with asyncio.TaskGroup() as tasks:
            for address in sorted(addresses - {""}):
                tasks.create_task(hear(address))
        return heard
