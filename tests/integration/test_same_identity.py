"""Two processes of one identity, and one address that leads to another cluster: nobody is counted twice, nobody follows a stranger."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import PutStatus
from tests.support.command_line import CommandLine
from tests.support.history import History
from tests.support.linked_group import LinkedGroup, linked_group, port_of
from tests.support.real_group import MASTER, RealGroup, real_group, shape
from tests.support.second_process import beside, second_command
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")

SLAVE = "a/1"
SOME = 40
REFUSED = 1
COPIED = "its disk is a copy; give it another identity: dittomq log new-identity STORE"


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[LinkedGroup]:
    with linked_group(tmp_path, 2, master={"replication.in_sync_replicas": 3}) as running:
        yield running


def copied_disk(group: RealGroup, name: str, to: Path) -> Path:
    """A copy of the node's disk, taken while it is stopped."""
    group.cluster.stop_node(name)
    shutil.copytree(group.cluster.data_dir(name), to)
    group.cluster.start_node(name)
    return to


@pytest.mark.parametrize("seen", [False, True], ids=["unseen by nameservers", "seen by nameservers"])
def test_two_processes_on_copies_of_one_slaves_disk_count_as_one_copy(linked: LinkedGroup, tmp_path: Path, seen: bool) -> None:
    group, history = linked.group, linked.history
    record = f'coordination.endpoints=["{group.cluster.nameserver}"]'
    flags = ["--set", "advertise.default=127.0.0.2:10911"] if seen else ["--set", "node.nameservers=[]", "--set", record]
    clone = second_command(group, SLAVE, copied_disk(group, SLAVE, tmp_path / "clone"))
    group.cluster.wait_in_sync()
    group.cluster.stop_node("a/2")
    with group.mq.producer(timeout_s=0.5, on_weak="return") as producer:
        with history.publishing(producer) as stream, beside([*clone, *flags], tmp_path / "clone.log") as process:
            eventually(lambda: COPIED in (tmp_path / "clone.log").read_text(), "the copy is refused by name")
            if seen:
                assert process.wait(PATIENCE_S) == REFUSED
                assert f"of {SLAVE} is held by the replica at {group.address(SLAVE)}" in (tmp_path / "clone.log").read_text()
            history.wait_for_more(SOME)
            assert {view.node for view in group.status().nodes} <= {MASTER, SLAVE, "a/2"}
        assert stream.receipts
        assert PutStatus.PUT_OK not in {receipt.status for receipt in stream.receipts}
        assert max(len(receipt.copies) for receipt in stream.receipts) == 2
        group.cluster.start_node("a/2")
        group.cluster.wait_in_sync()
    with group.mq.producer(timeout_s=PATIENCE_S) as producer:
        assert {receipt.status for receipt in history.publish(producer, SOME)} == {PutStatus.PUT_OK}
    history.check()


def test_a_restored_disk_is_refused_by_name_until_it_has_a_new_identity(tmp_path: Path) -> None:
    with real_group(tmp_path, shape(2, automatic=True)) as group, group.mq.producer(retry_s=PATIENCE_S) as producer:
        history, disk = History(group), group.cluster.data_dir(SLAVE)
        history.publish(producer, SOME)
        group.wait_equal()
        older = copied_disk(group, SLAVE, tmp_path / "older")
        group.wait_led_by_all()
        history.publish(producer, SOME)
        group.wait_equal()
        group.cluster.kill(SLAVE)
        shutil.rmtree(disk)
        shutil.move(older, disk)

        group.cluster.start_node(SLAVE)
        with history.publishing(producer):
            eventually(lambda: COPIED in group.status(SLAVE).nodes[0].last_drop_reason, "the master refuses it by name")
            history.wait_for_more(SOME)
            assert group.slave_state(SLAVE, group.master()) != "in sync"
        group.cluster.stop_node(SLAVE)
        given = CommandLine(tmp_path).run("log", "new-identity", str(disk))
        assert given.code == 0, given

        group.cluster.start_node(SLAVE)
        group.wait_led_by_all()
        history.publish(producer, SOME)
        history.check()


def test_an_address_that_leads_to_the_master_of_another_cluster_is_not_followed(linked: LinkedGroup, tmp_path: Path) -> None:
    group, link, history = linked.group, linked.link, linked.history
    with real_group(tmp_path / "other", shape(0)) as other, group.mq.producer(timeout_s=0.5, on_weak="return") as producer:
        own = link.upstream
        history.publish(producer, SOME)
        end = group.wait_equal()
        link.upstream = port_of(tmp_path / "other", "replication")
        link.sever()
        names = (group.status().cluster, other.status().cluster)
        eventually(lambda: all(name in group.status(SLAVE).nodes[0].last_drop_reason for name in names), "the slave says which clusters")
        assert (group.status(SLAVE).end, group.status(SLAVE).confirmed) == (end, end)
        history.publish(producer, SOME)
        history.check_holders()
        assert [view.node for view in other.status().nodes] == [MASTER]
        link.upstream = own
        group.cluster.wait_in_sync()
    assert group.events(SLAVE, "log_truncated") == []
    history.check()


def test_disk_of_another_cluster_is_refused_by_name(tmp_path: Path) -> None:
    """The group goes on with its own disks."""
    with real_group(tmp_path / "other", shape(1)) as other, other.mq.producer() as producer:
        History(other).publish(producer, SOME)
        other.wait_equal()
        stranger = other.status().cluster
    with real_group(tmp_path, shape(1)) as group, group.mq.producer(timeout_s=0.5, on_weak="return") as producer:
        history, own = History(group), tmp_path / "own"
        for name in (SLAVE, MASTER):
            history.publish(producer, SOME)
            group.wait_equal()
            disk, cluster = group.cluster.data_dir(name), group.status().cluster
            group.cluster.stop_node(name)
            shutil.move(disk, own)
            shutil.copytree(other.cluster.data_dir(name), disk)
            before = contents(disk)

            group.cluster.start_node(name)
            assert group.exit_status(name) == REFUSED
            assert group.last_words(name).endswith(
                f"the store {disk} cannot be opened: it is of broker group a of cluster {stranger} and this node is of broker group a of "
                f"cluster {cluster}; mount this node's own disk, or an empty one"
            )
            assert contents(disk) == before

            shutil.rmtree(disk)
            shutil.move(own, disk)
            group.cluster.start_node(name)
            group.cluster.wait_in_sync()
        history.publish(producer, SOME)
        history.check()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
