"""`dittomq route`."""

from typing import Annotated

import typer

from dittomq.cli.cluster import name_groups_without_master, node_document
from dittomq.cli.connect import JsonFlag, Nameserver, cluster_access
from dittomq.cli.examples import example
from dittomq.cli.output import printable, say, say_json, table
from dittomq.routes import PERMISSION_READ, PERMISSION_WRITE


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command("route", epilog=example("route orders"))(route)


def route(topic: Annotated[str, typer.Argument(help="Topic.")], json: JsonFlag = False, nameserver: Nameserver = None) -> None:
    """Show where the queues of a topic live and which nodes hold them."""
    from dittomq.client import Client

    with Client.of(cluster_access(nameserver)) as mq:
        found = mq.route(topic)
    if json:
        queues = [
            {"broker": one.broker, "read_queues": one.read_queues, "write_queues": one.write_queues, "permission": one.permission}
            for one in found.queues
        ]
        nodes = [node_document(node) for node in found.nodes]
        say_json({"topic": found.topic, "cluster": found.cluster, "queues": queues, "nodes": nodes, "order_config": found.order_config})
        return
    rows = [
        (
            printable(one.broker),
            f"{one.read_queues}",
            f"{one.write_queues}",
            permission_words(one.permission),
            ", ".join(f"{printable(node.name)} {printable(node.address)}" for node in found.nodes if node.broker == one.broker),
        )
        for one in found.queues
    ]
    for line in table([("BROKER", "READ QUEUES", "WRITE QUEUES", "PERMITS", "NODES"), *rows]):
        say(line)
    if found.order_config:
        say(f"order keys go to {printable(found.order_config)}")
    name_groups_without_master(found.nodes)


def permission_words(permission: int) -> str:
    """RocketMQ's permission bits in words."""
    words = [word for bit, word in ((PERMISSION_READ, "read"), (PERMISSION_WRITE, "write")) if permission & bit]
    return " and ".join(words) or "nothing"
