"""What programs that know Kubernetes find in the overlays; installed from a lock of their own at the first run."""

import json
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkers import checker
from tests.support.kubernetes_cluster import OVERLAYS, rendered

pytestmark = [pytest.mark.tier("nightly"), pytest.mark.parametrize("overlay", OVERLAYS)]

MEANT: Final = {
    "CKV_K8S_11": "no limit of processor time: a node that is throttled answers its group late, and loses its place",
    "CKV_K8S_15": "tags are versions, so an image that is there is the right one",
    "CKV_K8S_38": "a node needs its token for the Lease",
    "CKV_K8S_43": "who has a registry pins digests in an overlay",
}
"""What checkov says of the manifests, and why it stays."""


@pytest.fixture
def manifests(overlay: str, tmp_path: Path) -> str:
    (path := tmp_path / f"{overlay}.yaml").write_text(rendered(overlay), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("version", ["1.30.0", "1.34.0", "1.37.0"])
def test_every_object_is_valid_in_three_versions_of_kubernetes(manifests: str, version: str) -> None:
    ran = _check("kubernetes-validate", "--kubernetes-version", version, "--strict", "--quiet", "--no-warn", manifests)

    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_checkov_finds_nothing_but_what_is_meant(manifests: str) -> None:
    ran = _check("checkov", "--skip-download", "--framework", "kubernetes", "--output", "json", "--file", manifests)
    found = json.loads(ran.stdout)

    assert found["summary"]["passed"] > 100
    assert {check["check_id"] for check in found["results"]["failed_checks"]} == MEANT.keys()


def _check(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(checker(name)), *arguments], capture_output=True, text=True, timeout=300, check=False)
