"""The parts of a local cluster that need no cluster: processes, ports, state."""

import contextlib
import random
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.errors import ConfigError, Unavailable
from dittomq.security.certificate_files import NO_CERTIFICATES, CertificateFiles
from dittomq.testing import LocalCluster, LocalNode, Shape, processes
from dittomq.testing.configs import config_text
from dittomq.testing.ports import broker_ports, choose_ports, nameserver_ports
from dittomq.testing.state import ClusterState, read_state, write_state


@pytest.fixture
def sleeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[processes.ProcessIdentity]:
    """A process that only ends when it is told to."""
    (tmp_path / "sleeper.py").write_text("import signal\nsignal.pause()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = processes.spawn_module("sleeper", [], tmp_path / "log")
    yield process
    processes.end(process, grace_s=0.0)


def test_a_process_is_alive_until_it_is_ended(sleeper: processes.ProcessIdentity) -> None:
    assert processes.is_alive(sleeper)

    processes.end(sleeper, grace_s=5.0)

    assert not processes.is_alive(sleeper)


def test_another_process_that_got_the_same_pid_is_never_touched(sleeper: processes.ProcessIdentity) -> None:
    earlier = replace(sleeper, start_ticks=sleeper.start_ticks - 1)

    processes.end(earlier, grace_s=0.0)

    assert not processes.is_alive(earlier)
    assert processes.is_alive(sleeper)


def test_a_pid_from_before_the_last_boot_is_never_touched(sleeper: processes.ProcessIdentity) -> None:
    processes.send(replace(sleeper, boot_id="another boot"), signal.SIGKILL)

    assert processes.is_alive(sleeper)


def test_settings_for_the_command_line_do_not_reach_the_services(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITTOMQ_NAMESERVER", "elsewhere:9876")

    environment = processes.module_environment()

    assert "DITTOMQ_NAMESERVER" not in environment
    assert str(processes.checkout_root()) in environment["PYTHONPATH"]


def test_a_node_whose_usual_port_is_taken_gets_free_ones_and_the_others_keep_theirs() -> None:
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # held by somebody else: taken all the same
            holder.bind(("127.0.0.1", 10_911))
            holder.listen()
        ports = choose_ports(2, random.Random(1))

    assert ports[1].clients not in (10_911, ports[2].clients)
    assert ports[1].all() == broker_ports(ports[1].clients).all()


def test_no_port_is_given_twice() -> None:
    given = [port for ports in choose_ports(4, random.Random(7), usual=False) for port in ports.all()]

    assert len(given) == len(set(given)) == 2 + 4 * 3


def test_ports_that_another_process_chose_and_has_not_bound_are_not_chosen() -> None:
    choosing = (
        "import random; from dittomq.testing.ports import choose_ports; print(*choose_ports(1, random.Random(8), usual=False)[1].all())"
    )
    with subprocess.Popen(
        [sys.executable, "-c", f"{choosing}; input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = {port for ports in choose_ports(1, random.Random(8), usual=False) for port in ports.all()}
        other.communicate("\n")

    assert len(theirs) == 3
    assert not ours & theirs


def test_the_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    state = ClusterState(
        "local-1",
        Shape(1, ("a", "b"), slave_settings={"reading.master_timeout_ms": 1000}),
        (LocalNode("nameserver", nameserver_ports(9876), processes.ProcessIdentity(1, 2, "boot")), LocalNode("a/0", broker_ports(10_911))),
    )

    write_state(tmp_path, state)

    assert read_state(tmp_path) == state


def test_a_state_that_names_no_broker_groups_has_the_one_that_there_was(tmp_path: Path) -> None:
    (tmp_path / "local.json").write_text('{"schema": 1, "cluster": "local-1", "shape": {"slaves": 1}, "nodes": []}')

    state = read_state(tmp_path)

    assert state is not None
    assert state.shape == Shape(1, ("a",))


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', '{"schema": 1, "shape": {"color": 1}, "nodes": []}'])
def test_a_state_that_is_damaged_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "local.json").write_text(text)

    with pytest.raises(ConfigError, match=r"local\.json"):
        read_state(tmp_path)


def test_a_folder_without_a_cluster_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dittomq local up"):
        LocalCluster(tmp_path).node("a/0")


def test_a_node_that_does_not_run_has_no_pid(tmp_path: Path) -> None:
    write_state(tmp_path, ClusterState("local-1", Shape(0), (LocalNode("a/0", broker_ports(10_911)),)))

    with pytest.raises(Unavailable, match="dittomq local up"):
        LocalCluster(tmp_path).pid("a/0")


def test_the_configuration_of_a_slave_is_toml_that_names_it_and_its_neighbours(tmp_path: Path) -> None:
    slave = LocalNode("a/1", broker_ports(10_921))
    shape = Shape(1, slave_settings={"reading.master_timeout_ms": 1000})
    state = ClusterState("local-1", shape, (LocalNode("nameserver", nameserver_ports(9876)), slave))

    document = tomllib.loads(config_text(state, slave, tmp_path / 'odd "name"', NO_CERTIFICATES))

    assert document["node"]["cluster"] == "local-1"
    assert document["node"]["broker_id"] == 1
    assert document["node"]["nameservers"] == ["127.0.0.1:9876"]
    assert document["node"]["data_dir"] == str(tmp_path / 'odd "name"')
    assert document["listen"]["replication"] == "127.0.0.1:10922"
    assert document["reading"]["master_timeout_ms"] == 1000
    assert "tls" not in document


def test_configuration_names_the_certificates_of_an_encrypted_cluster(tmp_path: Path) -> None:
    node = LocalNode("nameserver", nameserver_ports(9876))
    text = config_text(ClusterState("local-1", Shape(tls=True), (node,)), node, tmp_path, CertificateFiles("ca", "certificate", "key"))

    assert tomllib.loads(text)["tls"] == {"ca_file": "ca", "certificate_file": "certificate", "key_file": "key"}
