"""Places are changed again and again while nodes die at any operation of their disks: one possible master or none, and nothing lost."""

import asyncio
import contextlib
import os
import random

import pytest

from dittomq.client import AsyncClient, PutStatus, Receipt
from dittomq.errors import DittoError, NotStored, OutcomeUnknown
from dittomq.message import Ack
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.group import Group, play
from tests.simulation.shapes import Shape
from tests.simulation.world import Power

_SHAPE = Shape(2, ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, min_in_sync_replicas=2), FlushMode.SYNC_FLUSH)
_SEEDS = int(os.environ.get("SIM_SEEDS", "12"))
_OF_MAKE_TEST = 5
_ROUNDS = 3
_TIMEOUT_S = 5.0


class Town:
    """The group, somebody who publishes all the time, an init system, and an operator who never gives up."""

    def __init__(self, group: Group, mq: AsyncClient, chance: random.Random) -> None:
        self.group = group
        self.mq = mq
        self.chance = chance
        self.told: dict[bytes, Receipt] = {}
        self.refused: set[bytes] = set()
        self.sent = 0

    async def publish(self) -> None:
        """One message after the other; what is unknown is asked for until it is known."""
        async with self.mq.producer(ack=Ack.REPLICA_FLUSHED, retry_s=5.0, on_weak="return") as producer:
            while True:
                self.sent += 1
                body = b"%d" % self.sent
                try:
                    self.told[body] = await producer.publish("orders", body, queue=0)
                except NotStored:
                    self.refused.add(body)
                except OutcomeUnknown:
                    pass  # there once, or not at all
                await asyncio.sleep(self.chance.choice((0.0, 0.01, 0.2)))

    async def supervise(self) -> None:
        """Start what died, as what it was configured to be."""
        while True:
            await asyncio.sleep(0.5)
            for name in self.group.cluster.brokers:
                node = self.group.node(name)
                if not node.running:
                    await self.group.world.buried()
                    node.start()

    async def leader(self) -> str:
        """Who takes writes now, "" when nobody does."""
        for name in self.group.cluster.brokers:
            with contextlib.suppress(DittoError):
                status = await self.mq.admin.ha_status(f"{name}:10911")
                if status.writable:
                    return status.node
        return ""

    async def change_places(self) -> None:
        """Tell a slave to lead, while somebody dies at some operation of its disk."""
        leader = await self.leader()
        slaves = [f"{name[0]}/{name[1:]}" for name in self.group.cluster.brokers if f"{name[0]}/{name[1:]}" != leader]
        victim = self.group.node(self.chance.choice(self.group.cluster.brokers))
        victim.crash_within(self.chance.randint(1, 80), self.chance.choice((Power.KILL, Power.LOSS)))
        with contextlib.suppress(DittoError):
            await self.mq.admin.switchover(self.chance.choice(slaves))

    async def somebody_leads(self) -> str:
        """Give the command again to one or the other until somebody leads; never say that a master is stopped, nor accept a loss."""
        while True:
            until = self.group.now + _TIMEOUT_S
            while self.group.now < until:
                if leader := await self.leader():
                    return leader
                await asyncio.sleep(0.2)
            with contextlib.suppress(DittoError):
                await self.mq.admin.failover(self.chance.choice(("a/0", "a/1", "a/2")))


async def _all_messages(mq: AsyncClient, node: str) -> list[tuple[int, bytes]]:
    reader = mq.reader("orders", queue=0, node=node, max_messages=500)
    found: list[tuple[int, bytes]] = []
    offset = 0
    while (page := await reader.pull(offset)).messages:
        found += [(message.queue_offset, message.body) for message in page.messages]
        offset = page.next_offset
    return found


@pytest.mark.parametrize(
    "seed", [seed if seed < _OF_MAKE_TEST else pytest.param(seed, marks=pytest.mark.tier("nightly")) for seed in range(_SEEDS)]
)
def test_death_at_any_moment_of_a_switchover_leaves_one_master_at_most(seed: int) -> None:
    """Nothing is lost."""
    lines: list[str] = []

    async def story(group: Group, mq: AsyncClient) -> None:
        [created] = await mq.admin.create_topic("orders", 1)
        assert created.error is None
        town = Town(group, mq, group.world.chance("town"))
        async with asyncio.TaskGroup() as tasks:
            living = [tasks.create_task(town.publish()), tasks.create_task(town.supervise())]
            for _ in range(_ROUNDS):
                await asyncio.sleep(town.chance.uniform(0.2, 6.0))
                await town.change_places()
                await town.somebody_leads()
            for name in group.cluster.brokers:
                group.node(name).faults.operations_to_live = None
            await asyncio.sleep(10)
            await group.in_sync(mq, await town.somebody_leads())
            for task in living:
                task.cancel()
        await asyncio.sleep(12)  # slaves hear the confirmed end
        lines[:] = group.world.transcript.lines
        for node in ("a/0", "a/1", "a/2"):
            there = await _all_messages(mq, node)
            bodies = [body for _, body in there]
            assert len(set(bodies)) == len(bodies), f"{node} has a message twice"
            assert not town.refused & set(bodies), f"{node} has what was not stored"
            for body, receipt in town.told.items():
                if receipt.status is PutStatus.PUT_OK:
                    assert (receipt.queue_offset, body) in there, f"{body!r} was acknowledged and is not on {node}"
        assert any(receipt.status is PutStatus.PUT_OK for receipt in town.told.values())

    play(story, _SHAPE, seed)

    opened = [line.split("node=")[1].split() for line in lines if "epoch_opened" in line]
    epochs = [epoch for _, epoch, *_ in opened]
    assert len(set(epochs)) == len(epochs), f"seed {seed}: an epoch was opened twice: {opened}"
