"""One whole run: faults, then calm, then the checks."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import structlog

from dittomq.client import AsyncClient
from dittomq.errors import Unavailable
from tests.simulation.checkers import check_final
from tests.simulation.cluster import Cluster
from tests.simulation.coverage import Happened
from tests.simulation.faults import (
    OF_LEADERSHIP,
    Fault,
    FaultKind,
    absences,
    changes,
    crashes_in_frames,
    freezes,
    in_order,
    plan,
    removals,
    rots,
    stalls,
    stressed,
)
from tests.simulation.fibers import locks_of_fibers
from tests.simulation.history import Harm
from tests.simulation.invariants import Broken, Invariant
from tests.simulation.limits import limits
from tests.simulation.loop import Deadlock, Livelock, SimulatedLoop
from tests.simulation.operator import as_client, leading, repair
from tests.simulation.remade_topic import remake
from tests.simulation.service_logs import log_into
from tests.simulation.shapes import Shape, is_interleaved, name_of, publishing, shape
from tests.simulation.workload import REMADE, TOPICS, make_topics, read_everything, topics_of
from tests.simulation.world import Power, World

_FAULTS_S = 60.0
_ENDS_DARK = 0.5  # of the runs: all brokers lose power while clients publish, and every copy is looked at
SETTLE_S = 200.0
_EQUAL_S = 120.0
_CPU_S = 60.0
_FORGETS = 0.15  # of the runs with slaves: the log is dropped after a while
_ROTS = 0.2  # of the runs where two disks and more hold what is confirmed: bits flip on one of them
_REMOVES = 0.15  # of the rest of them: somebody removes files of the logs of slaves
_STALLS = 0.1
_FREEZES = 0.15
_FORGETS_PRODUCERS = 0.15  # of the runs: of producers only a few are remembered
_CHANGES_ROLES = 0.5  # of the runs with slaves: another node becomes the master, or is kept from it


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one seed: what checkers found, and what failed that must not fail. Both empty: everything held.

    `calls` of its loop are what it cost, on every machine the same.
    """

    seed: int
    broken: tuple[Broken, ...]
    failures: tuple[str, ...]
    happened: tuple[Happened, ...]
    stress: tuple[FaultKind, ...]
    plan: tuple[Fault, ...]
    shape: Shape
    hash: str
    transcript: tuple[str, ...]
    publishes: int
    reads: int
    calls: int
    is_of_groups: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong."""
        return (*map(str, self.broken), *self.failures)


def simulate(seed: int, sabotage: Callable[[Cluster], AbstractContextManager[None]] | None = None, stress: Sequence[FaultKind] = ()) -> Run:
    """Run one seed, with many faults of a few kinds when these are given.

    What `sabotage` opens is closed again after the run: it breaks the cluster on purpose.
    """
    world = World(seed)
    wanted, faults = _scene(world, stress)
    cluster = Cluster(world, wanted)
    log_into(world, cluster.logged)
    world.is_interleaved = wanted.is_interleaved
    stores = locks_of_fibers() if wanted.is_interleaved else contextlib.nullcontext()
    with wanted.limits.in_force(), stores, sabotage(cluster) if sabotage is not None else contextlib.nullcontext():
        live(world, _story(cluster, faults))
    world.close()
    return replace(run_of(cluster, seed, faults), happened=tuple(cluster.witness.seen), stress=tuple(stress))


def run_of(cluster: Cluster, seed: int, faults: Sequence[Fault]) -> Run:
    """What came of a run that is over."""
    world = cluster.world
    return Run(
        seed=seed,
        broken=tuple(cluster.problems),
        failures=tuple(world.findings),
        happened=(),
        stress=(),
        plan=tuple(faults),
        shape=cluster.shape,
        hash=world.transcript.hash(),
        transcript=tuple(world.transcript.lines),
        publishes=len(cluster.history.publishes),
        reads=len(cluster.history.reads),
        calls=world.loop.calls,
    )


def _scene(world: World, stress: Sequence[FaultKind]) -> tuple[Shape, list[Fault]]:
    """The group, and what happens to it."""
    wanted = replace(
        shape(world.chance("shape")),
        limits=limits(world.chance("limits")),
        publishing=publishing(world.chance("publishing")),
        is_interleaved=is_interleaved(world.chance("interleaved")),
    )
    wanted = wanted.expiring_soon(world.chance("expiry"))
    if world.chance("few").random() < _FORGETS_PRODUCERS:
        wanted = wanted.remembering_few()
    chance = world.chance("faults")
    faults = stressed(chance, wanted.machines, _FAULTS_S, stress) if stress else plan(chance, wanted.machines, _FAULTS_S)
    without: set[FaultKind] = set() if wanted.needs_no_operator else {FaultKind.DISK_LOSS, FaultKind.ROT, FaultKind.REMOVED}
    if not wanted.slaves:
        without |= {*OF_LEADERSHIP, FaultKind.LEFT_FAR_BEHIND, FaultKind.CRASH_IN_A_FRAME}
    elif FaultKind.LEFT_FAR_BEHIND in stress or (world.chance("retention").random() < _FORGETS and not stress):
        wanted = wanted.forgetting()
        without.add(FaultKind.CLOCK_JUMP)  # the age of a message is told by the clocks
        if not stress:
            faults += absences(world.chance("absences"), wanted.machines, _FAULTS_S)
    elif wanted.needs_no_operator and world.chance("rot").random() < _ROTS and not stress:
        without.add(FaultKind.DISK_LOSS)  # it may hold the only copy that is whole
        faults += rots(world.chance("rots"), wanted.machines, _FAULTS_S)
    elif wanted.needs_no_operator and world.chance("removal").random() < _REMOVES and not stress:
        without.add(FaultKind.DISK_LOSS)
        faults += removals(world.chance("removals"), wanted.machines, _FAULTS_S)
    if world.chance("stall").random() < _STALLS and not stress:
        faults += stalls(world.chance("stalls"), wanted.machines, _FAULTS_S)
    if world.chance("freeze").random() < _FREEZES and not stress:
        faults += freezes(world.chance("freezes"), wanted.machines, _FAULTS_S)
    if wanted.sends_in_pieces and not stress:
        faults += crashes_in_frames(world.chance("frames"), wanted.machines, _FAULTS_S)
    if wanted.slaves and world.chance("operator").random() < _CHANGES_ROLES and not stress:
        faults += changes(world.chance("changes"), wanted.machines, _FAULTS_S)
    faults = in_order(fault for fault in faults if fault.kind not in without)
    lost = FaultKind.DISK_LOSS in {fault.kind for fault in faults}
    if lost or (stress and not set(stress) & set(OF_LEADERSHIP)):  # who leads alone is what leadership's own faults are about
        wanted = wanted.undegraded()
    return wanted, faults


def live(world: World, story: Coroutine[Any, Any, None]) -> None:
    """Let it happen; what comes out of it is a finding."""
    try:
        with _cpu_limit(world.loop):
            world.run(story)
    except (Exception, Deadlock, Livelock) as stuck:  # noqa: BLE001  # whatever it is, the seed is to be told
        world.unexpected("simulation", "in its story", stuck)
    finally:
        structlog.reset_defaults()


@contextlib.contextmanager
def _cpu_limit(loop: SimulatedLoop) -> Iterator[None]:
    """Interrupt code that computes for ever: it shows itself as a Livelock with its stack, and ends the run though a task takes that."""

    def interrupt(*_: object) -> None:
        loop.give_up(f"the run has used {_CPU_S:g} s of CPU")
        raise Livelock(f"a run has used {_CPU_S:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, _CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


async def _story(cluster: Cluster, faults: list[Fault]) -> None:
    cluster.start()
    async with asyncio.TaskGroup() as background:
        supervisor = background.create_task(cluster.supervise())
        async with asyncio.TaskGroup() as suffering:
            for fault in faults:
                suffering.create_task(cluster.suffer(fault))
            suffering.create_task(asyncio.sleep(_FAULTS_S))
            remaking = suffering.create_task(_remake(cluster))
        if cluster.world.chance("end").random() < _ENDS_DARK:
            for name in cluster.brokers:
                cluster.world.nodes[name].crash(Power.LOSS)
        cluster.heal()
        cluster.phases.calm.set()
        operator = background.create_task(_operate(cluster))
        lacking = (*(TOPICS if cluster.history.may_lack_topics else ()), *(() if remaking.result() else (REMADE,)))
        if lacking:
            await as_client(cluster, "clerk", lambda mq: _make_topics_again(cluster, mq, lacking))
        if await _settled(cluster) and await _repaired(cluster) and await _equal(cluster):
            await asyncio.sleep(11)  # two heartbeats: slaves hear the confirmed end
            await _read_all(cluster)
        operator.cancel()
        supervisor.cancel()
    await cluster.world.buried()
    if not cluster.problems:
        await cluster.stop()
        copies = {name_of(name): cluster.files(name) for name in cluster.brokers}
        cluster.problems += check_final(cluster.history, copies)


async def _operate(cluster: Cluster) -> None:
    async def tend(mq: AsyncClient) -> None:
        lost = [Harm.DISK_LOST]
        if cluster.shape.is_manual:  # no replica stands by itself there whose log may lack what it acknowledged
            lost += [Harm.SYNC_FAILED, Harm.POWER_LOST]
        needs_him = not cluster.shape.needs_no_operator or cluster.history.has_seen(*lost)
        await cluster.operator.tend(mq, may_lose=needs_him)

    await as_client(cluster, "operator", tend)


async def _remake(cluster: Cluster) -> bool:
    return not cluster.shape.publishing.remakes or await remake(cluster, cluster.world.chance("remake"), _FAULTS_S)


async def _make_topics_again(cluster: Cluster, mq: AsyncClient, topics: Sequence[str]) -> None:
    """A topic that was made shortly before its master's disk was lost, or a slave promoted in its place, may be lost with it.

    What stays unknown of one that is deleted, because its producer was forgotten too, cannot be sent again: no message could settle it.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            while await leading(mq, cluster.brokers) is None or not await make_topics(mq, topics):  # noqa: ASYNC110  # nobody tells when
                await asyncio.sleep(1.0)


