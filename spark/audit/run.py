"""⑨ One audit from the survey to the conclusion. The runner decides where the work is done; Spark's is in `session`."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from dittomq.client.replica_reader import ReplicaReader
from dittomq.doors.clock import Clock
from dittomq.doors.transport import Transport
from dittomq.doors.workers import Workers
from dittomq.rpc.channel import Channels
from spark.audit.conclude import Evidence, conclude
from spark.audit.model import GroupAudit, GroupPlan, GroupSurvey, Leaf, LeafResult, LeafTask, RunResult, SliceResult, SliceTask, Surveyed
from spark.audit.pinning import Pinning
from spark.audit.plan import changes, late, plan
from spark.audit.sources import registered, survey

ASK_DEADLINE_S = 10.0
MAX_LEAVES_READ = 256
LAST_SURVEYS = 5
"""So often copies are asked at the end, a pause apart, whether they got by now what was confirmed when the run began."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What to audit: the nameservers "host:port", with commas between, one broker group or all, and the pause before a second look."""

    nameserver: str
    broker: str | None = None
    backoff_s: float = 1.0


@dataclass(frozen=True, slots=True)
class World:
    """The doors of an audit's driver."""

    transport: Transport
    clock: Clock
    chance: random.Random
    workers: Workers


class Runner(Protocol):
    """Does tasks somewhere, in any order."""

    def slices(self, tasks: Sequence[SliceTask]) -> list[SliceResult]: ...

    def leaves(self, tasks: Sequence[LeafTask]) -> list[LeafResult]: ...


def audit(settings: Settings, world: World, runner: Runner) -> RunResult:
    """Audit a cluster. Raises Unavailable when no nameserver answers."""
    return asyncio.run(_audit(settings, world, runner))


async def _audit(settings: Settings, world: World, runner: Runner) -> RunResult:
    started_ms = world.clock.wall_ms()
    run = datetime.fromtimestamp(started_ms / 1_000, UTC).strftime("%Y-%m-%dT%H-%M-%S.%f")[:-3] + "Z"
    salt = world.chance.getrandbits(64) | 1
    lane = world.workers.lane("runner")  # Spark blocks until a job is done
    async with Channels(world.transport) as channels:
        reader = ReplicaReader(channels, ASK_DEADLINE_S)
        pinning = Pinning(reader, run)
        try:
            await pinning.take(await registered(reader, settings.nameserver, settings.broker))
            before = await survey(reader, settings.nameserver, settings.broker)
            cut_ms = world.clock.wall_ms()
            plans = [plan(group) for group in before]
            tasks = [task for each in plans for task in _slice_tasks(each, salt)]
            sliced = await pinning.during(lane, lambda: runner.slices(tasks)) if tasks else []
            wanted = [task for each in plans for task in _leaf_tasks(each, sliced, settings.backoff_s)]
            leaves = await pinning.during(lane, lambda: runner.leaves(wanted)) if wanted else []
            after = await _survey_at_the_end(reader, settings, plans)
        finally:
            await pinning.release()
    results = tuple(_conclude(each, sliced, leaves, _what_happened(each, after, pinning)) for each in plans)
    name = f"broker group {settings.broker}" if settings.broker else "any broker"
    return RunResult(
        run=run,
        cluster=before[0].cluster if before else "",
        started_ms=started_ms,
        ended_ms=world.clock.wall_ms(),
        cut_ms=cut_ms,
        salt=salt,
        groups=results,
        problems=() if before else (f"no node of {name} is registered at {settings.nameserver}",),
    )


async def _survey_at_the_end(reader: ReplicaReader, settings: Settings, plans: Sequence[GroupPlan]) -> list[GroupSurvey]:
    """The last of a few surveys, of which one is enough once no copy is late."""
    for _ in range(LAST_SURVEYS - 1):
        after = await survey(reader, settings.nameserver, settings.broker)
        if not any(late(each, _nodes_of(each, after)) for each in plans):
            return after
        await asyncio.sleep(settings.backoff_s)
    return await survey(reader, settings.nameserver, settings.broker)


def _nodes_of(each: GroupPlan, found: Sequence[GroupSurvey]) -> tuple[Surveyed, ...]:
    return next((group.nodes for group in found if group.broker == each.broker), ())


def _slice_tasks(each: GroupPlan, salt: int) -> list[SliceTask]:
    addresses = tuple(copy.address for copy in each.copies)
    return [SliceTask(part, addresses, addresses[0], each.bounds, salt) for part in each.slices]


def _differing(each: GroupPlan, sliced: Sequence[SliceResult]) -> list[tuple[Leaf, SliceResult]]:
    found = [(leaf, result) for result in sliced if result.slice.broker == each.broker for leaf in result.leaves]
    return sorted(found, key=lambda pair: pair[0].start)


def _leaf_tasks(each: GroupPlan, sliced: Sequence[SliceResult], backoff_s: float) -> list[LeafTask]:
    addresses = {copy.node: copy.address for copy in each.copies}
    wanted = _differing(each, sliced)[:MAX_LEAVES_READ]
    return [LeafTask(leaf, tuple(addresses[node] for node in result.digested), each.bounds, backoff_s) for leaf, result in wanted]


def _what_happened(each: GroupPlan, after: Sequence[GroupSurvey], pinning: Pinning) -> list[str]:
    """What makes the result of a group unsafe."""
    now = _nodes_of(each, after)
    unheld = [pinning.problems[copy.address] for copy in each.copies if copy.address in pinning.problems]
    return [*changes(each.copies, now), *late(each, now), *unheld]


def _conclude(each: GroupPlan, sliced: Sequence[SliceResult], leaves: Sequence[LeafResult], happened: Sequence[str]) -> GroupAudit:
    evidence = Evidence(
        slices=[result for result in sliced if result.slice.broker == each.broker],
        leaves=[result for result in leaves if result.leaf.slice.broker == each.broker],
        unread=max(0, len(_differing(each, sliced)) - MAX_LEAVES_READ),
        changes=happened,
    )
    return conclude(each, evidence)
