"""`dittomq role …`."""

from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, nameserver_address
from dittomq.cli.examples import example
from dittomq.cli.output import say, say_json

app = typer.Typer(name="role", help="Decide who leads.", no_args_is_help=True)


@app.callback()
def role() -> None:
    """Decide who leads."""


@app.command(epilog=example("role lead a/0 --accept-loss"))
def lead(
    node: Annotated[str, typer.Argument(help="The master that waits in recovery, for instance a/0.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Lead without the copies it waits for; what only they hold may be lost.")
    ] = False,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> None:
    """Let a master that waits in recovery lead now.

    Refused where nothing is waited for, and without --accept-loss: `dittomq ha-status` says what the master waits for.
    """
    from dittomq.client import Client

    with Client(nameserver_address(nameserver)) as mq:
        change = mq.admin.change_role(node, accept_loss=accept_loss)
    if json:
        say_json({"node": node, "epoch": change.epoch, "may_be_lost": change.may_be_lost})
    else:
        say(f"{node} leads since epoch {change.epoch}; may be lost: {change.may_be_lost or 'nothing'}")
