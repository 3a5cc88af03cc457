"""A second process under a node id that is held."""

import subprocess
from pathlib import Path

import pytest

from dittomq.client import PutStatus
from dittomq.testing.processes import module_environment
from tests.support.event_log import wrong_reads
from tests.support.real_group import MASTER, TOPIC, RealGroup, real_group, shape
from tests.support.second_process import second_command, second_process
from tests.support.traffic import Publishing, messages, read_all
from tests.support.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.tier("nightly")


def lead_and_stop(command: list[str]) -> None:
    """Run a master until it leads, then end it cleanly."""
    running = subprocess.Popen(command, env=module_environment(), stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert any('"event": "epoch_opened"' in line for line in running.stderr)
    running.terminate()
    running.stderr.read()
    assert running.wait(PATIENCE_S) == 0


def test_a_second_master_under_the_same_name_is_refused_while_the_first_one_lives(group: RealGroup, tmp_path: Path) -> None:
    epoch = group.status().epoch

    refused = second_process(group, MASTER, tmp_path / "other")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"dittomq serve master: a/0 is held by the replica at {group.address(MASTER)}, which is alive; stop it or choose another broker_id"
    )
    assert "Traceback" not in refused.stderr
    assert (group.status().epoch, group.status().writable) == (epoch, True)
    assert next(node.address for node in group.mq.admin.list_brokers()) == group.address(MASTER)
    with group.mq.producer() as producer:
        assert producer.publish(TOPIC, b"still the first", queue=0).status is PutStatus.PUT_OK


def test_a_second_slave_under_the_same_id_is_refused_while_the_first_one_lives(group: RealGroup, tmp_path: Path) -> None:
    refused = second_process(group, "a/1", tmp_path / "other")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(f"dittomq serve slave: a/1 is held by the replica at {group.address('a/1')}")
    eventually(lambda: group.status().in_sync_now == 3, "the first one is in sync")


def test_a_second_process_on_the_same_store_is_refused_and_changes_nothing(group: RealGroup) -> None:
    data_dir = group.cluster.data_dir(MASTER)

    refused = second_process(group, MASTER, data_dir)

    assert refused.returncode == 1
    assert (
        refused.stderr.splitlines()[-1]
        == f"dittomq serve master: the store {data_dir} is held by another process; stop it or use another data_dir"
    )
    assert group.writable()


def test_impostor_that_leads_without_a_group_record_gets_no_slaves(tmp_path: Path) -> None:
    """Nameservers believe its higher epoch, and send clients there until it is gone; the replicas believe the group record."""
    alone = ("--set", "replication.replicas_expected=0")  # a wrong configuration: it leads at once
    unseen = ("--set", "node.nameservers=[]")
    with real_group(tmp_path, shape(1)) as group:
        with group.mq.producer() as producer:
            publishing = Publishing(producer)
            publishing.publish(messages(0, 1_000))
        end, epoch = group.wait_equal(), group.status().epoch
        stranger = [*second_command(group, MASTER, tmp_path / "other"), *alone]
        for _ in range(epoch + 1):  # where no nameserver sees it, nothing stops it from opening epochs
            lead_and_stop([*stranger, *unseen])

        process = subprocess.Popen(stranger, env=module_environment(), stderr=subprocess.DEVNULL)
        try:
            eventually(lambda: group.events(MASTER, "registration_refused"), "the master says that its id is held")
            assert group.leads_all(MASTER)
            assert (group.status("a/1").end, group.status().epoch) == (end, epoch)
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0

        def is_back() -> bool:
            return [node.address for node in group.mq.admin.list_brokers()] == [group.address(name) for name in group.copies]

        eventually(is_back, "nameservers send clients to the master again")
        with group.mq.producer() as producer:
            Publishing(producer, publishing.told).publish(messages(1_000, 100))
        group.wait_equal()
        for name in group.copies:
            assert list(wrong_reads(publishing.told, read_all(group.mq, name)))[:3] == []
        assert group.events("a/1", "log_truncated") == []
