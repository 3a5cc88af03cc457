"""`dittomq local …`: a real cluster of this folder, in `.dittomq/`."""

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from dittomq.cli.connect import JsonFlag
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.output import flush, hint, say, say_json, table
from dittomq.testing import LocalCluster, LocalNode, Shape

FOLDER = Path(".dittomq")

app = typer.Typer(name="local", help="A cluster on this machine; its data lies in .dittomq of the current folder.", no_args_is_help=True)


@app.command(epilog=example("local up --slaves 2", "local up --tls"))
def up(
    slaves: Annotated[int | None, typer.Option("--slaves", min=0, max=8, help="Slaves of the one broker group; 2 when never said.")] = None,
    tls: Annotated[bool | None, typer.Option("--tls/--no-tls", help="Encrypt all connections, with certificates of its own.")] = None,
) -> None:
    """Start a nameserver, a SYNC_MASTER and its slaves, or what of them does not run; make and pick the context `local`."""
    cluster = LocalCluster(FOLDER)
    before = cluster.state.shape if cluster.state is not None else Shape()
    asked = replace(before, slaves=before.slaves if slaves is None else slaves, tls=before.tls if tls is None else tls)
    if asked != before:
        cluster = LocalCluster(FOLDER, asked)
    started = cluster.start()
    took = cluster.wait_in_sync()
    _pick_context(cluster)
    roles = cluster.roles()
    nodes = " · ".join(
        f"{node.name} {roles[node.name] if '/' in node.name else ''}".strip() + f" :{node.ports.clients}" for node in cluster.nodes
    )
    news = f"in sync after {took:.1f} s" if started else "everything runs already"
    say(f"local: {nodes} · {news} · data in {FOLDER} · stop: dittomq local down")


@app.command(epilog=example("local down", "local down --delete"))
def down(delete: Annotated[bool, typer.Option("--delete", help="Delete the cluster's data too.")] = False) -> None:
    """End every process of this folder's cluster. Its data stays, unless asked otherwise."""
    cluster = _existing()
    stopped = cluster.stop()
    say(f"local: stopped {', '.join(stopped)}" if stopped else "local: nothing ran")
    if delete:
        cluster.delete()
        say(f"local: deleted the cluster's data in {FOLDER}")


@app.command(epilog=example("local status", "local status --pid a/0"))
def status(
    pid: Annotated[str | None, typer.Option("--pid", metavar="NODE", help="Only the process id of that node.")] = None,
    json: JsonFlag = False,
) -> int:
    """Show which processes run. Exit code 3 when one does not."""
    cluster = _existing()
    if pid is not None:
        say(str(cluster.pid(pid)))
        return ExitCode.DONE
    roles = cluster.roles()
    rows = [_row(cluster, node, roles[node.name]) for node in cluster.nodes]
    if json:
        say_json({"folder": str(cluster.folder), "nodes": rows})
    else:
        lines = [
            [str(row["node"]), str(row["role"]), str(row["address"]), f"runs, pid {row['pid']}" if row["pid"] else "does not run"]
            for row in rows
        ]
        for line in table([["NODE", "ROLE", "ADDRESS", "PROCESS"], *lines]):
            say(line)
    if all(row["pid"] for row in rows):
        return ExitCode.DONE
    hint("start what is missing: dittomq local up")
    return ExitCode.PARTLY


@app.command(epilog=example("local logs a/0 --lines 20"))
def logs(
    node: Annotated[str, typer.Argument(help="nameserver, a/0, a/1, …")] = "a/0",
    lines: Annotated[int, typer.Option("--lines", min=0, max=10_000_000, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new lines, until interrupted.")] = False,
) -> None:
    """Print what a node has logged."""
    path = _existing().log_file(node)
    if not path.exists():
        hint(f"{node} has printed nothing")
        return
    for line in _tail(path, lines, follow=follow):
        say(line)


def _existing() -> LocalCluster:
    cluster = LocalCluster(FOLDER)
    cluster.settled()
    return cluster


def _pick_context(cluster: LocalCluster) -> None:
    from dittomq.client.context import save_context, use_context

    access = cluster.access
    save_context("local", access.nameserver, access.tls)
    use_context("local")


def _row(cluster: LocalCluster, node: LocalNode, role: str) -> dict[str, Any]:
    alive = cluster.is_alive(node.name)
    return {
        "node": node.name,
        "role": role,
        "address": node.address,
        "pid": node.process.pid if node.process and alive else None,
        "data_dir": str(cluster.data_dir(node.name)),
        "log": str(cluster.log_file(node.name)),
    }


def _tail(path: Path, lines: int, *, follow: bool) -> Iterator[str]:
    with path.open(errors="replace") as log:
        yield from (line.rstrip("\n") for line in deque(log, maxlen=lines))
        while follow:
            line = log.readline()
            if line:
                yield line.rstrip("\n")
            else:
                flush()  # the reader of a pipe sees what there is
                time.sleep(0.2)
