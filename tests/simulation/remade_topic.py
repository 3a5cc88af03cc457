"""A client that deletes a topic and makes it again, now and then, while others publish to it and read it."""

import asyncio
import contextlib
import random

from dittomq.client import AsyncClient
from dittomq.errors import DittoError, TopicExists
from tests.simulation.history import Deletion
from tests.simulation.operator import Group, as_client
from tests.simulation.workload import QUEUES, REMADE

_FIRST_S = (2.0, 12.0)
_STAYS_S = (4.0, 18.0)
_GONE_S = (0.0, 2.0)
_TAKES_S = 10.0  # an order that nobody answered is carried out by then, or never


async def remake(group: Group, chance: random.Random, until_s: float) -> bool:
    """Make it, delete it and make it again until that time; whether it is there then: a group without a master makes none."""
    loop, history = group.world.loop, group.history
    is_there = True

    async def make(mq: AsyncClient) -> None:
        nonlocal is_there
        is_there = False
        with contextlib.suppress(DittoError):
            made = await mq.admin.create_topic(REMADE, QUEUES)
            is_there = bool(made) and all(result.error is None or isinstance(result.error, TopicExists) for result in made)

    async def delete(mq: AsyncClient) -> None:
        deletion = Deletion(loop.time(), loop.time() + _TAKES_S, is_done=False)
        history.deletions.append(deletion)
        with contextlib.suppress(DittoError):
            results = await mq.admin.delete_topic(REMADE)
            deletion.is_done = bool(results) and all(result.error is None for result in results)
        if deletion.is_done:
            deletion.end = loop.time()

    async def live(mq: AsyncClient) -> None:
        await asyncio.sleep(chance.uniform(*_FIRST_S))
        await make(mq)
        while loop.time() < until_s - _TAKES_S:
            await asyncio.sleep(chance.uniform(*_STAYS_S))
            await delete(mq)
            await asyncio.sleep(chance.uniform(*_GONE_S))
            await make(mq)

    await as_client(group, "editor", live)
    return is_there
