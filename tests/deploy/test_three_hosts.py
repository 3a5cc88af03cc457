"""docs/operations.md, "On three hosts": its files make a group that survives what its drills do to it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.client import Client
from dittomq.security.certificate_files import CertificateFiles
from dittomq.testing.authority import CertificateAuthority
from tests.deploy.three_hosts import FILES, HOSTS, SERVICES, SPARE, ThreeHosts, three_hosts, unit
from tests.support.command_line import CommandLine
from tests.support.documents import blocks
from tests.support.tree import ROOT
from tests.support.waiting import PATIENCE_S, eventually

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


class Orders:
    """What was acknowledged of the topic `orders` as flushed by two replicas, in order."""

    def __init__(self, hosts: ThreeHosts) -> None:
        self._hosts = hosts
        self._bodies: list[bytes] = []

    def publish(self, tls: CertificateFiles | None = None) -> None:
        """Some more, with a client that knows nothing yet."""
        bodies = [b"%d" % number for number in range(len(self._bodies), len(self._bodies) + SOME)]
        with Client(self._hosts.nameservers, tls=tls) as mq, mq.producer(retry_s=PATIENCE_S, timeout_s=PATIENCE_S) as producer:
            for body in bodies:
                producer.publish("orders", body, queue=0)
        self._bodies += bodies

    def check(self, tls: CertificateFiles | None = None) -> None:
        """All of it is there, and no more."""
        with Client(self._hosts.nameservers, tls=tls) as mq:
            assert [message.body for message in mq.reader("orders", 0).messages(until_end=True)] == self._bodies


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ThreeHosts, Orders]]:
    with three_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        hosts.master()
        with Client(hosts.nameservers) as mq:
            mq.admin.create_topic("orders", 1)
        yield hosts, Orders(hosts)


@pytest.fixture
def drill(running: tuple[ThreeHosts, Orders]) -> Iterator[tuple[ThreeHosts, Orders]]:
    """Messages are there before it, and all that was acknowledged is there after it."""
    hosts, orders = running
    orders.publish()
    with hosts.as_they_were():
        yield running
    hosts.master()
    orders.publish()
    orders.check()


def slaves_first(hosts: ThreeHosts) -> list[str]:
    """All hosts, that of the master last."""
    return sorted(HOSTS, key=hosts.master().__eq__)


@pytest.mark.tier("nightly")
def test_machine_that_is_lost_is_replaced_and_follows_when_it_is_back(drill: tuple[ThreeHosts, Orders]) -> None:
    hosts, orders = drill
    lost = hosts.master()
    hosts.lose(lost)
    orders.publish()
    assert hosts.master() != lost
    hosts.start(lost)
    hosts.master()


@pytest.mark.tier("nightly")
def test_group_takes_writes_while_one_host_after_the_other_is_restarted(drill: tuple[ThreeHosts, Orders]) -> None:
    hosts, orders = drill
    for host in slaves_first(hosts):
        hosts.stop(host, "broker")
        orders.publish()
        hosts.start(host, "broker")
        hosts.master()


@pytest.mark.tier("nightly")
def test_group_takes_writes_while_one_host_after_the_other_is_upgraded(drill: tuple[ThreeHosts, Orders], tmp_path: Path) -> None:
    """To a clone of this version that says so, with the stubs that `make .venv/ready` generates."""
    hosts, orders = drill
    new = tmp_path / "dittomq"
    for command in (["git", "clone", "--quiet", str(ROOT), str(new)], [sys.executable, str(new / "tools" / "genproto.py")]):
        subprocess.run(command, check=True, capture_output=True)
    with (new / "dittomq" / "version.py").open("a") as code:
        code.write('print("this is the clone", flush=True)\n')
    for host in slaves_first(hosts):
        hosts.stop(host, "broker", "nameserver")
        orders.publish()
        hosts.run_code_of(host, new)
        hosts.start(host, "broker", "nameserver")
        hosts.master()
    assert all("this is the clone" in hosts.log(host, service) for host in HOSTS for service in ("broker", "nameserver"))


@pytest.mark.tier("nightly")
def test_broker_that_lost_its_disk_copies_the_log_from_its_master(drill: tuple[ThreeHosts, Orders]) -> None:
    hosts, orders = drill
    slave = slaves_first(hosts)[0]
    hosts.stop(slave, "broker")
    shutil.rmtree(hosts.data(slave))
    orders.publish()
    hosts.start(slave, "broker")
    hosts.master()
    assert (hosts.data(slave) / "commitlog").is_dir()


@pytest.mark.tier("nightly")
def test_host_that_lost_all_disks_is_set_up_again_with_its_member_of_etcd(drill: tuple[ThreeHosts, Orders]) -> None:
    hosts, orders = drill
    lost, kept, last = slaves_first(hosts)
    hosts.lose(lost)
    for service in SERVICES:
        shutil.rmtree(hosts.data(lost, service))
        hosts.data(lost, service).mkdir(mode=0o700)
    orders.publish()

    [member] = [line.split(", ")[0] for line in hosts.etcdctl(kept, "member", "list").splitlines() if f" {lost}, " in line]
    hosts.etcdctl(kept, "member", "remove", member)
    hosts.etcdctl(kept, "member", "add", lost, f"--peer-urls=http://{lost}:2380")
    hosts.change(lost, "etcd.env", "STATE=new", "STATE=existing")
    hosts.start(lost)
    hosts.master()

    hosts.lose(last)  # now the new member is needed for a quorum
    orders.publish()
    hosts.start(last)
    hosts.master()


@pytest.mark.tier("nightly")
def test_slave_is_added_and_removed_while_the_group_takes_writes(drill: tuple[ThreeHosts, Orders]) -> None:
    hosts, orders = drill
    expect(hosts, "2", "3")
    hosts.start(SPARE, "broker")
    hosts.master()
    orders.publish()

    hosts.stop(SPARE, "broker")
    orders.publish()
    hosts.master()
    expect(hosts, "3", "2")


def expect(hosts: ThreeHosts, old: str, new: str) -> None:
    """So many slaves, on every node, one restart after the other."""
    hosts.change(SPARE, "broker.toml", f"replicas_expected = {old}", f"replicas_expected = {new}")
    for host in slaves_first(hosts):
        hosts.change(host, "broker.toml", f"replicas_expected = {old}", f"replicas_expected = {new}")
        hosts.stop(host, "broker")
        hosts.start(host, "broker")
        hosts.master()


@pytest.mark.tier("nightly")
def test_backup_that_is_restored_follows_as_a_new_replica(drill: tuple[ThreeHosts, Orders], tmp_path: Path) -> None:
    hosts, orders = drill
    slave = slaves_first(hosts)[0]
    hosts.stop(slave, "broker")
    shutil.copytree(hosts.data(slave), tmp_path / "backup")
    hosts.start(slave, "broker")
    hosts.master()
    orders.publish()

    hosts.stop(slave, "broker")
    shutil.rmtree(hosts.data(slave))
    shutil.copytree(tmp_path / "backup", hosts.data(slave))
    ran = CommandLine(tmp_path).run("log", "new-identity", str(hosts.data(slave)))
    assert ran.code == 0, ran.err
    hosts.start(slave, "broker")
    hosts.master()


@pytest.mark.tier("nightly")
def test_certificates_are_rotated_while_everything_runs(drill: tuple[ThreeHosts, Orders], tmp_path: Path) -> None:
    """All nodes change to TLS at once, before."""
    hosts, orders = drill
    authority = CertificateAuthority(tmp_path / "tls")
    authority.issue("client", ())
    client = authority.files_of("client")
    for host in HOSTS:
        hosts.stop(host, "broker", "nameserver")
    for host in HOSTS:
        authority.issue(host, (hosts.address(host),))
        for file in ("broker.toml", "nameserver.toml"):
            hosts.change(host, file, "[node]", f"{section(authority.files_of(host))}\n[node]")
        hosts.start(host, "broker", "nameserver")
    hosts.master(client)
    orders.publish(client)

    for host in HOSTS:
        authority.issue(host, (hosts.address(host),))
    for host in HOSTS:
        eventually(lambda host=host: "certificates_renewed" in hosts.log(host), f"the broker of {host} has read them again")  # type: ignore[misc]
    hosts.master(client)
    orders.publish(client)
    orders.check(client)


def section(files: CertificateFiles) -> str:
    """`[tls]` in a configuration file."""
    named = {"ca_file": files.ca, "certificate_file": files.certificate, "key_file": files.key}
    return "".join(["[tls]\n", *(f'{name} = "{path}"\n' for name, path in named.items())])
