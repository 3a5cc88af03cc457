"""`dittomq ha status`: asks every node and says what is not in order."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.cli.audited import last_audit
from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.exits import ExitCode
from dittomq.cli.ha_report import ClusterReport, build_report, report_document, report_lines
from dittomq.cli.output import flush, hint, say, say_json
from dittomq.cli.quantities import seconds
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus
from dittomq.routes import Node

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient
    from dittomq.client.access import ClusterAccess
    from dittomq.client.ha_watch import ClusterView

_WATCH_S = 0.5
_WAIT_S = 0.2
_TIMEOUT = "60s"
_CLEAR_SCREEN = "\x1b[2J\x1b[H"


def status(
    json: JsonFlag = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="At once, then whenever it changes, at most twice a second, until interrupted.")
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="CONDITION", help="Wait for it. in-sync: every master takes writes and has all its configured slaves in sync."
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help=f"How long to wait, {_TIMEOUT} by default; then say what is missing, and exit with 3."),
    ] = None,
    *,
    nameserver: Nameserver = None,
) -> int:
    """Show replication as every node sees it.

    Exit code 3 when something needs attention; lags and positions that no node knows are shown as unknown.
    """
    if wait not in (None, "in-sync"):
        raise typer.BadParameter(f'"{wait}" is not a condition; in-sync is', param_hint="--wait")
    if wait and watch:
        raise typer.BadParameter("does not go with --watch, which never ends", param_hint="--wait")
    if timeout and not wait:
        raise typer.BadParameter("is how long --wait waits; add --wait in-sync", param_hint="--timeout")
    timeout_s = seconds(timeout or _TIMEOUT, "--timeout")
    access = cluster_access(nameserver)
    if watch:
        asyncio.run(_watch(access, json))
    if wait:
        return asyncio.run(_wait_in_sync(access, timeout_s, json))
    report = asyncio.run(_ask(access))
    _show(report, json)
    return ExitCode.PARTLY if report.needs_attention else ExitCode.DONE


async def ask_every_node(mq: "AsyncClient") -> ClusterReport:
    """What every node that the nameserver knows says now; a node that does not answer is part of the report."""
    from dittomq.client.ha_watch import status_of

    nodes = await mq.admin.list_brokers()

    async def ask(node: Node) -> HaStatus | DittoError:
        try:
            return status_of(node, await mq.admin.ha_status(node.address))
        except DittoError as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        asked = {node.name: tasks.create_task(ask(node)) for node in nodes}
    answers = {name: task.result() for name, task in asked.items()}
    return _with_audit(build_report(nodes, answers))


async def _ask(access: "ClusterAccess") -> ClusterReport:
    from dittomq.client import AsyncClient

    async with AsyncClient.of(access) as mq:
        return await ask_every_node(mq)


async def _wait_in_sync(access: "ClusterAccess", timeout_s: float, json: bool) -> int:
    """Show the report once all is in sync, or what is known when the time is up; nameservers that do not answer are asked until then."""
    from dittomq.client import AsyncClient

    seen: list[ClusterReport] = []

    def enough(view: "ClusterView") -> bool:
        seen[:] = [_report(view)]
        return seen[0].in_sync

    async with AsyncClient.of(access) as mq:
        watch = mq.watch_cluster(period_s=_WAIT_S)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await watch.until(enough)
        view = watch.view
    if not seen and view is not None:  # somebody has not answered yet
        seen = [_report(view)]
    if not seen:
        hint(f"not in sync after {timeout_s:g} s, as far as anybody can tell: {watch.problem or 'no nameserver has answered'}")
        return ExitCode.PARTLY
    [report] = seen
    _show(report, json)
    if report.in_sync:
        return ExitCode.DONE
    hint(f"not in sync after {timeout_s:g} s: {report.missing}")
    return ExitCode.PARTLY


async def _watch(access: "ClusterAccess", json: bool) -> None:
    await _ask(access)  # a wrong address is told at once

    def show(report: ClusterReport, problem: DittoError | None) -> bool:
        if json:
            say_json(report_document(report), stream=True)
        else:
            if sys.stdout.isatty():
                sys.stdout.write(_CLEAR_SCREEN)
            _show(report, json)
        flush()
        if problem is not None:
            hint(f"nodes as they were listed last: {problem}")
        return False

    await _follow(access, _WATCH_S, show)


async def _follow(access: "ClusterAccess", period_s: float, enough: Callable[[ClusterReport, DittoError | None], bool]) -> None:
    """Hand over reports as the cluster changes, and why no nameserver answers, until one is enough."""
    from dittomq.client import AsyncClient

    async with AsyncClient.of(access) as mq:
        watch = mq.watch_cluster(period_s=period_s)
        await watch.until(lambda view: enough(_report(view), view.problem))


def _report(view: "ClusterView") -> ClusterReport:
    return _with_audit(build_report(view.nodes, view.answers))


def _with_audit(report: ClusterReport) -> ClusterReport:
    return replace(report, last_audit=last_audit(report.cluster))


def _show(report: ClusterReport, json: bool) -> None:
    if json:
        say_json(report_document(report))
        return
    for line in report_lines(report, time.time_ns() // 1_000_000):
        say(line)
