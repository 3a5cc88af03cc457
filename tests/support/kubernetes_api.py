"""A real Kubernetes API on loopback, over an etcd of its own: Leases, namespaces, service accounts and RBAC, and no containers.

Kubernetes calls it its generic control plane: the API server without pods and nodes. It takes ten minutes of two cores to build, so a test
that needs it is skipped until `make coordination` has built it.
"""

import contextlib
import functools
import json
import random
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dittomq.coordination.settings import CoordinationBackend, CoordinationTable
from dittomq.errors import Unavailable
from dittomq.testing.ports import choose_ports, give_back
from tests.support.etcd import Etcd, etcd_members
from tests.support.go_tools import built, place
from tests.support.skips import ON_REQUEST
from tests.support.waiting import PATIENCE_S, eventually

NAMESPACE: Final = "messaging"
ISSUER: Final = "https://kubernetes.default.svc"
_NAME: Final = "kubernetes_api"
_PACKAGE: Final = "k8s.io/kubernetes/pkg/controlplane/apiserver/samples/generic"
_FLAGS: Final = ("-gcflags=all=-dwarf=false", "-ldflags=-s -w")  # nobody debugs it
_BUILD_TIMEOUT_S: Final = 3600
_ADMIN_TOKEN: Final = "administrator"
_VERBS: Final = ("get", "create", "update", "watch", "delete")


def build() -> Path:
    """The program, made now where it was not. Raises NotBuiltError."""
    return built(_NAME, _PACKAGE, *_FLAGS, timeout_s=_BUILD_TIMEOUT_S)


@functools.cache
def api_program() -> Path:
    """It, where it was built; the test is skipped where it was not."""
    if not place(_NAME).exists():
        pytest.skip(f"{ON_REQUEST} a Kubernetes API, which `make coordination` builds in ten minutes")
    return place(_NAME)


class KubernetesApi:
    """An API server that a test kills and starts again. Service account `node` may what a node needs in NAMESPACE, `stranger` nothing."""

    def __init__(self, folder: Path, etcd: Etcd, port: int) -> None:
        self.folder = folder
        self.address = f"127.0.0.1:{port}"
        self._etcd = etcd
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> CoordinationTable:
        """As a node of the service account `node` has them."""
        return CoordinationTable(
            backend=CoordinationBackend.KUBERNETES,
            namespace=NAMESPACE,
            token_file=str(self.token_file("node")),
            ca_file=str(self.folder / "certificates" / "apiserver.crt"),
        )

    def token_file(self, account: str) -> Path:
        """The file that holds that service account's token."""
        return self.folder / f"{account}.token"

    def start(self) -> None:
        """It, and its etcd; they answer a little later."""
        self._etcd.start()
        if self._process is None:
            with (self.folder / "api.log").open("ab") as log:
                self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)

    def kill(self) -> None:
        """SIGKILL to it, and to its etcd."""
        self.kill_server()
        self._etcd.kill()

    def kill_server(self) -> None:
        """SIGKILL to the API server alone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None

    def asked(self, method: str, path: str, body: object = None) -> Any:
        """What it answers an administrator. Raises Unavailable where it does not, HTTPError where it refuses."""
        request = urllib.request.Request(
            f"https://{self.address}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {_ADMIN_TOKEN}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            trust = ssl.create_default_context(cafile=self.settings.ca_file)
            with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
                said = answer.read()
        except urllib.error.HTTPError as error:
            if error.code in {403, 500, 503}:  # it starts
                raise Unavailable(self.address, str(error)) from error
            raise
        except OSError as error:
            raise Unavailable(self.address, str(error)) from error
        return said.decode() if path == "/readyz" else json.loads(said)

    def lease(self, name: str) -> str:
        """The path of a Lease in NAMESPACE."""
        return f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}"

    def prepare(self) -> None:
        """Wait until it is up, and make the namespace, the service accounts and the Role."""
        eventually(lambda: self.asked("GET", "/readyz") == "ok", "the API server is up")
        core, rbac = "/api/v1/namespaces", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
        self.asked("POST", core, {"metadata": {"name": NAMESPACE}})
        rule = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": _VERBS}
        self.asked("POST", f"{rbac}/roles", {"metadata": {"name": "dittomq"}, "rules": [rule]})
        binding = {
            "metadata": {"name": "dittomq"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "dittomq"},
            "subjects": [{"kind": "ServiceAccount", "name": "node", "namespace": NAMESPACE}],
        }
        self.asked("POST", f"{rbac}/rolebindings", binding)
        for account in ("node", "stranger"):
            self.asked("POST", f"{core}/{NAMESPACE}/serviceaccounts", {"metadata": {"name": account}})
            asked = {"spec": {"expirationSeconds": 3600}}
            answer = self.asked("POST", f"{core}/{NAMESPACE}/serviceaccounts/{account}/token", asked)
            self.token_file(account).write_text(answer["status"]["token"])

    def _command(self) -> list[str]:
        key = str(self.folder / "accounts.key")
        settings = {
            "etcd-servers": ",".join(f"http://{each}" for each in self._etcd.endpoints),
            "bind-address": "127.0.0.1",
            "secure-port": self.address.rpartition(":")[2],
            "cert-dir": str(self.folder / "certificates"),  # it makes them
            "token-auth-file": str(self.folder / "administrators.csv"),
            "authorization-mode": "RBAC",
            "anonymous-auth": "false",
            "client-ca-file": str(self.folder / "clients.pem"),
            "service-account-issuer": ISSUER,
            "service-account-key-file": key,
            "service-account-signing-key-file": key,
        }
        return [str(api_program()), *(f"--{name}={value}" for name, value in settings.items())]


@contextlib.contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """A new one, which runs while the block does. Skips the test where there is none."""
    api_program()
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on PATH to make the key of service accounts with")
    folder.mkdir(exist_ok=True)
    _make_keys(openssl, folder)
    (folder / "administrators.csv").write_text(f"{_ADMIN_TOKEN},administrator,1,system:masters\n")
    [ports] = choose_ports(0, random.SystemRandom(), usual=False)
    with etcd_members(folder / "etcd", 1) as etcd:
        api = KubernetesApi(folder, etcd, ports.clients)
        try:
            api.start()
            api.prepare()
            yield api
        finally:
            api.kill_server()
            give_back(ports)


def _make_keys(openssl: str, folder: Path) -> None:
    """The key of service accounts; an authority for clients, and a certificate of it for the service account `node`."""

    def make(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    make("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", "accounts.key")
    make(*new, "-x509", "-days", "2", "-subj", "/CN=clients", "-keyout", "clients.key", "-out", "clients.pem")
    make(*new, "-subj", f"/CN=system:serviceaccount:{NAMESPACE}:node", "-keyout", "node.key", "-out", "node.csr")
    make(
        "x509",
        "-req",
        "-in",
        "node.csr",
        "-days",
        "2",
        "-CA",
        "clients.pem",
        "-CAkey",
        "clients.key",
        "-CAcreateserial",
        "-out",
        "node.pem",
    )


if __name__ == "__main__":
    print(build())
