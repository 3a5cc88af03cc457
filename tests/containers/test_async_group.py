"""An ASYNC_MASTER and two slaves in containers: the master alone acknowledges, so no election may pass it over while it is away."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.contained_group import SOME, TAG, ContainedGroup, contained_group
from tests.support.container_cluster import STORE, MadeOf, etcd_container, two_networks
from tests.support.containers import images
from tests.support.history import History
from tests.support.real_group import Settings, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainedGroup]:
    """Its history demands all that was acknowledged, whatever level was reached: nobody is elected who may lack it."""
    image = images(TAG)["broker"]
    with two_networks() as networks, etcd_container(networks, image) as etcd:
        settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd]}
        of = replace(shape(2, master=settings, slave=settings, automatic=True), mode="ASYNC_MASTER")
        with contained_group(tmp_path_factory.mktemp("async"), of, networks, MadeOf(image)) as made:
            yield replace(made, history=History(replace(made.group, elects=False)))


@pytest.fixture
def whole(contained: ContainedGroup) -> Iterator[ContainedGroup]:
    with contained.whole():
        yield contained


def test_an_async_master_that_is_killed_leads_again_with_all_that_it_acknowledged(whole: ContainedGroup) -> None:
    group, old = whole.group, whole.group.master()
    with whole.under_load():
        whole.cluster.kill(old)
        eventually(lambda: "master" in group.status(whole.others(old)[0]).waiting_for, "a slave says that it waits for its master")
        assert group.leader() == ""
        whole.cluster.start_node(old)
        assert group.master() == old


def test_an_async_master_that_is_paused_goes_on_with_all_that_it_acknowledged(whole: ContainedGroup) -> None:
    group, old = whole.group, whole.group.master()
    epoch = group.status(old).epoch
    with whole.under_load():
        with whole.cluster.paused(old):
            eventually(lambda: "master" in group.status(whole.others(old)[0]).waiting_for, "a slave says that it waits for its master")
            assert group.leader(but=[old]) == ""
        assert group.master() == old
    assert group.status(old).epoch == epoch


@pytest.mark.parametrize("ways", ["both ways", "what it sends", "what it receives"])
def test_an_async_master_that_is_cut_off_from_all_acknowledges_and_brings_it_back(whole: ContainedGroup, ways: str) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    with whole.under_load():
        whole.cluster.part(old, [STORE, *whole.others(old)], there=ways != "what it receives", back=ways != "what it sends")
        eventually(lambda: group.status(old).coordination_problem, "the master says that its store does not answer")
        history.wait_for_more(SOME)
        assert group.leader() == old
        whole.cluster.heal()
