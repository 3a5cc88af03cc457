"""docs/operations.md, "On three hosts": its files make a group that survives what its drills do to it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Client
from tests.deploy.three_hosts import FILES, HOSTS, SERVICES, ThreeHosts, three_hosts, unit
from tests.support.command_line import CommandLine
from tests.support.documents import blocks
from tests.support.waiting import PATIENCE_S

SOME = 50


def test_broker_file_in_the_document_is_the_one_to_copy() -> None:
    assert (FILES / "broker.toml").read_text(encoding="utf-8") in blocks("docs/operations.md", "toml")


@pytest.mark.parametrize("service", SERVICES)
def test_unit_is_restarted_however_often_it_fails(service: str) -> None:
    assert (unit(service)["Service"]["Restart"], unit(service)["Unit"]["StartLimitIntervalSec"]) == ("always", "0")


@pytest.mark.parametrize("service", ["nameserver", "broker"])
def test_unit_is_not_restarted_after_the_status_that_wrong_settings_have(service: str) -> None:
    wrong = subprocess.run(
        [sys.executable, "-m", "dittomq.cli", "serve", service, "--set", "node.nothing=1"], capture_output=True, text=True, check=False
    )

    assert str(wrong.returncode) == unit(service)["Service"]["RestartPreventExitStatus"], wrong.stderr


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("service", SERVICES)
def test_unit_is_one_that_systemd_reads(service: str, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze on PATH")
    text = (FILES / f"dittomq-{service}.service").read_text(encoding="utf-8")
    program = unit(service)["Service"]["ExecStart"].split()[0]
    (tmp_path / f"dittomq-{service}.service").write_text(text.replace(program, shutil.which("true") or "").replace("User=dittomq\n", ""))

    verified = subprocess.run([analyze, "verify", tmp_path / f"dittomq-{service}.service"], capture_output=True, text=True, check=False)

    assert (verified.returncode, verified.stderr) == (0, "")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeHosts]:
    with three_hosts(tmp_path_factory.mktemp("hosts")) as running, Client(running.nameservers) as mq:
        running.master(mq)
        mq.admin.create_topic("orders", 1)
        yield running


def publish(mq: Client, start: int) -> list[bytes]:
    """Bodies that are acknowledged as flushed by two replicas."""
    bodies = [b"%d" % number for number in range(start, start + SOME)]
    with mq.producer(retry_s=PATIENCE_S, timeout_s=PATIENCE_S) as producer:
        for body in bodies:
            producer.publish("orders", body, queue=0)
    return bodies


def read(mq: Client) -> list[bytes]:
    return [message.body for message in mq.reader("orders", 0).messages(until_end=True)]


@pytest.mark.tier("nightly")
def test_group_survives_each_drill_of_the_document(hosts: ThreeHosts, tmp_path: Path) -> None:
    """A machine is lost, a node restarts, a disk is replaced, a store comes back from a backup."""
    with Client(hosts.nameservers) as mq:
        acknowledged = publish(mq, 0)
        lost = hosts.master(mq)
        hosts.lose(lost)
        acknowledged += publish(mq, 100)
        assert hosts.master(mq) != lost
        hosts.start(lost)
        leads = hosts.master(mq)

        hosts.stop(leads, "broker")
        acknowledged += publish(mq, 200)
        hosts.start(leads, "broker")
        leads = hosts.master(mq)

        slave = next(host for host in HOSTS if host != leads)
        hosts.stop(slave, "broker")
        backup = tmp_path / "backup"
        shutil.copytree(hosts.data(slave), backup)
        acknowledged += publish(mq, 300)
        shutil.rmtree(hosts.data(slave))
        hosts.start(slave, "broker")
        hosts.master(mq)

        hosts.stop(slave, "broker")
        shutil.rmtree(hosts.data(slave))
        shutil.copytree(backup, hosts.data(slave))
        CommandLine(tmp_path).run("log", "new-identity", str(hosts.data(slave)))
        hosts.start(slave, "broker")
        hosts.master(mq)
        acknowledged += publish(mq, 400)

        assert read(mq) == acknowledged
        for host in HOSTS:
            assert (hosts.data(host) / "commitlog").is_dir()
