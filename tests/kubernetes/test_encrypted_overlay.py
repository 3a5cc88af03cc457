"""The overlay dev with TLS: the project's own authority does what cert-manager would."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from dittomq.testing.authority import CertificateAuthority
from tests.support.kubernetes_cluster import applied, define_foreign_objects, in_namespace, issue, load
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

SHOWN = "import ssl; print(ssl.get_server_certificate(('127.0.0.1', 10911)))"
WITHIN_S = 180.0  # the kubelet looks at secrets once a minute or so


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertificateAuthority]:
    made = CertificateAuthority(tmp_path_factory.mktemp("authority"))
    define_foreign_objects()
    with applied("dev-tls", made):
        yield made


def shown() -> bytes:
    """The certificate that the node a/0 shows to clients now."""
    return ssl.PEM_cert_to_DER_cert(in_namespace("exec", "dittomq-a-0", "--", "python3", "-c", SHOWN).strip())


def test_clients_and_the_audit_reach_every_node_over_tls(authority: CertificateAuthority, audit_image: None) -> None:
    with load("encrypted", 5, encrypted=True) as running:
        found = running.result(within_s=120)
    in_namespace("create", "job", "audit-now", "--from", "cronjob/dittomq-audit")
    in_namespace("wait", "job/audit-now", "--for", "condition=Complete", "--timeout", "180s", timeout_s=200)

    assert found["acknowledged"] > 1
    assert (found["lost"], found["twice"], found["refusals"]) == (0, 0, []), found
    assert any(line.startswith("PASS") for line in in_namespace("logs", "job/audit-now").splitlines())


def test_a_renewed_certificate_is_shown_without_a_restart(authority: CertificateAuthority) -> None:
    before = shown()
    issue(authority, "node")
    renewed = ssl.PEM_cert_to_DER_cert(Path(authority.files_of("node").certificate).read_text())
    assert before != renewed

    eventually(lambda: shown() == renewed, "the node shows the new certificate", within_s=WITHIN_S)

    pods = json.loads(in_namespace("get", "pods", "--selector", "app.kubernetes.io/component=broker", "-o", "json"))["items"]
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in pods] == [0, 0, 0]
    with load("renewed", 5, encrypted=True) as running:
        assert running.result(within_s=120)["lost"] == 0
