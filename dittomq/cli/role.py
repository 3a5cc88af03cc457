"""`dittomq role …`."""

import contextlib
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, nameserver_address
from dittomq.cli.examples import example
from dittomq.cli.exits import Exit
from dittomq.cli.interrupted import told_when_interrupted
from dittomq.cli.output import hint, say, say_json
from dittomq.errors import DittoError, OutOfReach
from dittomq.ha_status import HaStatus
from dittomq.routes import Role

if TYPE_CHECKING:  # the client brings gRPC, which `--help` must not wait for
    from dittomq.client import Client

_COMES_BACK_S: Final = 60.0
_SLAVES_JOIN_S: Final = 10.0
_LOOK_EVERY_S: Final = 0.05
_DEAF_S: Final = 20.0  # longer than a node takes to open its store, which it does before it listens
_SAY_S: Final = 3.0
_SAY_AGAIN_S: Final = 10.0
_PROBE_S: Final = 1.0
_INTERRUPTED: Final = "interrupted; the change of roles may go on all the same: dittomq ha-status says who leads"

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
    What is missing is refused by name and nothing is changed. Exit code 3 when the node leads, and takes no writes 10 s later;
    4 when the master that leads now, or its disk, is so slow that it may give its place up later: give the command again.
    """
    from dittomq.client import Client

    began = time.monotonic()
    with told_when_interrupted(_INTERRUPTED), Client(nameserver_address(nameserver)) as mq:
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
    epoch = max(change.epoch, status.epoch)  # it may have started again meanwhile, and opened a newer one than it was granted
    if json:
        say_json({"node": node, "epoch": epoch, "may_be_lost": change.may_be_lost})
    else:
        say(f"{node} leads since epoch {epoch}{took}; may be lost: {change.may_be_lost or 'nothing'}")
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

    with told_when_interrupted(_INTERRUPTED), Client(nameserver_address(nameserver)) as mq:
        address = _address_of(mq, node)
        change = mq.admin.change_role(node, leads=False)
        if change.comes_back:
            _wait_until(mq, node, address, lambda status: status.role == Role.SLAVE)
    if json:
        say_json({"node": node, "epoch": change.epoch, "may_be_lost": change.may_be_lost})
    else:
        say(f"{node} follows; the newest epoch that it knows of is {change.epoch}")


def _address_of(mq: "Client", node: str) -> str:
    """Where the node is reached now, and when it is back: also without any nameserver where the address was given.

    The name itself when nameservers do not know it, and then they say so.
    """
    from dittomq.client.checks import is_address

    return node if is_address(node) else next((known.address for known in mq.admin.list_brokers() if known.name == node), node)


def _wait_until(mq: "Client", node: str, address: str, is_back: Callable[[HaStatus], bool]) -> HaStatus:
    """What the node says as soon as it is back in its new role; OutOfReach after a minute, sooner where nothing listens any more."""
    patience = Patience(node, address, time.monotonic())
    while True:
        try:
            status = mq.admin.ha_status(address)
        except DittoError as error:
            line = patience.heard(str(error), time.monotonic(), listens=somebody_listens(address))
        else:
            if is_back(status):
                return status
            line = patience.heard(status.waiting_for, time.monotonic(), listens=True)
        if line:
            hint(line)
        time.sleep(_LOOK_EVERY_S)


def somebody_listens(address: str) -> bool:
    """Whether connections to "host:port" are accepted there, or it cannot be told: a refusal alone shows that they are not.

    Waits a second at most.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
    except ConnectionRefusedError:
        return False
    except (OSError, ValueError):  # a name that nameservers do not know is no address
        return True
    return True


class Patience:
    """What somebody is told who waits until a node is back in its new role, and how long that may take. Pure."""

    def __init__(self, node: str, address: str, now: float) -> None:
        self._node = node
        self._address = address
        self._began = now
        self._problem = "it is not back"
        self._said = ("", now)  # the problem that was said last, and when
        self._deaf_since: float | None = None  # None: something listens

    def heard(self, problem: str, now: float, *, listens: bool) -> str:
        """A line for who waits, empty for none; `problem` "" is news of nothing. Raises OutOfReach when it is enough."""
        self._problem = problem or self._problem
        if listens:
            self._deaf_since = None
        elif self._deaf_since is None:
            self._deaf_since = now
        if self._deaf_since is not None and now - self._deaf_since >= _DEAF_S:
            dead = f"for {_DEAF_S:.0f} s nothing listens at {self._address}; look at its log, and start it again or let another node lead"
            raise OutOfReach(self._node, f"its role was changed, and {dead}")
        if now - self._began >= _COMES_BACK_S:
            raise OutOfReach(
                self._node, f"its role was changed, and after {_COMES_BACK_S:.0f} s {self._problem}; dittomq ha-status says more"
            )
        before, said = self._said
        if now - said < (_SAY_AGAIN_S if self._problem == before else _SAY_S):
            return ""
        self._said = (self._problem, now)
        return f"still waiting for {self._node} after {now - self._began:.0f} s: {self._problem}"


def _missing_for_writes(mq: "Client", address: str, status: HaStatus) -> str:
    """What keeps the node that leads from taking writes, empty for nothing; slaves that look for their new master get 10 s to join it."""
    until = time.monotonic() + _SLAVES_JOIN_S
    while not status.writable and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
        with contextlib.suppress(DittoError):
            status = mq.admin.ha_status(address)
    return status.why_not_writable
