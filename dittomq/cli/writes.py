"""`dittomq writes …`: whether routes name a broker group for writing."""

from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.exits import ExitCode, exit_of
from dittomq.cli.output import hint, printable, say, say_json

app = typer.Typer(name="writes", help="Whether routes name a broker group for writing.", no_args_is_help=True)

_Broker = Annotated[str, typer.Argument(help="The broker group, for instance a.")]


@app.callback()
def writes() -> None:
    """Whether routes name a broker group for writing."""


@app.command(epilog=example("writes off a"))
def off(broker: _Broker, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """Take a broker group out of all routes for writing, before it is taken down for good: producers leave it within 30 s.

    Nameservers keep this until the group is given back. Its messages can be read as before. An order key moves to another queue, unless
    the topic has an order configuration.
    """
    return _set(broker, nameserver, writable=False, json=json)


@app.command(epilog=example("writes on a"))
def on(broker: _Broker, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """Let routes name a broker group for writing again."""
    return _set(broker, nameserver, writable=True, json=json)


def _set(broker: str, nameserver: str | None, *, writable: bool, json: bool) -> int:
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        results = mq.admin.set_writable(broker, writable=writable)
    failed = [result for result in results if result.error is not None]
    if json:
        done = [{"nameserver": each.nameserver, "topics": each.topics} for each in results if each.error is None]
        errors = [{"nameserver": each.nameserver, "error": str(each.error)} for each in failed]
        say_json({"broker": broker, "writable": writable, "done": done, "failed": errors})
    else:
        words = "names it for writing" if writable else "names it for reading only"
        for each in results:
            if each.error is None:
                say(f"{printable(broker)}  nameserver {each.nameserver} {words} in the routes of {each.topics:,} topics")
    for each in failed:
        hint(f"nameserver {each.nameserver}: {each.error}")
    if not failed:
        return ExitCode.DONE
    return ExitCode.PARTLY if len(failed) < len(results) else max(exit_of(each.error) for each in failed if each.error is not None)
