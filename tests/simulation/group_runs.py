"""One whole run about consumer groups: members, lessees and a writer under faults, then calm, then the checks."""

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

from dittomq.broker.config import FailoverMode, FailoverTable
from dittomq.client import AsyncClient, ResetOrder, ResetTarget
from dittomq.consumer.assignment import Strategy
from dittomq.errors import DittoError
from dittomq.metadata.rows import GroupConfig
from services.master.config import Mode, ReplicationTable
from services.slave.config import FlushMode
from tests.simulation.cluster import Cluster
from tests.simulation.faults import Fault, FaultKind, Machines, stressed
from tests.simulation.group_checkers import check_groups, unhandled
from tests.simulation.group_clients import (
    LEASES,
    LESSEES,
    MEMBERS,
    SESSIONS,
    WRITER,
    GroupHistory,
    Lessee,
    SessionMember,
    Writer,
    stored,
)
from tests.simulation.invariants import Broken
from tests.simulation.limits import limits
from tests.simulation.operator import as_client, leading
from tests.simulation.service_logs import log_into
from tests.simulation.shapes import Shape, name_of
from tests.simulation.simulate import SETTLE_S, Run, comes_within, live, run_of
from tests.simulation.workload import make_topics
from tests.simulation.world import World

_FAULTS_S = 60.0
_HANDLED_S = 180.0
_RESTART_S = 0.5
_LEFT_S = 12.0  # longer than the session of a member that died
_KNOWN_S = 15.0  # by then a slave has what was reset
_RESETS = 0.5  # of the runs: the group is reset once
_KINDS = (
    FaultKind.KILL,
    FaultKind.POWER_LOSS,
    FaultKind.CRASH_INSIDE,
    FaultKind.RESTART,
    FaultKind.CUT,
    FaultKind.SILENCE,
    FaultKind.SILENCE_ONE_WAY,
    FaultKind.SLOW_LINK,
    FaultKind.SLOW_DISK,
    FaultKind.CLIENT_CRASH,
    FaultKind.SWITCHOVER,
    FaultKind.MASTER_DOWN,
    FaultKind.PARTED,
    FaultKind.FREEZE,
)


def simulate_groups(seed: int, sabotage: Callable[[Cluster], AbstractContextManager[None]] | None = None) -> Run:
    """Run one seed; `sabotage` as in `simulate`."""
    world = World(seed)
    chance = world.chance("groups")
    wanted = _shape(chance, world)
    members = Machines(wanted.brokers, "ns", (*MEMBERS, *LESSEES, WRITER))
    faults = stressed(world.chance("faults"), members, _FAULTS_S, chance.sample(_KINDS, chance.randint(2, 5)))
    cluster = Cluster(world, wanted)
    log_into(world, cluster.logged)
    town = _Town(cluster, chance)
    with wanted.limits.in_force(), sabotage(cluster) if sabotage is not None else contextlib.nullcontext():
        live(world, town.story(faults))
    world.close()
    return replace(run_of(cluster, seed, faults), publishes=town.history.sent, reads=len(town.history.handed), is_of_groups=True)


def _shape(chance: random.Random, world: World) -> Shape:
    """Three nodes that fail over by themselves and confirm only what two of them have flushed."""
    copies = ReplicationTable(mode=Mode.SYNC_MASTER, replicas_expected=2, in_sync_replicas=2, min_in_sync_replicas=2)
    failover = FailoverTable(mode=FailoverMode.AUTOMATIC)
    base = Shape(2, copies, FlushMode.SYNC_FLUSH, chance.choice((16_384, 65_536)), failover=failover)
    return replace(base, limits=limits(world.chance("limits")))


