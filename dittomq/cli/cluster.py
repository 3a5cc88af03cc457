"""`dittomq cluster`: the nodes that are registered."""

import time
from collections.abc import Sequence

import typer

from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.output import hint, human_age, printable, say, say_json, table
from dittomq.routes import Node


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("cluster", epilog=example("cluster", "cluster --json"))(cluster)


def cluster(json: JsonFlag = False, nameserver: Nameserver = None) -> None:
    """List the broker nodes that are registered now."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        nodes = mq.admin.list_brokers()
    if json:
        say_json({"nodes": [node_document(node) for node in nodes]})
        return
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
    for line in table([("CLUSTER", "NODE", "ROLE", "STATE", "EPOCH", "ADDRESS", "HEARD"), *rows]):
        say(printable(line))
    if not nodes:
        hint("no broker is registered")
    name_groups_without_master(nodes)


def name_groups_without_master(nodes: Sequence[Node]) -> None:
    """Say which of the groups take no writes because none of their nodes leads."""
    led = {node.broker for node in nodes if node.leads}
    for broker in sorted({node.broker for node in nodes} - led):
        hint(f"{printable(broker)} has no master now and takes no writes; its slaves serve reads. See dittomq ha status")


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
