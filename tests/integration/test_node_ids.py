"""A second process under a node id that is held."""

import subprocess
import sys
from pathlib import Path

from dittomq.client import PutStatus
from dittomq.testing.processes import module_environment
from tests.support.real_group import MASTER, TOPIC, RealGroup


def second_process(group: RealGroup, name: str, data_dir: Path) -> "subprocess.CompletedProcess[str]":
    """The node's service once more: the same configuration, free ports, another data directory."""
    config = group.cluster.folder / f"{group.cluster.node(name).file_stem}.toml"
    overrides = {"node.data_dir": str(data_dir), "listen.clients": "127.0.0.1:0", "listen.replication": "127.0.0.1:0", "listen.ops": "127.0.0.1:0"}
    flags = [part for key, value in overrides.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", f"services.{group.cluster.node(name).role}", "--config", str(config), *flags]
    return subprocess.run(command, env=module_environment(), capture_output=True, text=True, timeout=60, check=False)


def test_a_second_master_under_the_same_name_is_refused_while_the_first_one_lives(group: RealGroup, tmp_path: Path) -> None:
    epoch = group.status().epoch

    refused = second_process(group, MASTER, tmp_path / "other")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == (
        f"dittomq serve master: a/0 is held by the replica at {group.address(MASTER)}, which is alive; stop it or choose another broker_id"
    )
    assert "Traceback" not in refused.stderr
    assert (group.status().epoch, group.status().writable) == (epoch, True)
    assert [node.address for node in group.mq.admin.list_brokers()][0] == group.address(MASTER)
    with group.mq.producer() as producer:
        assert producer.publish(TOPIC, b"still the first", queue=0).status is PutStatus.PUT_OK


def test_a_second_slave_under_the_same_id_is_refused_while_the_first_one_lives(group: RealGroup, tmp_path: Path) -> None:
    refused = second_process(group, "a/1", tmp_path / "other")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(f"dittomq serve slave: a/1 is held by the replica at {group.address('a/1')}")
    assert group.status().in_sync_now == 3


def test_a_second_process_on_the_same_store_is_refused_and_changes_nothing(group: RealGroup) -> None:
    data_dir = group.cluster.data_dir(MASTER)

    refused = second_process(group, MASTER, data_dir)

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == f"dittomq serve master: the store {data_dir} is held by another process; stop it or use another data_dir"
    assert group.writable()
