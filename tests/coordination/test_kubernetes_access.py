"""Where a node finds the Kubernetes API and what it shows there: as configured, or that of its pod."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dittomq.coordination.kubernetes import KubernetesAccess, kubernetes_access, lease_name
from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from dittomq.errors import ConfigError
from tests.coordination.backends import door_of
from tests.support.inline_lane import InlineLane

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
NO_POD: Mapping[str, str] = {}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    for name in ("namespace", "token", "ca.crt"):
        (folder / name).write_text(f"of-the-pod-{name}\n")
    return folder


def access(settings: CoordinationTable, account: Path, *endpoints: str, environment: Mapping[str, str] = POD) -> KubernetesAccess:
    return kubernetes_access(settings, endpoints, environment=environment, lane=InlineLane(), account=account)


def test_a_pod_uses_its_service_account(account: Path) -> None:
    found = access(CoordinationTable(), account)

    assert (found.address, found.namespace) == ("10.96.0.1:443", "of-the-pod-namespace")
    assert found.token is not None
    assert (found.token.path, found.ca.path) == (str(account / "token"), str(account / "ca.crt"))
    assert found.certificate is None


def test_what_is_configured_comes_before_what_the_pod_has(account: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    other = str(tmp_path / "other")
    found = access(CoordinationTable(namespace="prod", token_file=other, ca_file=other), account, "k8s:6443")

    assert (found.address, found.namespace) == ("k8s:6443", "prod")
    assert found.token is not None
    assert found.token.path == found.ca.path == other


def test_the_address_of_a_cluster_with_ipv6_is_bracketed(account: Path) -> None:
    assert access(CoordinationTable(), account, environment={**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}).address == "[fd00::1]:443"


def test_a_client_certificate_needs_no_token(account: Path) -> None:
    (account / "token").unlink()
    shown = str(account / "ca.crt")
    found = access(CoordinationTable(certificate_file=shown, key_file=shown), account)

    assert found.token is None
    assert found.certificate is not None


@pytest.mark.parametrize(
    ("settings", "endpoints", "missing", "sentence"),
    [
        (CoordinationTable(), (), "", "coordination.endpoints: is empty, and this node runs in no pod"),
        (CoordinationTable(), ("a:1", "b:1"), "", "coordination.endpoints: names several"),
        (CoordinationTable(), ("a:1",), "namespace", "coordination.namespace: .* cannot be read"),
        (CoordinationTable(), ("a:1",), "token", "coordination.token_file: .* cannot be read"),
        (CoordinationTable(), ("a:1",), "ca.crt", "coordination.ca_file: .* cannot be read"),
        (CoordinationTable(key_file="key"), ("a:1",), "", "coordination.certificate_file: is empty"),
    ],
)
def test_what_is_missing_is_named_at_the_start(
    account: Path, settings: CoordinationTable, endpoints: tuple[str, ...], missing: str, *, sentence: str
) -> None:
    if missing:
        (account / missing).unlink()

    with pytest.raises(ConfigError, match=sentence):
        access(settings, account, *endpoints, environment=NO_POD)


def test_a_node_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dittomq.coordination.kubernetes")
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)

    with pytest.raises(ConfigError, match=r'kubernetes_asyncio is not installed; pip install "dittomq\[kubernetes\]"'):
        door_of(CoordinationTable(backend=CoordinationBackend.KUBERNETES), "127.0.0.1:6443")


@pytest.mark.parametrize(
    ("broker", "name"),
    [("broker-a", "dittomq-broker-a"), ("a.b", "dittomq-a.b"), ("A", "dittomq.41"), ("a_b", "dittomq.615f62"), ("-", "dittomq.2d")],
)
def test_a_lease_has_the_brokers_name_or_its_bytes(broker: str, name: str) -> None:
    assert lease_name(broker) == name