class _Town:
    """Who lives in one run."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.history = GroupHistory()
        self._cluster = cluster
        self._chance = chance
        world, shape, phases = cluster.world, cluster.shape, cluster.phases
        strategy = chance.choice(list(Strategy))
        self._writer = Writer(self.history, phases, world.chance(WRITER), shape)
        world.node(WRITER, self._writer.serve)
        for name in MEMBERS:
            member = SessionMember(name, self.history, phases, world.chance(name), shape=shape, strategy=strategy)
            world.node(name, member.serve)
        for name in LESSEES:
            world.node(name, Lessee(self.history, phases, world.chance(name), shape=shape).serve)
        self._wanted = {*shape.name_machines, *shape.brokers, WRITER, *MEMBERS, *LESSEES}

    async def story(self, faults: list[Fault]) -> None:
        """Live: faults, then calm, then the checks."""
        cluster = self._cluster
        async with asyncio.TaskGroup() as background:
            tasks = [background.create_task(work) for work in (self._supervise(), self._keep_made())]
            await asyncio.sleep(2.0)
            async with asyncio.TaskGroup() as suffering:
                for fault in faults:
                    suffering.create_task(cluster.suffer(fault))
                suffering.create_task(self._come_and_go())
            cluster.heal()
            cluster.phases.calm.set()
            self._wanted |= set(MEMBERS)
            if await self._settled():
                await self._judge()
            for task in tasks:
                task.cancel()
        await cluster.world.buried()

    async def _supervise(self) -> None:
        """Start what has ended and is wanted, unless a fault holds it down."""
        cluster = self._cluster
        while True:
            await cluster.revive(name for name in sorted(self._wanted) if not (name == WRITER and self._writer.settled.is_set()))
            await asyncio.sleep(_RESTART_S)
            cluster.checks.look_at_processes()

    async def _keep_made(self) -> None:
        """What was made shortly before its master died may be lost with it, and is made again."""

        async def make(mq: AsyncClient) -> None:
            while True:
                with contextlib.suppress(DittoError):
                    await make_topics(mq)
                    for group in (SESSIONS, LEASES):
                        await mq.admin.create_group(GroupConfig(group))
                await asyncio.sleep(2.0)

        await as_client(self._cluster, "clerk", make)

    async def _come_and_go(self) -> None:
        """Members leave and come, now and then; in some runs all of them leave, and their group is reset."""
        now, chance = self._cluster.world.loop.time, self._chance
        reset_at = chance.uniform(15.0, 40.0) if chance.random() < _RESETS else float("inf")
        while now() < _FAULTS_S:
            if now() >= reset_at:
                reset_at = float("inf")
                await self._reset()
            name = chance.choice(MEMBERS)
            if name in self._wanted:
                await self._leave(name)
            else:
                self._wanted.add(name)
            await asyncio.sleep(chance.uniform(1.0, 8.0))

    async def _leave(self, name: str) -> None:
        self._wanted.discard(name)
        await self._cluster.world.nodes[name].stop()

    async def _reset(self) -> None:
        """Everything comes again from its beginning."""
        for name in MEMBERS:
            await self._leave(name)
        await asyncio.sleep(_LEFT_S)

        async def reset(mq: AsyncClient) -> None:
            for _ in range(8):
                with contextlib.suppress(DittoError):
                    results = await mq.admin.reset_offsets(ResetOrder(SESSIONS, "orders", ResetTarget.EARLIEST))
                    if results and all(result.error is None for result in results):
                        self.history.resets.append(self._cluster.world.loop.time())
                        return
                await asyncio.sleep(1.0)

        await as_client(self._cluster, "resetter", reset)
        self._wanted |= set(MEMBERS)

    @property
    def _last_reset(self) -> float | None:
        """The last one that no failover can have undone: what slaves have not taken over by then is lost with its master."""
        reigns = [reign.at for reign in self._cluster.history.reigns]
        sure = [at for at in self.history.resets if not any(at - 2.0 <= since <= at + _KNOWN_S for since in reigns)]
        return max(sure, default=None)

    async def _settled(self) -> bool:
        """Whether, after the faults, all copies are equal and the writer has ended, within a while."""

        async def wait(mq: AsyncClient) -> None:
            await self._writer.settled.wait()
            while True:
                view = await leading(mq, self._cluster.brokers)
                if (
                    view is not None
                    and len(view.nodes) > self._cluster.shape.slaves
                    and all(node.flushed == view.end for node in view.nodes)
                ):
                    return
                await asyncio.sleep(1.0)

        watched = as_client(self._cluster, "watcher", wait)
        return await comes_within(self._cluster, SETTLE_S, watched, lambda: "the group has not settled")

    async def _judge(self) -> None:
        """When everything is dealt with, or should be."""
        found: list[Broken] = []

        async def look(mq: AsyncClient) -> None:
            began = self._cluster.world.loop.time()
            await asyncio.sleep(25.0)  # what waits has come by then
            while True:
                view = await leading(mq, self._cluster.brokers)
                queues = await stored(mq, name_of(self._cluster.leader)) if view is not None else {}
                left = list(unhandled(self.history, queues, self._last_reset))
                if (view is not None and not left) or self._cluster.world.loop.time() > began + _HANDLED_S:
                    found.extend((*left, *check_groups(self.history, queues)))
                    return
                await asyncio.sleep(3.0)

        await as_client(self._cluster, "auditor", look)
        self._cluster.problems += found
