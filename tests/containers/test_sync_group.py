"""A SYNC_MASTER and two slaves in containers, with an etcd for their record, under load and faults: what was told stays, on every copy."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.testing.state import NAMESERVER
from tests.support.contained_group import SOME, TAG, ContainedGroup, contained_group
from tests.support.container_cluster import STORE, MadeOf, etcd_container, two_networks
from tests.support.containers import images
from tests.support.direct_writer import DirectWriter
from tests.support.event_log import Fate
from tests.support.mounts import small_tmpfs
from tests.support.real_group import TOPIC, RealGroup, Settings, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

WAYS = ("both ways", "what it sends", "what it receives")

DISK_BYTES = 512 * 1024 * 1024
MIN_FREE_BYTES = 8 * 1024 * 1024
MEMORY_BYTES = 768 * 1024 * 1024  # what lies on a disk in memory counts
NODES = ("a/0", "a/1", "a/2")


@pytest.fixture(scope="module")
def contained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainedGroup]:
    """Every node has a small disk and little memory."""
    image, folder = images(TAG)["broker"], tmp_path_factory.mktemp("sync")
    with contextlib.ExitStack() as entered:
        for node in NODES:
            entered.enter_context(small_tmpfs(folder / "cluster" / node.replace("/", "-"), DISK_BYTES))
        networks = entered.enter_context(two_networks())
        etcd = entered.enter_context(etcd_container(networks, image))
        settings: Settings = {"coordination.backend": "etcd", "coordination.endpoints": [etcd], "store.min_free_bytes": MIN_FREE_BYTES}
        of = shape(2, master=settings, slave=settings, automatic=True)
        yield entered.enter_context(contained_group(folder, of, networks, MadeOf(image, dict.fromkeys(NODES, MEMORY_BYTES))))


@pytest.fixture
def whole(contained: ContainedGroup) -> Iterator[ContainedGroup]:
    with contained.whole():
        yield contained


def filler(group: RealGroup, name: str) -> Path:
    """A file that somebody else puts on the disk: it leaves less than the reserve."""
    path = group.cluster.data_dir(name) / "filler"
    stat = os.statvfs(path.parent)
    path.write_bytes(bytes(stat.f_bavail * stat.f_frsize - MIN_FREE_BYTES // 2))
    return path


def test_a_master_that_hits_its_memory_limit_is_replaced_and_takes_nothing_with_it(whole: ContainedGroup) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    with whole.under_load():
        whole.cluster.hit_memory_limit(old)
        eventually(lambda: whole.cluster.was_out_of_memory(old), "the kernel has ended the master for it")
        assert group.master(but=[old]) != old
        history.wait_for_more(SOME)
        whole.cluster.start_node(old)


def test_a_paused_master_is_replaced_and_refuses_writes_when_it_goes_on(whole: ContainedGroup) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with whole.under_load(), writer.writing():
        eventually(lambda: writer.receipts, "the master acknowledges")
        with whole.cluster.paused(old):
            assert group.master(but=[old]) != old
            history.wait_for_more(SOME)
            refused = writer.refused
        eventually(lambda: writer.refused > refused, "the old master refuses writes")


def test_a_master_whose_cable_is_pulled_is_fenced_and_replaced(whole: ContainedGroup) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with whole.under_load(), writer.writing():
        eventually(lambda: writer.receipts, "the master acknowledges")
        with whole.cluster.unplugged(old):
            eventually(lambda: writer.refused, "the old master refuses writes")
            assert group.master(but=[old]) != old
            history.wait_for_more(SOME)


@pytest.mark.parametrize("ways", ["what it sends", "what it receives"])
def test_a_master_that_is_cut_off_one_way_from_slaves_and_store_is_fenced(whole: ContainedGroup, ways: str) -> None:
    """One that is only deaf may have removed its slaves from the record before they miss it: then nobody leads until it hears again."""
    group, history, old, sends = whole.group, whole.history, whole.group.master(), ways == "what it sends"
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with whole.under_load(), writer.writing():
        eventually(lambda: writer.receipts, "the master acknowledges")
        whole.cluster.part(old, [STORE, *whole.others(old)], there=sends, back=not sends)
        eventually(lambda: writer.refused, "the old master refuses writes")
        if sends:
            assert group.master(but=[old]) != old
            history.wait_for_more(SOME)
        whole.cluster.heal()


@pytest.mark.parametrize("ways", WAYS)
def test_a_master_that_is_cut_off_from_its_slaves_alone_leaves_one_side(whole: ContainedGroup, ways: str) -> None:
    """Both sides reach the store: the one whose write comes first goes on, the master without its slaves, or a slave without the master."""
    group, history, old = whole.group, whole.history, whole.group.master()
    writer = DirectWriter(group.address(old), TOPIC, history.told)
    with whole.under_load(), writer.writing():
        whole.cluster.part(old, whole.others(old), there=ways != "what it receives", back=ways != "what it sends")
        eventually(lambda: group.leader(but=[old]) or group.status(old).members == (old,), "one side goes on without the other")
        history.wait_for_more(SOME)
        whole.cluster.heal()


@pytest.mark.parametrize("ways", WAYS)
def test_a_master_that_is_cut_off_from_the_store_only_goes_on(whole: ContainedGroup, ways: str) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    epoch = group.status(old).epoch
    with whole.under_load():
        whole.cluster.part(old, [STORE], there=ways != "what it receives", back=ways != "what it sends")
        eventually(lambda: group.status(old).coordination_problem, "the master says that its store does not answer")
        history.wait_for_more(10 * SOME)
        assert (group.status(old).writable, group.status(old).epoch) == (True, epoch)
        whole.cluster.heal()
    assert group.master() == old


def test_a_slave_whose_disk_is_full_holds_nobody_up_and_catches_up(whole: ContainedGroup) -> None:
    group, history = whole.group, whole.history
    slave = whole.others(group.master())[0]
    with whole.under_load():
        foreign = filler(group, slave)
        eventually(
            lambda: f"the disk of {slave} has" in group.status(slave).nodes[0].last_drop_reason, f"{slave} says that its disk is full"
        )
        history.wait_for_more(10 * SOME)
        foreign.unlink()


def test_a_nameserver_that_is_lost_and_comes_back_interrupts_no_producer(whole: ContainedGroup) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    epoch = group.status(old).epoch
    with whole.under_load():
        whole.cluster.kill(NAMESERVER)
        history.wait_for_more(10 * SOME)
        assert (group.status(old).writable, group.status(old).epoch) == (True, epoch)
        whole.cluster.start_node(NAMESERVER)
        eventually(lambda: len(group.mq.admin.list_brokers()) == len(group.copies), "it knows all nodes again")


def test_a_rolling_restart_under_load_refuses_nothing_and_loses_nothing(whole: ContainedGroup) -> None:
    group, history, old = whole.group, whole.history, whole.group.master()
    refused = history.told.bodies(Fate.NOT_STORED)
    with whole.under_load():
        for name in (*whole.others(old), old):
            whole.cluster.stop_node(name)
            whole.cluster.start_node(name)
            group.wait_led_by_all()
    assert history.told.bodies(Fate.NOT_STORED) == refused
    assert [group.stopped(name) for name in group.copies] == ["clean"] * 3
