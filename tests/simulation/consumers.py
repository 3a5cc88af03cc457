"""Members of a consumer group, each on a machine of its own that can die."""

import asyncio
from collections.abc import Sequence
from typing import Any

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient, ConsumedMessage, Consumer
from tests.simulation.group import Group
from tests.simulation.world import Power
from tests.support.handled_messages import GroupTally, Handled, judge

GROUP = "billing"


class Members:
    """`handled` is what all of them handled, in order; `kills` when somebody died. `settings` are those of every consumer."""

    def __init__(self, group: Group, topics: Sequence[str] = ("orders",), *, takes_s: float = 0.0, **settings: Any) -> None:
        self.handled: list[Handled] = []
        self.kills: list[float] = []
        self.consumers: dict[str, Consumer] = {}
        self._group = group
        self._topics = topics
        self._takes_s = takes_s
        self._settings = settings

    def start(self, name: str) -> None:
        """Start that member, or start it again."""
        if name not in self._group.world.nodes:
            self._group.world.node(name, lambda doors, stop: self._consume(name, doors, stop))
        self._group.node(name).start()

    async def stop(self, name: str) -> None:
        """It leaves the group."""
        await self._group.node(name).stop()

    async def kill(self, name: str) -> None:
        """It dies, a member or a broker."""
        self.kills.append(self._group.now)
        self._group.node(name).crash(Power.KILL)
        await self._group.world.buried()

    def bodies(self) -> list[str]:
        """Of the messages that were handled, in order."""
        return [each.body for each in self.handled]

    async def until_handled(self, bodies: Sequence[str], within_s: float = 120.0) -> None:
        """Wait until all of these are handled."""
        async with asyncio.timeout(within_s):
            while not set(bodies) <= set(self.bodies()):  # noqa: ASYNC110  # of many machines
                await asyncio.sleep(0.1)

    def judge(self, bodies: Sequence[str]) -> GroupTally:
        """AssertionError for one that is left out, or that came twice, or out of order, without a reason."""
        return judge(set(bodies), self.handled, self.kills)

    async def _consume(self, name: str, doors: BrokerDoors, stop: asyncio.Event) -> None:
        life = f"{name}.{self._group.node(name).lives}"
        nameservers = self._group.shape.nameservers
        async with (
            AsyncClient(nameservers, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq,
            mq.consumer(GROUP, self._topics, member=name, **self._settings) as messages,
            asyncio.TaskGroup() as tasks,
        ):
            self.consumers[name] = messages
            reading = tasks.create_task(self._handle_all(life, messages))
            await stop.wait()
            reading.cancel()

    async def _handle_all(self, life: str, messages: Consumer) -> None:
        async for message in messages:
            await self.handle(life, message)

    async def handle(self, life: str, message: ConsumedMessage) -> None:
        """What a member does with a message."""
        await asyncio.sleep(self._takes_s)
        place = (message.queue, message.queue_offset) if message.retries == 0 else (-1, message.queue_offset)
        self.handled.append(Handled(self._group.now, life, *place, message.body.decode()))
        await message.ack()
