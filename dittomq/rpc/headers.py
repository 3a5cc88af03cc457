"""What every answer's headers carry, on both sides."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from dittomq.errors import OutOfReach
from dittomq.routes import Node

NODE_HEADER = "dittomq-node"
CLUSTER_HEADER = "dittomq-cluster"
EPOCH_HEADER = "dittomq-epoch"
REQUEST_ID_HEADER = "dittomq-request-id"
LOG_END_HEADER = "dittomq-log-end"


class Answerer(NamedTuple):
    """Who answers, at the time of the call. `log_end`: nothing that the call brings will lie below it; None: it takes no messages."""

    node: str
    cluster: str
    epoch: int
    log_end: int | None = None


def check_answerer(headers: Iterable[tuple[str, Any]] | None, node: Node, who: str, *, any_of_its_group: bool = False) -> None:
    """Raise OutOfReach when an answer's headers name another node than the one that was called. Where nobody answered they name none."""
    named = dict(headers or ())
    name, cluster = named.get(NODE_HEADER, node.name), named.get(CLUSTER_HEADER, node.cluster)
    is_meant = name.rpartition("/")[0] == node.broker if any_of_its_group else name == node.name
    if cluster != node.cluster:
        raise OutOfReach(who, f'{name} of cluster "{cluster}" has this address now')
    if not is_meant:
        raise OutOfReach(who, f"{name} has this address now")
