"""What headers of calls and of answers say: who is meant, and who answers."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from dittomq.errors import Unavailable, WrongCluster
from dittomq.routes import Node

NODE_HEADER = "dittomq-node"
CLUSTER_HEADER = "dittomq-cluster"
EPOCH_HEADER = "dittomq-epoch"
REQUEST_ID_HEADER = "dittomq-request-id"
LOG_END_HEADER = "dittomq-log-end"
FOR_NODE_HEADER = "dittomq-for-node"
FOR_CLUSTER_HEADER = "dittomq-for-cluster"


class Answerer(NamedTuple):
    """Who answers, at the time of the call. `log_end`: nothing that the call brings will lie below it; None: it takes no messages."""

    node: str
    cluster: str
    epoch: int
    log_end: int | None = None


class GroupTarget(NamedTuple):
    """A broker group: what is meant for it may be answered by any of its nodes."""

    cluster: str
    broker: str


def group_of(node: Node) -> GroupTarget:
    """Its own."""
    return GroupTarget(node.cluster, node.broker)


def meant_for(whom: Node | GroupTarget) -> tuple[tuple[str, str], ...]:
    """The headers of a call that nobody but this node, or one of this group, may obey."""
    name = whom.broker if isinstance(whom, GroupTarget) else whom.name
    return (FOR_NODE_HEADER, name), (FOR_CLUSTER_HEADER, whom.cluster)


def check_meant(headers: Iterable[tuple[str, Any]] | None, here: Answerer) -> None:
    """Raise WrongCluster when a call's headers name another node. A call without them is for whoever has the address."""
    named = dict(headers or ())
    name, cluster = named.get(FOR_NODE_HEADER, here.node), named.get(FOR_CLUSTER_HEADER, here.cluster)
    if cluster != here.cluster:
        raise WrongCluster("cluster", cluster, here.cluster)
    if name not in (here.node, here.node.rpartition("/")[0]):
        raise WrongCluster("node", name, here.node)


def check_answerer(headers: Iterable[tuple[str, Any]] | None, whom: Node | GroupTarget, who: str) -> None:
    """Raise Unavailable when an answer's headers name another node than the one that was called. Where nobody answered they name none."""
    named = dict(headers or ())
    name, cluster = named.get(NODE_HEADER), named.get(CLUSTER_HEADER, whom.cluster)
    if name is None:
        return
    is_meant = name.rpartition("/")[0] == whom.broker if isinstance(whom, GroupTarget) else name == whom.name
    if cluster != whom.cluster:
        raise Unavailable(who, f'{name} of cluster "{cluster}" has this address now')
    if not is_meant:
        raise Unavailable(who, f"{name} has this address now")
