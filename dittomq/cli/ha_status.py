"""`dittomq ha-status`: asks every node and says what is not in order."""

import asyncio
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, nameserver_address
from dittomq.cli.durations import seconds
from dittomq.cli.examples import example
from dittomq.cli.exits import Exit
from dittomq.cli.ha_report import ClusterReport, build_report, report_document, report_lines
from dittomq.cli.last_audit import last_audit
from dittomq.cli.output import hint, say, say_json
from dittomq.errors import DittoError, OutOfReach
from dittomq.ha_status import HaStatus

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import AsyncClient

_WATCH_EVERY_S = 2.0
_WAIT_EVERY_S = 0.2


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("ha-status", epilog=example("ha-status", "ha-status --wait in-sync --timeout 60s"))(ha_status)


def ha_status(
    json: JsonFlag = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again every 2 s, until interrupted.")] = False,
    wait: Annotated[str | None, typer.Option("--wait", metavar="CONDITION", help="Wait until the condition holds: in-sync.")] = None,
    timeout: Annotated[str, typer.Option("--timeout", help="How long to wait.")] = "60s",
    nameserver: Nameserver = None,
) -> int:
    """Show replication as every node sees it.

    Exit code 3 when something needs attention; lags and positions that nobody knows are shown as unknown.
    """
    if wait not in (None, "in-sync"):
        raise typer.BadParameter(f'"{wait}" is not a condition; in-sync is', param_hint="--wait")
    address = nameserver_address(nameserver)
    if watch:
        _watch(address, json)
    report = _wait_in_sync(address, seconds(timeout)) if wait else _ask(address)
    _show(report, json)
    return Exit.PARTLY if report.needs_attention else Exit.DONE


async def ask_every_node(mq: "AsyncClient") -> ClusterReport:
    """What every node that the nameserver knows says now; a node that does not answer is part of the report."""
    nodes = await mq.admin.list_brokers()

    async def ask(address: str) -> HaStatus | DittoError:
        try:
            return await mq.admin.ha_status(address)
        except DittoError as error:
            return error

    async with asyncio.TaskGroup() as tasks:
        asked = {node.name: tasks.create_task(ask(node.address)) for node in nodes}
    report = build_report(nodes, {name: task.result() for name, task in asked.items()})
    return replace(report, last_audit=last_audit(report.cluster))


def _ask(nameserver: str) -> ClusterReport:
    from dittomq.client import AsyncClient

    async def ask() -> ClusterReport:
        async with AsyncClient(nameserver) as mq:
            return await ask_every_node(mq)

    return asyncio.run(ask())


def _wait_in_sync(address: str, timeout_s: float) -> ClusterReport:
    """The report once all is in sync, or the last one within the time; a nameserver that does not answer is asked again until then."""
    deadline = time.monotonic() + timeout_s
    while True:
        late = time.monotonic() >= deadline
        try:
            report = _ask(address)
        except OutOfReach:
            if late:
                raise
        else:
            if report.in_sync:
                return report
            if late:
                hint(f"not in sync after {timeout_s:g} s: {report.missing}")
                return report
        time.sleep(_WAIT_EVERY_S)


def _watch(address: str, json: bool) -> None:
    while True:
        report = _ask(address)
        if json:
            say_json(report_document(report), stream=True)
        else:
            if sys.stdout.isatty():
                sys.stdout.write("\x1b[2J\x1b[H")
            _show(report, json)
        sys.stdout.flush()
        time.sleep(_WATCH_EVERY_S)


def _show(report: ClusterReport, json: bool) -> None:
    if json:
        say_json(report_document(report))
        return
    for line in report_lines(report, time.time_ns() // 1_000_000):
        say(line)
