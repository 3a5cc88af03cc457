"""Whether a cluster of one broker group works as it should."""

from dittomq.client import Client


def missing_for_sync(nameserver: str, cluster: str, *, slaves: int) -> str:
    """What is still missing until the master of `cluster` takes writes and `slaves` slaves are in sync; empty when nothing is."""
    with Client(nameserver) as mq:
        master = next((node for node in mq.admin.list_brokers() if node.broker_id == 0), None)
        if master is None:
            return "the master has not registered"
        if master.cluster != cluster:
            return f"another cluster, {master.cluster}, answers at {nameserver}"
        status = mq.admin.ha_status(master.address)
    if not status.writable:
        return f"{status.node} takes no writes: {status.waiting_for or 'not ready'}"
    in_sync = sum(view.role == "slave" and view.state == "in sync" for view in status.nodes)
    return "" if in_sync >= slaves else f"{in_sync} of {slaves} slaves are in sync"
