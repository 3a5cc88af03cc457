"""A cluster of the tests, as kubectl drives it. It holds the images of this version.

TEST_KUBECTL is the command line of a kubectl that reaches it: the folder's conftest sets it, unless it is set.
"""

import base64
import contextlib
import functools
import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dittomq.client.access import VARIABLES
from dittomq.testing.authority import CertificateAuthority
from tests.support.go_tools import NotBuiltError, built
from tests.support.kubernetes_definitions import definitions
from tests.support.tree import ROOT
from tests.support.waiting import eventually

KUBECTL: Final = "TEST_KUBECTL"
NAMESPACE: Final = "dittomq"
OVERLAYS: Final = ("dev", "dev-tls", "production")
TAG: Final = "0.2.0"
IMAGE: Final = f"dittomq:{TAG}"
NAMESERVERS: Final = ",".join(f"dittomq-nameserver-{each}.dittomq-nameserver.{NAMESPACE}.svc:9876" for each in range(2))
_OVERLAYS: Final = ROOT / "deploy" / "k8s" / "overlays"
_EXAMPLES: Final = ROOT / "deploy" / "k8s" / "examples"
_KUSTOMIZE: Final = "sigs.k8s.io/kustomize/kustomize/v5"


@functools.cache
def rendered(overlay: str) -> str:
    """The overlay as YAML, by kubectl, or where there is none by kustomize. Skips the test where that cannot be built."""
    try:
        render = ["kubectl", "kustomize"] if shutil.which("kubectl") else [str(built("kustomize", _KUSTOMIZE)), "build"]
    except NotBuiltError as why:
        pytest.skip(f"no kubectl on PATH, and {why}")
    return subprocess.run([*render, str(_OVERLAYS / overlay)], capture_output=True, text=True, timeout=60, check=True).stdout


def kubectl(*arguments: str, stdin: str | None = None, timeout_s: float = 120, check: bool = True) -> str:
    """What it prints, at the cluster of the tests."""
    command = [*shlex.split(os.environ[KUBECTL]), *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert not check or done.returncode == 0, f"{command}: {done.stderr[-2000:]}"
    return done.stdout


def in_namespace(*arguments: str, **options: Any) -> str:
    """`kubectl` in the namespace of the overlays."""
    return kubectl("--namespace", NAMESPACE, *arguments, **options)


def holder() -> str:
    """The node that the Lease of the group a names as its master, "a/0"; empty while there is none."""
    return in_namespace("get", "lease", "dittomq-a", "--ignore-not-found", "-o", "jsonpath={.spec.holderIdentity}")


def leads(service: str) -> set[str]:
    """The pods that a service of the namespace leads to."""
    slices = json.loads(in_namespace("get", "endpointslice", "--selector", f"kubernetes.io/service-name={service}", "-o", "json"))
    endpoints = [each for found in slices["items"] for each in found["endpoints"] or ()]
    return {each["targetRef"]["name"] for each in endpoints if each["conditions"]["ready"]}


def rolled_out(name: str = "dittomq-a") -> None:
    """Wait until all pods of that StatefulSet are as it says, and ready."""
    in_namespace("rollout", "status", f"statefulset/{name}", "--timeout", "240s", timeout_s=260)


def job(manifest: str, name: str) -> None:
    """Apply an example of a Job, wait until it has done its work, and delete it: its pod keeps claims from being deleted."""
    in_namespace("apply", "--filename", str(_EXAMPLES / manifest))
    in_namespace("wait", f"job/{name}", "--for", "condition=Complete", "--timeout", "120s", timeout_s=140)
    in_namespace("delete", "job", name)


def define_foreign_objects() -> None:
    """Teach the cluster what cert-manager, a Prometheus operator and snapshots of volumes add to it."""
    kubectl("apply", "--server-side", "--filename", "-", stdin=definitions())
    kubectl("wait", "crd", "--all", "--for", "condition=Established", "--timeout", "60s")


def issue(authority: CertificateAuthority, holder: str) -> None:
    """Put a new certificate where cert-manager would: in the secret of the Certificate of `holder`, with its names."""
    found = [each for each in yaml.safe_load_all(rendered("dev-tls")) if each["metadata"]["name"] == f"dittomq-{holder}"]
    [names] = [each["spec"]["dnsNames"] for each in found if each["kind"] == "Certificate"]
    authority.issue(holder, names)
    files = authority.files_of(holder)
    content = {"ca.crt": files.ca, "tls.crt": files.certificate, "tls.key": files.key}
    data = {name: base64.b64encode(Path(path).read_bytes()).decode() for name, path in content.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"dittomq-{holder}"}, "data": data}
    for namespace in ("default", NAMESPACE):
        kubectl("--namespace", namespace, "apply", "--filename", "-", stdin=json.dumps(secret))


@contextlib.contextmanager
def applied(overlay: str, authority: CertificateAuthority | None = None) -> Iterator[None]:
    """The overlay, in a cluster that lacks its namespace; everything is ready. Deleted in the end. `authority` does cert-manager's work."""
    kubectl("apply", "--filename", "-", stdin=rendered(overlay))
    try:
        if authority is not None:
            issue(authority, "node")
            issue(authority, "client")
        for name in ("dittomq-nameserver", "dittomq-a"):
            rolled_out(name)
        eventually(holder, "the group has a master")
        yield
    finally:
        kubectl("delete", "namespace", NAMESPACE, "--timeout", "120s", timeout_s=150)


@contextlib.contextmanager
def load(topic: str, seconds: int, *, encrypted: bool = False) -> Iterator["Load"]:
    """A client pod in the namespace `default`, which publishes for so long and then reads all back; 0 seconds: counts what there is."""
    name = f"load-{topic}-{seconds}"
    paths = zip(VARIABLES, ("ca.crt", "tls.crt", "tls.key"), strict=True)
    mounted = {
        "env": [{"name": variable, "value": f"/tls/{file}"} for variable, file in paths],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    }
    program = (ROOT / "tests" / "support" / "kubernetes_load.py").read_text(encoding="utf-8")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"dittomq/client": "true"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [
                {
                    "name": "load",
                    "image": IMAGE,
                    "command": ["python3", "-c", program, NAMESERVERS, topic, str(seconds)],
                    "resources": {"requests": {"cpu": "250m"}},  # a client that gets no processor measures itself
                    **(mounted if encrypted else {}),
                },
            ],
            "volumes": [{"name": "tls", "secret": {"secretName": "dittomq-client"}}] if encrypted else [],
        },
    }
    kubectl("apply", "--filename", "-", stdin=json.dumps(pod))
    try:
        yield Load(name)
    finally:
        kubectl("delete", "pod", name, "--wait=false")


class Load:
    """One client pod."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def publishes(self) -> bool:
        """Whether it has its first receipt."""
        return "publishing" in self._printed()

    def result(self, within_s: float) -> dict[str, Any]:
        """What it tells in the end."""
        eventually(lambda: self._phase() in {"Succeeded", "Failed"}, f"{self._name} has ended", within_s=within_s)
        printed = self._printed()
        assert self._phase() == "Succeeded", printed[-2000:]
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    def _phase(self) -> str:
        return kubectl("get", "pod", self._name, "-o", "jsonpath={.status.phase}")

    def _printed(self) -> str:
        return kubectl("logs", self._name, check=False)
