"""`dittomq cluster …`: who is registered, and which groups nameservers remember."""

import time
from collections.abc import Sequence
from typing import Annotated

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, nameserver_address
from dittomq.cli.examples import example
from dittomq.cli.exits import Exit, exit_of
from dittomq.cli.ha_report import silent_document
from dittomq.cli.output import hint, human_age, printable, say, say_json, table
from dittomq.errors import DittoError, NotPermitted
from dittomq.routes import Forgotten, Node, Role, Route

app = typer.Typer(name="cluster")


@app.callback(invoke_without_command=True, epilog=example("cluster", "cluster --json"))
def cluster(context: typer.Context, json: JsonFlag = False, nameserver: Nameserver = None) -> int:
    """List the broker nodes that are registered now, and the groups that a nameserver remembers and of which none is."""
    if context.invoked_subcommand is not None:
        return Exit.DONE
    from dittomq.client import Client

    with Client(nameserver_address(nameserver)) as mq:
        listing = mq.admin.list_cluster()
    nodes, silent = listing.nodes, listing.silent
    if json:
        say_json({"nodes": [node_document(node) for node in nodes], "silent_groups": [silent_document(group) for group in silent]})
        return Exit.DONE
    now_ms = time.time_ns() // 1_000_000
    rows = [
        (
            node.cluster,
            node.name,
            str(node.role),
            str(node.state),
            f"{node.epoch}",
            node.address,
            f"{human_age(max(0, now_ms - node.seen_ms) / 1000)} ago",
        )
        for node in nodes
    ]
    rows += [
        (group.cluster, group.broker, "unknown", "nobody registered", f"{group.newest.epoch}", "unknown", "unknown") for group in silent
    ]
    for line in table([("CLUSTER", "NODE", "ROLE", "STATE", "EPOCH", "ADDRESS", "HEARD"), *rows]):
        say(printable(line))
    if not nodes:
        hint("no broker is registered")
    name_groups_without_master(nodes)
    for group in silent:
        hint(f"nobody answers for {printable(group.broker)}, which nameservers remember. See dittomq ha-status")
    return Exit.DONE


@app.command(epilog=example("cluster forget b --its-nodes-are-gone"))
def forget(
    broker: Annotated[str, typer.Argument(metavar="GROUP", help="The broker group that is gone for good, for instance b.")],
    its_nodes_are_gone: Annotated[
        bool, typer.Option("--its-nodes-are-gone", help="No node of it ever starts on its disk again; you made sure of it.")
    ] = False,
    json: JsonFlag = False,
    nameserver: Nameserver = None,
) -> int:
    """Let nameservers forget a group of which no node is registered any more.

    What they remember tells an old master of the group, should one start again, that another one was promoted past it: without that it may
    lead beside it, or with an old log. Exit code 3 when some nameserver did not forget it: give the command again when it answers.
    """
    from dittomq.client import Client

    with Client(nameserver_address(nameserver)) as mq:
        known = mq.admin.list_cluster().silent_group(broker)
        if known is not None and not its_nodes_are_gone:
            by = f", opened by {known.opener}" if known.opener else ""
            lost = "Forgotten, nothing tells an old master of it that starts again who was promoted past it"
            make_sure = "Make sure that none of its nodes ever starts on its disk again, then add --its-nodes-are-gone"
            raise NotPermitted(f"refused: nameservers remember epoch {known.newest.epoch} of {broker}{by}. {lost}. {make_sure}")
        outcomes = mq.admin.forget_group(broker)
    if json:
        say_json({"broker": broker, "nameservers": [_outcome_document(name, outcome) for name, outcome in outcomes.items()]})
    for name, outcome in () if json else outcomes.items():
        say(printable(f"{name}  {_outcome_words(outcome)}"))
    if not outcomes:
        hint(f"no nameserver remembers {printable(broker)}")
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, DittoError)]
    if errors and len(errors) == len(outcomes):
        return exit_of(errors[0])
    return Exit.PARTLY if errors or not all(isinstance(each, Forgotten) and each.kept for each in outcomes.values()) else Exit.DONE


def _outcome_words(outcome: Forgotten | DittoError) -> str:
    if isinstance(outcome, DittoError):
        return f"FAILED  {outcome}"
    newest = outcome.newest
    by = "" if newest.opener_id is None else f", opened by node {newest.opener_id}"
    what = f"forgotten: epoch {newest.epoch}{by}" if newest.epoch else "remembered nothing"
    return what if outcome.kept else f"{what}; its disk has not taken that, and a restart may bring it back: give the command again"


def _outcome_document(nameserver: str, outcome: Forgotten | DittoError) -> dict[str, object]:
    if isinstance(outcome, DittoError):
        return {"nameserver": nameserver, "epoch": None, "opener_id": None, "kept": None, "error": str(outcome)}
    newest = outcome.newest
    known = {"epoch": newest.epoch or None, "opener_id": newest.opener_id, "kept": outcome.kept}
    return {"nameserver": nameserver, **known, "error": None}


def name_groups_without_master(nodes: Sequence[Node]) -> None:
    """Say which of the groups take no writes because nobody leads them."""
    led = {node.broker for node in nodes if node.role is not Role.SLAVE}
    for broker in sorted({node.broker for node in nodes} - led):
        hint(f"{printable(broker)} has no master now and takes no writes; its slaves serve reads. See dittomq ha-status")


def name_silent_groups(route: Route) -> None:
    """Say which groups may hold queues of the topic that its route does not tell."""
    if route.silent:
        names = ", ".join(printable(group.broker) for group in route.silent)
        may = f"which nameservers remember and which may hold queues of {printable(route.topic)} too"
        hint(f"nobody answers for {names}, {may}. See dittomq ha-status")


def node_document(node: Node) -> dict[str, object]:
    """A node for programs."""
    return {
        "cluster": node.cluster,
        "node": node.name,
        "broker": node.broker,
        "broker_id": node.broker_id,
        "role": node.role,
        "state": node.state,
        "epoch": node.epoch,
        "address": node.address,
        "replication_address": node.replication_address,
        "addresses": dict(node.addresses),
        "seen_ms": node.seen_ms,
        "replica_uuid": node.replica_uuid,
    }
