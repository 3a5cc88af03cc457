"""Three groups of three nodes in containers: each loses its master in its own way, all at the same time."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dittomq.client import Client
from tests.support.contained_group import SOME, TAG, ContainedGroup
from tests.support.container_cluster import ContainerCluster, MadeOf, etcd_container, two_networks
from tests.support.containers import images
from tests.support.history import History
from tests.support.real_group import QUEUES, RealGroup, Settings, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

GROUPS = ("a", "b", "c")


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ContainedGroup, ...]]:
    image, folder = images(TAG)["broker"], tmp_path_factory.mktemp("groups") / "cluster"
    with contextlib.ExitStack() as entered:
        networks = entered.enter_context(two_networks())
        etcd = entered.enter_context(etcd_container(networks, image))
        settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd]}
        of = replace(shape(2, master=settings, slave=settings, automatic=True), brokers=GROUPS)
        cluster = entered.enter_context(contextlib.closing(ContainerCluster(folder, of, networks, MadeOf(image))))
        entered.enter_context(cluster)
        mq = entered.enter_context(Client(cluster.nameserver))
        made = [RealGroup(cluster, mq, elects=True, broker=broker, topic=f"orders-{broker}") for broker in GROUPS]
        for group in made:
            mq.admin.create_topic(group.topic, QUEUES, broker=group.broker)
            eventually(lambda group=group: mq.route(group.topic).queues, f"the nameserver knows {group.topic}")  # type: ignore[misc]
        yield tuple(ContainedGroup(cluster, networks, group, History(group)) for group in made)


def test_three_groups_that_lose_their_masters_at_once_keep_all_that_they_told(groups: tuple[ContainedGroup, ...]) -> None:
    """One master is killed, one is paused, one is cut off from its slaves and the store."""
    cluster, masters = groups[0].cluster, [each.group.master() for each in groups]
    killed, paused, unplugged = masters
    with contextlib.ExitStack() as loaded:
        for each in groups:
            loaded.enter_context(each.loaded())
        with cluster.paused(paused), cluster.unplugged(unplugged):
            cluster.kill(killed)
            for each, old in zip(groups, masters, strict=True):
                assert each.group.master(but=[old]) != old
                each.history.wait_for_more(SOME)
        cluster.start_node(killed)
    groups[0].check_audit()
