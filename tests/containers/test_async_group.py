"""An ASYNC_MASTER and two slaves in containers: the master alone acknowledges, so no election may pass it over while it is away."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.contained_group import SOME, TAG, ContainedGroup, contained_group
from tests.support.container_cluster import STORE, MadeOf, etcd_container, two_networks
from tests.support.containers import images
from tests.support.event_log import lost_from, wrong_losses
from tests.support.history import History
from tests.support.real_group import Settings, shape
from tests.support.traffic import read_all
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")


@contextlib.contextmanager
def async_group(folder: Path, **settings: str | int) -> Iterator[ContainedGroup]:
    image = images(TAG)["broker"]
    with two_networks() as networks, etcd_container(networks, image) as etcd:
        both: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd], **settings}
        of = replace(shape(2, master=both, slave=both, automatic=True), mode="ASYNC_MASTER")
        with contained_group(folder, of, networks, MadeOf(image)) as made:
            yield made


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainedGroup]:
    """Its history demands all that was acknowledged, whatever level was reached: nobody is elected who may lack it."""
    with async_group(tmp_path_factory.mktemp("async")) as made:
        yield replace(made, history=History(replace(made.group, elects=False)))


@pytest.fixture
def losing(tmp_path: Path) -> Iterator[ContainedGroup]:
    with async_group(tmp_path, **{"failover.allow_data_loss": True}) as made:
        yield made


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


def test_an_async_group_that_may_lose_data_loses_only_what_one_copy_acknowledged(losing: ContainedGroup) -> None:
    """The master is cut off from its slaves, acknowledges alone, and is killed; a slave that lacks that is elected."""
    group, history, old = losing.group, losing.history, losing.group.master()
    with group.mq.producer(retry_s=PATIENCE_S, timeout_s=PATIENCE_S) as producer:
        history.publish(producer, SOME)
        group.wait_equal()
        losing.cluster.part(old, losing.others(old))
        history.publish(producer, SOME)
        losing.cluster.kill(old)
        new = group.master(but=[old])
        assert group.status(new).data_loss
        losing.cluster.start_node(old)
        group.wait_led_by_all()
        history.publish(producer, SOME)
        group.wait_equal()

        lost = lost_from(history.told, read_all(group.mq, new))

    assert lost
    assert list(wrong_losses(history.told, lost)) == []
    assert {history.told.holders[body] for body in lost} == {(old,)}
    history.told.lost_with(old)
    history.check()
    losing.check_audit()
