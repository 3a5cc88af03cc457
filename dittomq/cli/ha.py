"""`dittomq ha …`: replication and failover of broker groups."""

import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode
from dittomq.cli.ha_asking import status
from dittomq.cli.interrupted import report_interrupt
from dittomq.cli.output import clock_date, clock_time, hint, say, say_json, table
from dittomq.errors import DittoError
from dittomq.ha_status import HaStatus

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Client
    from dittomq.wire.admin import HaChange

_ELECTED_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05
_INTERRUPTED: Final = "interrupted; the election may go on: dittomq ha status says who is the master"

app = typer.Typer(name="ha", help="Replication and failover of broker groups.", no_args_is_help=True)
app.command(epilog=example("ha status", "ha status --wait in-sync --timeout 60s"))(status)

_ValidateOnly = Annotated[bool, typer.Option("--dry-run", help="Check only: say what would happen, and change nothing.")]


@app.callback()
def ha() -> None:
    """Replication and failover of broker groups."""


@app.command(epilog=example("ha switchover a/1 --dry-run", "ha switchover a/1"))
def switchover(
    node: Annotated[str, typer.Argument(help="The slave that is to be the master, for instance a/1.")],
    dry_run: _ValidateOnly = False,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Let a slave of the in-sync set take its master's place, with the master's help: nothing is lost, and writes wait for a moment.

    Exit code 4 when it is not the master 30 s later: see dittomq ha status.
    """
    from dittomq.client import Client

    began = time.monotonic()
    with report_interrupt(_INTERRUPTED), Client.of(cluster_access(nameserver)) as mq:
        answer = mq.admin.switchover(node, validate_only=dry_run)
        if dry_run:
            say_json({"node": node, "epoch": answer.epoch}) if json else say(f"{node} would be promoted in an epoch above {answer.epoch}")
            return ExitCode.DONE
        return _promoted(mq, node, answer.epoch, began, json=json)


@app.command(epilog=example("ha failover a/1 --dry-run", "ha failover a/1", "ha failover a/1 --allow-data-loss"))
def failover(
    node: Annotated[str, typer.Argument(help="The node that is to be the master, for instance a/1.")],
    allow_data_loss: Annotated[
        bool,
        typer.Option(
            "--allow-data-loss", help="Elect it also where acknowledged messages may be lost. Stop the nodes that do not answer first."
        ),
    ] = False,
    dry_run: _ValidateOnly = False,
    json: JsonFlag = False,
    *,
    nameserver: Nameserver = None,
) -> int:
    """Let a node stand for election while its master does not answer, or is to be passed over. What cannot be won is refused by name.

    Exit code 4 when it is not the master 30 s later: see dittomq ha status.
    """
    from dittomq.client import Client

    began = time.monotonic()
    with report_interrupt(_INTERRUPTED), Client.of(cluster_access(nameserver)) as mq:
        answer = mq.admin.failover(node, allow_data_loss=allow_data_loss, validate_only=dry_run)
        lost = answer.data_loss or "nothing"
        if answer.silent and answer.data_loss:
            hint(f"nothing fences {', '.join(answer.silent)}: stop them before they take writes again")
        if dry_run:
            loss = {"data_loss": answer.data_loss or None, "data_loss_above_offset": answer.data_loss_above}
            document = {"node": node, **loss, "silent": list(answer.silent)}
            say_json(document) if json else say(f"{node} would stand for election; data loss: {lost}")
            return ExitCode.DONE
        return _promoted(mq, node, answer.epoch, began, json=json, data_loss=answer.data_loss)


@app.command(epilog=example("ha pause a"))
def pause(
    broker: Annotated[str, typer.Argument(help="The broker group, for instance a.")],
    dry_run: _ValidateOnly = False,
    nameserver: Nameserver = None,
) -> int:
    """Stop automatic failover of a group: only its master, or the node that an operator names, stands for election."""
    return _set_paused(broker, paused=True, dry_run=dry_run, nameserver=nameserver)


@app.command(epilog=example("ha resume a"))
def resume(
    broker: Annotated[str, typer.Argument(help="The broker group, for instance a.")],
    dry_run: _ValidateOnly = False,
    nameserver: Nameserver = None,
) -> int:
    """Start automatic failover of a group again."""
    return _set_paused(broker, paused=False, dry_run=dry_run, nameserver=nameserver)


@app.command(epilog=example("ha history a", "ha history a --json"))
def history(
    broker: Annotated[str, typer.Argument(help="The broker group, for instance a.")],
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> None:
    """Show the last 1,000 changes of a group's record, oldest first: when, what, why and how long."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        changes = mq.admin.ha_history(broker)
    if json:
        say_json({"broker": broker, "changes": [_document(change) for change in changes]})
        return
    rows = [("TIME", "REVISION", "EPOCH", "MASTER", "MEMBERS", "TOOK", "CAUSE")]
    for change in changes:
        when = f"{clock_date(change.time_ms)} {clock_time(change.time_ms)}"
        took = f"{change.duration_ms / 1000:.2f} s"
        rows.append((when, f"{change.revision}", f"{change.epoch}", change.master, " ".join(change.members), took, change.cause))
    for line in table(rows):
        say(line)


def _document(change: "HaChange") -> dict[str, object]:
    return {
        "time_ms": change.time_ms,
        "revision": change.revision,
        "epoch": change.epoch,
        "master": change.master,
        "members": list(change.members),
        "cause": change.cause,
        "duration_ms": change.duration_ms,
    }


def _set_paused(broker: str, *, paused: bool, dry_run: bool, nameserver: str | None) -> int:
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        changed = mq.admin.set_paused(broker, paused=paused, validate_only=dry_run)
    state = "paused" if paused else "automatic"
    if dry_run:
        say(f"{broker}: failover would be {state}{'' if changed else ', as it is'}")
    else:
        say(f"{broker}: failover is {state}{'' if changed else ', as before'}")
    return ExitCode.DONE


def _promoted(mq: "Client", node: str, epoch: int, began: float, *, json: bool, data_loss: str = "") -> int:
    """Wait until the node is the master of a higher epoch and takes writes, and say so; exit code 4 where that is not seen in time."""
    problem = "it does not answer yet"
    while time.monotonic() - began < _ELECTED_S:
        found = _look(mq, node)
        if isinstance(found, HaStatus) and found.role != "SLAVE" and found.epoch > epoch and found.writable:
            took_s, lost = time.monotonic() - began, f" · data loss: {data_loss}" if data_loss else ""
            if json:
                say_json({"node": node, "epoch": found.epoch, "seconds": round(took_s, 2), "data_loss": data_loss or None})
            else:
                say(f"{node} promoted in epoch {found.epoch} · after {took_s:.1f} s{lost}")
            return ExitCode.DONE
        problem = _why_not_yet(found) if isinstance(found, HaStatus) else found
        time.sleep(_LOOK_EVERY_S)
    hint(f"{node} is not the master after {_ELECTED_S:g} s: {problem}; see dittomq ha status")
    return ExitCode.UNKNOWN


def _why_not_yet(found: HaStatus) -> str:
    """Why a node that answers is not the master of a new epoch, as a clause."""
    if found.role == "SLAVE":
        return f"it is a slave and waits for {found.waiting_for}" if found.waiting_for else "it is a slave"
    return found.why_not_writable or f"it leads in epoch {found.epoch} still"


def _look(mq: "Client", node: str) -> HaStatus | str:
    """What the node says, or why it does not."""
    try:
        return mq.admin.ha_status(node)
    except DittoError as error:
        return str(error)
