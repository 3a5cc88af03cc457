"""`dittomq role …`."""

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, nameserver_address
from dittomq.cli.examples import example
from dittomq.cli.exits import Exit
from dittomq.cli.output import hint, say, say_json
from dittomq.errors import DittoError, OutOfReach
from dittomq.ha_status import HaStatus
from dittomq.routes import Role

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Client

_COMES_BACK_S: Final = 60.0
_SLAVES_JOIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.05

app = typer.Typer(name="role", help="Decide who leads.", no_args_is_help=True)


@app.callback()
def role() -> None:
    """Decide who leads."""


@app.command(epilog=example("role lead a/1", "role lead a/1 --old-master-is-stopped", "role lead a/0 --accept-loss"))
def lead(
    node: Annotated[str, typer.Argument(help="The node that is to lead its broker group, for instance a/1.")],
    old_master_is_stopped: Annotated[
        bool, typer.Option("--old-master-is-stopped", help="The master that led until now does not run; you made sure of it.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Lead without the copies that must be heard; what only they hold may be lost.")
    ] = False,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Let a slave take its master's place, or a master lead now that waits in recovery or has stopped its writes.

    A master that is there hands its place over when the slave holds all of its log, and comes back as a slave; producers wait meanwhile.
    What is missing is refused by name and nothing is changed. Exit code 3 when the node leads, and takes no writes 10 s later.
    """
    from dittomq.client import Client

    began = time.monotonic()
    with Client(nameserver_address(nameserver)) as mq:
        address = _address_of(mq, node)
        change = mq.admin.change_role(node, accept_loss=accept_loss, old_master_is_stopped=old_master_is_stopped)
        took = ""
        if change.comes_back:
            hint(f"{node} comes back and opens epoch {change.epoch}; waiting until it leads")
            status = _wait_until(mq, node, address, lambda status: status.role != Role.SLAVE and status.epoch >= change.epoch)
            took = f" after {time.monotonic() - began:.1f} s"
        else:
            status = mq.admin.ha_status(address)
        missing = _missing_for_writes(mq, address, status)
    if json:
        say_json({"node": node, "epoch": change.epoch, "may_be_lost": change.may_be_lost})
    else:
        say(f"{node} leads since epoch {change.epoch}{took}; may be lost: {change.may_be_lost or 'nothing'}")
    if missing:
        hint(f"{node} takes no writes yet: {missing}; dittomq ha-status says more")
    return Exit.PARTLY if missing else Exit.DONE


@app.command(epilog=example("role follow a/0"))
def follow(
    node: Annotated[
        str, typer.Argument(help="The node that is to be a slave, for instance a/0, or host:port where no nameserver takes it in.")
    ],
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> None:
    """Let a master that waits in recovery be a slave of the node that leads its group.

    A master that leads is refused: say who is to lead instead, with `dittomq role lead NODE`.
    """
    from dittomq.client import Client

    with Client(nameserver_address(nameserver)) as mq:
        address = _address_of(mq, node)
        change = mq.admin.change_role(node, leads=False)
        if change.comes_back:
            _wait_until(mq, node, address, lambda status: status.role == Role.SLAVE)
    if json:
        say_json({"node": node, "epoch": change.epoch, "may_be_lost": change.may_be_lost})
    else:
        say(f"{node} follows; the newest epoch that it knows of is {change.epoch}")


def _address_of(mq: "Client", node: str) -> str:
    """Where the node is reached now, and when it is back; the name itself when nameservers do not know it, and then they say so."""
    return next((known.address for known in mq.admin.list_brokers() if known.name == node), node)


def _wait_until(mq: "Client", node: str, address: str, is_back: Callable[[HaStatus], bool]) -> HaStatus:
    """What the node says as soon as it is back in its new role; OutOfReach after a minute."""
    until = time.monotonic() + _COMES_BACK_S
    problem = "it is not back"
    while time.monotonic() < until:
        try:
            status = mq.admin.ha_status(address)
        except DittoError as error:
            problem = str(error)
        else:
            problem = status.waiting_for or problem
            if is_back(status):
                return status
        time.sleep(_LOOK_EVERY_S)
    raise OutOfReach(node, f"its role was changed, and after {_COMES_BACK_S:.0f} s {problem}; dittomq ha-status says more")


def _missing_for_writes(mq: "Client", address: str, status: HaStatus) -> str:
    """What keeps the node that leads from taking writes, empty for nothing; slaves that look for their new master get 10 s to join it."""
    until = time.monotonic() + _SLAVES_JOIN_S
    while not status.writable and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
        with contextlib.suppress(DittoError):
            status = mq.admin.ha_status(address)
    return status.why_not_writable
