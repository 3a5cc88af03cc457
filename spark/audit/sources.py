"""Surveys a cluster: which copies are registered and what each holds."""

import asyncio
from itertools import groupby

from dittomq.client.replica_reader import NodeAddress, ReplicaReader
from dittomq.errors import DittoError
from spark.audit.model import GroupSurvey, Surveyed


async def registered(reader: ReplicaReader, nameserver: str, broker: str | None) -> list[NodeAddress]:
    """Nodes of every group, or of the one named. Raises Unavailable when no nameserver answers."""
    return [node for node in await reader.nodes(nameserver) if broker in (None, node.broker)]


async def survey(reader: ReplicaReader, nameserver: str, broker: str | None) -> list[GroupSurvey]:
    """Every registered group, or the one named; all nodes are asked at the same moment. Raises Unavailable when no nameserver answers."""
    nodes = await registered(reader, nameserver, broker)
    async with asyncio.TaskGroup() as group:
        asked = [(node, group.create_task(_describe(reader, node)), group.create_task(_slaves_expected(reader, node))) for node in nodes]
    found = [(asking.result(), expecting.result()) for _, asking, expecting in asked]
    groups = []
    for name, members in groupby(found, key=lambda each: each[0].address.broker):
        listed = list(members)
        surveyed = tuple(node for node, _ in listed)
        told = [count for node, count in listed if count is not None or node.held is not None]
        expected = None if None in told else max(filter(None, told), default=0)
        groups.append(GroupSurvey(name, surveyed[0].address.cluster, surveyed, expected))
    return groups


async def _describe(reader: ReplicaReader, node: NodeAddress) -> Surveyed:
    try:
        held = await reader.describe(node)
    except DittoError as error:
        return Surveyed(node, None, str(error))
    if held.node != node.name:
        return Surveyed(node, None, f"{node.address} is registered as {node.name} and says that it is {held.node}")
    if held.segment_bytes <= 0 or not 0 <= held.min_offset <= held.end:
        return Surveyed(
            node, None, f"{node.name} says that it holds bytes {held.min_offset:,} to {held.end:,} in segments of {held.segment_bytes:,}"
        )
    return Surveyed(node, held)


async def _slaves_expected(reader: ReplicaReader, node: NodeAddress) -> int | None:
    try:
        return await reader.slaves_expected(node)
    except DittoError:
        return None
