"""Nodes that come back at another address with the disk that they had: slaves and clients find them, whoever is at the old address."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.testing.ports import Ports, choose_ports
from dittomq.testing.state import read_state, write_state
from tests.support.event_log import Fate
from tests.support.history import History
from tests.support.linked_group import QUICK
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

SLAVE, OTHER = "a/1", "a/2"
SOME = 40
STRICT = {**QUICK, "replication.min_in_sync_replicas": 2}


def listen_at(group: RealGroup, places: dict[str, Ports]) -> None:
    """From their next start on."""
    state = read_state(group.cluster.folder)
    assert state is not None
    for name, ports in places.items():
        state = state.with_node(replace(state.node(name), ports=ports))
    write_state(group.cluster.folder, state)


@pytest.mark.parametrize("who_is_there", ["nobody", "a slave"])
def test_a_master_that_comes_back_at_another_address_is_found_by_slaves_and_clients(tmp_path: Path, who_is_there: str) -> None:
    with real_group(tmp_path, shape(2, master=STRICT, slave=STRICT)) as group:
        cluster, history = group.cluster, History(group)
        old, free = cluster.node(MASTER).ports, choose_ports(1, random.SystemRandom(), usual=False)[1]
        places = {"nobody": {MASTER: free}, "a slave": {MASTER: cluster.node(SLAVE).ports, SLAVE: old}}[who_is_there]
        epoch = group.status().epoch
        with (
            history.reading(group.mq, SLAVE),
            history.reading(group.mq, OTHER),
            group.mq.producer(timeout_s=1.0, retry_s=60.0) as producer,
            history.publishing(producer) as stream,
        ):
            history.wait_for_more(SOME)
            for name in places:
                cluster.kill(name)
            listen_at(group, places)
            for name in places:
                cluster.start_node(name)
            eventually(lambda: group.leads_all(MASTER), "both slaves follow it")
            history.wait_for_more(SOME)
        stream.settle()

        assert history.told.bodies(Fate.UNKNOWN) == history.told.bodies(Fate.NOT_STORED) == []
        assert {node.name: node.address for node in group.mq.admin.list_brokers()} == {name: group.address(name) for name in group.copies}
        assert group.status().epoch == epoch + 1
        history.check()
