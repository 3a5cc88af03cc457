"""One whole run: faults, then calm, then the checks."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import structlog

from dittomq.broker.doors import BrokerDoors
from dittomq.client import AsyncClient
from dittomq.errors import DittoError
from tests.simulation.checkers import check_final
from tests.simulation.cluster import Cluster, log_into, name_of
from tests.simulation.faults import Fault, FaultKind, plan
from tests.simulation.happened import Happened
from tests.simulation.invariants import Broken, Invariant
from tests.simulation.loop import Deadlock, Livelock
from tests.simulation.shapes import NAMESERVER, Shape, shape
from tests.simulation.workload import read_everything
from tests.simulation.world import World

_MASTER = "a0:10911"
_FAULTS_S = 60.0
_ENDS_DARK = 0.5  # of the runs: all brokers lose power while clients publish, and every copy is looked at
_SETTLE_S = 200.0
_EQUAL_S = 120.0
_CPU_S = 60.0
_OPERATOR_LOOKS_S = 20.0


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one seed: what checkers found, and what failed that must not fail. Both empty: everything held."""

    seed: int
    broken: tuple[Broken, ...]
    failures: tuple[str, ...]
    happened: tuple[Happened, ...]
    plan: tuple[Fault, ...]
    shape: Shape
    hash: str
    transcript: tuple[str, ...]
    publishes: int
    reads: int

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong."""
        return (*map(str, self.broken), *self.failures)


def simulate(seed: int, sabotage: Callable[[Cluster], AbstractContextManager[None]] | None = None) -> Run:
    """Run one seed. What `sabotage` opens is closed again after the run: it breaks the cluster on purpose."""
    world = World(seed)
    wanted = shape(world.chance("shape"))
    faults = plan(world.chance("faults"), wanted.machines, _FAULTS_S)
    if not wanted.needs_no_operator:
        faults = [fault for fault in faults if fault.kind is not FaultKind.DISK_LOSS]
    if any(fault.kind is FaultKind.DISK_LOSS for fault in faults):
        wanted = wanted.undegraded()
    cluster = Cluster(world, wanted)
    log_into(world, cluster.logged)
    with sabotage(cluster) if sabotage is not None else contextlib.nullcontext():
        _live(world, _story(cluster, faults))
    world.close()
    return Run(
        seed=seed,
        broken=tuple(cluster.problems),
        failures=tuple(world.findings),
        happened=tuple(cluster.witness.seen),
        plan=tuple(faults),
        shape=wanted,
        hash=world.transcript.hash(),
        transcript=tuple(world.transcript.lines),
        publishes=len(cluster.history.publishes),
        reads=len(cluster.history.reads),
    )


def _live(world: World, story: Coroutine[Any, Any, None]) -> None:
    """Let it happen; what comes out of it is a finding."""
    try:
        with _cpu_limit():
            world.run(story)
    except (Exception, Deadlock, Livelock) as stuck:  # noqa: BLE001  # whatever it is, the seed is to be told
        world.unexpected("simulation", "in its story", stuck)
    finally:
        structlog.reset_defaults()


@contextlib.contextmanager
def _cpu_limit() -> Iterator[None]:
    """Interrupt code that computes for ever: it shows itself as a Livelock with its stack."""

    def interrupt(*_: object) -> None:
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
        if cluster.world.chance("end").random() < _ENDS_DARK:
            cluster.lose_all_power()
        cluster.heal()
        cluster.phases.calm.set()
        operator = background.create_task(_operate(cluster))
        if await _settled(cluster) and await _equal(cluster):
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
    """Accept the loss where the master waits for an operator, in a group that may lose what it has confirmed."""

    async def look(mq: AsyncClient) -> None:
        while True:
            await asyncio.sleep(_OPERATOR_LOOKS_S)
            with contextlib.suppress(DittoError):
                if "operator" in (await mq.admin.ha_status(_MASTER)).waiting_for:
                    cluster.accept_loss()
                    await mq.admin.change_role(name_of(cluster.brokers[0]), accept_loss=True)

    if not cluster.shape.needs_no_operator:
        await _as_client(cluster, "operator", look)


async def _settled(cluster: Cluster) -> bool:
    """Whether, after the faults, clients come to know of every message within a while."""
    try:
        async with asyncio.timeout(_SETTLE_S):
            for publisher in cluster.publishers:
                await publisher.settled.wait()
    except TimeoutError:
        cluster.world.transcript.lines.append(cluster.world.loop.stacks())
        unsettled = [publisher.name for publisher in cluster.publishers if not publisher.settled.is_set()]
        what = f"{_SETTLE_S:g} s after the faults {unsettled} still cannot publish to all copies, or know of all messages"
        cluster.problems.append(Broken(Invariant.I9, what))
        return False
    return True


async def _equal(cluster: Cluster) -> bool:
    """Whether, after the faults, every copy catches up within a while."""

    async def wait(mq: AsyncClient) -> None:
        while True:
            try:
                status = await mq.admin.ha_status(_MASTER)
            except DittoError:
                status = None
            if status is not None and len(status.nodes) > cluster.shape.slaves and all(node.flushed == status.end for node in status.nodes):
                return
            await asyncio.sleep(1.0)

    try:
        async with asyncio.timeout(_EQUAL_S):
            await _as_client(cluster, "watcher", wait)
    except TimeoutError:
        cluster.world.transcript.lines.append(cluster.world.loop.stacks())
        cluster.problems.append(Broken(Invariant.I9, f"{_EQUAL_S:g} s after the faults not every copy has caught up"))
        return False
    return True


async def _read_all(cluster: Cluster) -> None:
    async def read(mq: AsyncClient) -> None:
        for node in map(name_of, cluster.brokers):
            cluster.history.final_reads[node] = await read_everything(mq, node)

    await _as_client(cluster, "auditor", read)


async def _as_client(cluster: Cluster, name: str, work: Callable[[AsyncClient], Awaitable[None]]) -> None:
    """Do something as a client on a machine of its own, and wait until it is done."""

    async def serve(doors: BrokerDoors, _: asyncio.Event) -> None:
        async with AsyncClient(NAMESERVER, transport=doors.transport, clock=doors.clock, chance=doors.chance) as mq:
            await work(mq)
        done.set()

    done = asyncio.Event()
    cluster.world.node(name, serve).start()
    await done.wait()
