"""`dittomq top`: nodes, topics and consumer groups, and what they do just now."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.ha_asking import ask_every_node
from dittomq.cli.output import flush, hint, printable, say, say_json
from dittomq.cli.quantities import seconds
from dittomq.cli.top_screen import ClusterSample, ScreenSize, document, screen
from dittomq.consumer_progress import GroupProgress
from dittomq.errors import DittoError, GroupNotFound, TopicNotFound

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient
    from dittomq.client.access import ClusterAccess

T = TypeVar("T")

_PERIOD: Final = "2s"
_LEAST_S: Final = 0.2
_MOST_ASKED: Final = 100  # topics, and consumer groups
_AT_ONCE: Final = 8
_CLEAR_SCREEN: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top", epilog=example("top --once", "top --once --json --interval 1s"))(top)


def top(
    once: Annotated[bool, typer.Option("--once", help="Look twice, print it, and end.")] = False,
    interval: Annotated[str, typer.Option("--interval", help="Between two looks, and what rates are the mean of.")] = _PERIOD,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Show nodes, topics and consumer groups with their rates, until interrupted.

    Rates are differences of two looks. What nobody answers is shown as unknown. Of topics and of groups the first 100 by name are asked
    for. With --once the exit code is 3 when something needs attention.
    """
    if json and not once:
        raise typer.BadParameter("prints one document; give --once too", param_hint="--json")
    period_s = seconds(interval, "--interval")
    if period_s < _LEAST_S:
        raise typer.BadParameter(f'"{interval}" is too short; give {_LEAST_S:g}s or more', param_hint="--interval")
    access = cluster_access(nameserver)
    if once:
        return asyncio.run(_once(access, period_s, json=json))
    return asyncio.run(_follow(access, period_s))


async def _once(access: "ClusterAccess", period_s: float, *, json: bool) -> int:
    from dittomq.client import AsyncClient

    async with AsyncClient.of(access) as mq:
        before = await look(mq)
        await asyncio.sleep(max(0.0, before.at_s + period_s - time.monotonic()))
        now = await look(mq)
    if json:
        say_json(document(before, now))
    else:
        for line in screen(before, now, None):
            say(line)
    return ExitCode.PARTLY if now.report.needs_attention else ExitCode.DONE


async def _follow(access: "ClusterAccess", period_s: float) -> int:
    """Show one look after the other. Where nameservers fall silent, what was seen last stays, with the reason."""
    from dittomq.client import AsyncClient

    before: ClusterSample | None = None
    async with AsyncClient.of(access) as mq:
        now = await look(mq)  # a wrong address is told at once
        _show(before, now, "", clear=True)
        while True:
            await asyncio.sleep(max(0.0, now.at_s + period_s - time.monotonic()))
            problem = ""
            try:
                before, now = now, await look(mq)
            except DittoError as error:
                problem = str(error)
                await asyncio.sleep(period_s)
            _show(before, now, problem, clear=False)


def _show(before: ClusterSample | None, now: ClusterSample, problem: str, *, clear: bool) -> None:
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":  # what the terminal can do
        for line in screen(before, now, None):
            say(line)
        say()
        if problem:
            hint(f"as seen last: {problem}")
    else:
        columns, lines = shutil.get_terminal_size()
        shown = screen(before, now, ScreenSize(columns, lines - (2 if problem else 1)))
        shown += [f"as seen last: {printable(problem)}"[:columns]] if problem else []
        text = "".join(f"{line}{_REST_OF_LINE}\n" for line in shown)
        sys.stdout.write(f"{_CLEAR_SCREEN if clear else ''}{_HOME}{text}{_REST_OF_SCREEN}")
    flush()


async def look(mq: "AsyncClient") -> ClusterSample:
    """Ask everybody once. Raises Unavailable when no nameserver answers."""
    nodes = await mq.admin.list_brokers()
    at_s = time.monotonic()
    report = await ask_every_node(mq)
    topics, groups = (
        (
            sorted({row.name for result in results for row in result.value or ()})
            for results in (await mq.admin.list_topics(), await mq.admin.list_groups())
        )
        if nodes
        else ([], [])
    )
    room = asyncio.Semaphore(_AT_ONCE)

    async def ends(topic: str) -> dict[str, int]:
        results = await mq.admin.describe_topic(topic)
        return {each.broker: sum(queue.max_offset for queue in each.value.queues) for each in results if each.value is not None}

    async def progress(group: str) -> dict[str, GroupProgress]:
        return {each.broker: each.value for each in await mq.admin.group_progress(group) if each.value is not None}

    return ClusterSample(
        at_s=at_s,
        report=report,
        epochs={node.name: node.epoch for node in nodes},
        ends=await _each(topics[:_MOST_ASKED], ends, room),
        progress=await _each(groups[:_MOST_ASKED], progress, room),
        topics_left_out=max(0, len(topics) - _MOST_ASKED),
        groups_left_out=max(0, len(groups) - _MOST_ASKED),
    )


async def _each(names: Iterable[str], ask: Callable[[str], Awaitable[dict[str, T]]], room: asyncio.Semaphore) -> dict[str, dict[str, T]]:
    """What is answered of each, a few at a time; what was deleted meanwhile is left out."""

    async def answered(name: str) -> dict[str, T] | None:
        async with room:
            try:
                return await ask(name)
            except (TopicNotFound, GroupNotFound):
                return None
            except DittoError:
                return {}

    async with asyncio.TaskGroup() as tasks:
        asked = {name: tasks.create_task(answered(name)) for name in names}
    return {name: found for name, task in asked.items() if (found := task.result()) is not None}
