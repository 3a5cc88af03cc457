"""What happens to the master, or to its coordination store, while eight producers publish; and what each run found."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from bench.failover.group import TOPIC, LogCheck, MeasuredGroup, until
from bench.failover.load import ProducerLoad
from bench.replication.pairs import up
from dittomq.testing.state import NAMESERVER
from tests.support.direct_writer import DirectWriter
from tests.support.etcd import Etcd
from tests.support.partitioned_network import PartedNetwork
from tests.support.traffic import is_confirmed

_WARM_S = 1.0
_REST_S = 0.5
_AWAY_S = 8.0  # longer than any silence that the settings allow


@dataclass(frozen=True, slots=True)
class ScenarioContext:
    """What a scenario may use beside the group: where there is one, an etcd, or a network that can be parted."""

    etcd: Etcd | None = None
    network: PartedNetwork | None = None


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One run. `follows_s`: from the old master's start, or its way back, until it was in sync; None: it was never away.

    `late`: what a master acknowledged at a REPLICA level after another one led, while it was suspended or parted. When it is back it may
    still tell what its slaves had acknowledged before; that must be in the log. `problem`: what else must not be.
    """

    pause_s: float
    follows_s: float | None
    acknowledged: int
    failures: Mapping[str, int]
    checked: LogCheck
    late: int = 0
    problem: str = ""

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, there twice, or wrong."""
        return not (self.checked.lost or self.checked.twice or self.checked.wrong or self.problem)


@dataclass(slots=True)
class _Observed:
    """What a scenario notes while it happens."""

    follows_s: float | None = None
    late: int = 0
    problem: str = ""


async def kill(group: MeasuredGroup, around: ScenarioContext) -> ScenarioRun:
    """SIGKILL of the master; it is started again when the others have failed over."""
    del around
    return await _under_load(group, lambda load, seen: _killed(group, load, seen))


async def stop(group: MeasuredGroup, around: ScenarioContext) -> ScenarioRun:
    """SIGSTOP of the master, and SIGCONT when the others have failed over."""
    del around

    @asynccontextmanager
    async def suspended(old: str) -> AsyncIterator[None]:
        group.suspend(old)
        try:
            yield
        finally:
            group.resume(old)

    return await _under_load(group, lambda load, seen: _fenced(group, load, seen, suspended))


async def part(group: MeasuredGroup, around: ScenarioContext) -> ScenarioRun:
    """The master is parted from its slaves and the coordination store, and clients reach everybody; later the network is whole again."""
    network = around.network
    assert network is not None, "the scenario has one"

    @asynccontextmanager
    async def parted(old: str) -> AsyncIterator[None]:
        others = [NAMESERVER, *(name for name in group.names if name != old)]
        await asyncio.to_thread(network.part, [old], others)
        try:
            yield
        finally:
            await asyncio.to_thread(network.heal)

    return await _under_load(group, lambda load, seen: _fenced(group, load, seen, parted))


async def switchover(group: MeasuredGroup, around: ScenarioContext) -> ScenarioRun:
    """An operator lets the next node lead."""
    del around

    async def act(load: ProducerLoad, seen: _Observed) -> None:
        old = await group.master()
        target = group.names[(group.names.index(old) + 1) % len(group.names)]
        before = await group.epoch()
        await group.mq.admin.switchover(target)
        leads = await group.master(but=(old,))
        if leads != target:
            seen.problem = f"{leads} leads, and {target} was to"
        if await group.epoch() != before + 1:
            seen.problem = f"more than one election: epoch {before} became {await group.epoch()}"
        await load.passed(time.monotonic())

    return await _under_load(group, act)


async def etcd_members(group: MeasuredGroup, around: ScenarioContext) -> ScenarioRun:
    """Two of three members of etcd are killed: nobody is elected and writes go on. They come back, and the master is killed."""
    etcd = around.etcd
    assert etcd is not None, "the scenario has one"

    async def act(load: ProducerLoad, seen: _Observed) -> None:
        before = await group.epoch()
        await asyncio.to_thread(etcd.kill, 1, 2)
        await asyncio.sleep(_AWAY_S)
        await load.passed(time.monotonic())
        if load.pause_s > _REST_S + 1 or load.failures:
            seen.problem = f"writes waited {load.pause_s:.2f} s without etcd, failures {dict(load.failures)}"
        if await group.epoch() != before:
            seen.problem = f"epoch {before} became {await group.epoch()} without etcd"
        await asyncio.to_thread(etcd.start, 1, 2)

        async def answers() -> bool:
            status = await group.status(await group.master())
            return status is not None and not status.coordination_problem

        await until(answers, "etcd answers again")
        await _killed(group, load, seen)

    return await _under_load(group, act)


async def _under_load(group: MeasuredGroup, act: Callable[[ProducerLoad, _Observed], Awaitable[None]]) -> ScenarioRun:
    """Let it happen to a whole group while eight producers publish; then read everything back."""
    seen = _Observed()
    await group.whole()
    async with group.load() as load:
        await load.passed(time.monotonic() + _WARM_S)
        await act(load, seen)
        await asyncio.sleep(_REST_S)
    checked = await group.check(load.told)
    return ScenarioRun(load.pause_s, seen.follows_s, load.acknowledged, dict(load.failures), checked, seen.late, seen.problem)


async def _killed(group: MeasuredGroup, load: ProducerLoad, seen: _Observed) -> None:
    old = await group.master()
    await asyncio.to_thread(group.cluster.kill, old)
    await load.passed(time.monotonic())
    await asyncio.sleep(_REST_S)
    started = time.monotonic()
    await asyncio.to_thread(group.cluster.start_node, old)
    await group.follows(old)
    seen.follows_s = time.monotonic() - started


async def _fenced(
    group: MeasuredGroup, load: ProducerLoad, seen: _Observed, away: Callable[[str], AbstractAsyncContextManager[None]]
) -> None:
    """Somebody writes at the old master all the time, also while it is away."""
    old, epoch = await group.master(), await group.epoch()
    writer = DirectWriter(group.cluster.node(old).address, TOPIC, load.told)
    async with up(writer.writing()):
        await load.passed(time.monotonic())
        async with away(old):
            await group.master(but=(old,))
            await load.passed(time.monotonic())
            before = len(writer.receipts)
            await asyncio.sleep(_REST_S)
            told = writer.receipts[before:]
        back = time.monotonic()
        await group.follows(old)
        seen.follows_s = time.monotonic() - back
    seen.late = sum(receipt.epoch == epoch and is_confirmed(receipt) for receipt in told)