async def _settled(cluster: Cluster) -> bool:
    """Whether, after the faults, clients come to know of every message within a while."""

    async def wait() -> None:
        for publisher in cluster.publishers:
            await publisher.settled.wait()

    def problem() -> str:
        unsettled = [publisher.name for publisher in cluster.publishers if not publisher.settled.is_set()]
        return f"{unsettled} still cannot publish to all copies, or know of all messages"

    return await comes_within(cluster, SETTLE_S, wait(), problem)


async def comes_within(cluster: Cluster, seconds: float, work: Awaitable[None], problem: Callable[[], str]) -> bool:
    """Whether it ends within so many seconds after the faults; if not, that is a problem of the run."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        cluster.world.transcript.lines.append(cluster.world.loop.stacks())
        cluster.problems.append(Broken(Invariant.I9, f"{seconds:g} s after the faults {problem()}"))
        return False
    return True


async def _repaired(cluster: Cluster) -> bool:
    """Whether, after the faults, whoever looks for rot has it mended within a while."""

    async def mend(mq: AsyncClient) -> None:
        for node in map(name_of, cluster.brokers):
            while not await repair(mq, node):  # noqa: ASYNC110  # an operator asks again
                await asyncio.sleep(1.0)

    if not cluster.history.rotten:
        return True
    return await comes_within(cluster, _EQUAL_S, as_client(cluster, "mender", mend), lambda: "rot is not mended")


async def _equal(cluster: Cluster) -> bool:
    """Whether, after the faults, every copy catches up within a while."""

    async def wait(mq: AsyncClient) -> None:
        while True:
            view = await leading(mq, cluster.brokers)
            copying = any(cluster.copy(name).is_being_made_anew for name in cluster.brokers)
            heard = view is not None and len(view.nodes) > cluster.shape.slaves
            if view is not None and heard and not copying and all(node.flushed == view.end for node in view.nodes):
                return
            await asyncio.sleep(1.0)

    return await comes_within(cluster, _EQUAL_S, as_client(cluster, "watcher", wait), lambda: "not every copy has caught up")


async def _read_all(cluster: Cluster) -> None:
    """Read every queue to its end on every node, as far as that comes to an end."""

    async def read(mq: AsyncClient) -> None:
        for node in map(name_of, cluster.brokers):
            lost = cluster.history.may_lack_topics
            while node not in cluster.history.final_reads:
                try:
                    cluster.history.final_reads[node] = await read_everything(mq, node, topics_of(cluster.shape), missing_queues=lost)
                except Unavailable:  # the id of a lost disk is free when the nameservers have forgotten that
                    await asyncio.sleep(1.0)

    try:
        async with asyncio.timeout(_EQUAL_S):
            await as_client(cluster, "auditor", read)
    except TimeoutError:
        cluster.problems.append(Broken(Invariant.I9, f"{_EQUAL_S:g} s after the faults nobody has read all queues to their ends"))
