"""Whether a local cluster works as it should."""

from dittomq.client import Client
from dittomq.client.access import ClusterAccess
from dittomq.errors import DittoError
from dittomq.ha_status import NodeState, not_in_sync
from dittomq.routes import Role
from dittomq.testing.state import ClusterState


def missing_for_sync(access: ClusterAccess, state: ClusterState) -> str:
    """What is still missing until every master takes writes and has its slaves in sync; empty when nothing is."""
    with Client.of(access) as mq:
        leading = [node for node in mq.admin.list_brokers() if node.role is not Role.SLAVE]
        masters = {node.broker: node for node in sorted(leading, key=lambda node: node.epoch)}  # of several the newest
        for broker in state.shape.brokers:
            if broker not in masters:
                return f"the master of {broker} has not registered"
            if masters[broker].cluster != state.cluster:
                return f"another cluster, {masters[broker].cluster}, answers at {access.nameserver}"
            missing = _missing_in_group(mq, masters[broker].address, state.shape.slaves)
            if missing:
                return missing
    return ""


def why_late(access: ClusterAccess) -> str:
    """A clause for each slave that waits, in its own words, or does not answer; empty when none does."""
    late = []
    with Client.of(access) as mq:
        for node in mq.admin.list_brokers():
            if node.role is not Role.SLAVE:
                continue
            try:
                waits = mq.admin.ha_status(node.address).waiting_for
            except DittoError as silent:
                late.append(f"; {node.name}: {silent}")
            else:
                late += [f"; {node.name} waits for {waits}"] if waits else []
    return "".join(late)


def registered_roles(access: ClusterAccess) -> dict[str, str]:
    """What the nodes are that the nameserver lists, master or slave, by name; none where it does not answer."""
    try:
        with Client.of(access) as mq:
            return {node.name: "slave" if node.role is Role.SLAVE else "master" for node in mq.admin.list_brokers()}
    except DittoError:
        return {}


def _missing_in_group(mq: Client, master: str, slaves: int) -> str:
    status = mq.admin.ha_status(master)
    if not status.writable:
        return f"{status.node} takes no writes: {status.why_not_writable}"
    in_sync = sum(view.role == "slave" and view.state is NodeState.IN_SYNC for view in status.nodes)
    return "" if in_sync >= slaves else not_in_sync(status.broker, in_sync, slaves)
