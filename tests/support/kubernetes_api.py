"""A real Kubernetes API on loopback, over an etcd of its own: Leases, namespaces, service accounts and RBAC, and nothing that runs pods."""

import contextlib
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
from tests.support.kubernetes_programs import ADMINISTRATOR, api_server, authority, programs, write_credentials
from tests.support.waiting import PATIENCE_S, eventually

NAMESPACE: Final = "messaging"
_NOWHERE: Final = "203.0.113.1"  # an API server must name an address that is not on loopback; nothing uses it
_VERBS: Final = ("get", "create", "update", "watch", "delete")


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
            ca_file=str(authority(self.folder)),
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
            {"Authorization": f"Bearer {ADMINISTRATOR}", "Content-Type": "application/json"},
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
        etcd, (host, _, port) = f"http://{self._etcd.endpoints[0]}", self.address.partition(":")
        command = api_server(self.folder, etcd, host=host, port=int(port), advertised=_NOWHERE)
        return [*command, f"--client-ca-file={self.folder / 'clients.pem'}"]


@contextlib.contextmanager
def kubernetes_api(folder: Path) -> Iterator[KubernetesApi]:
    """A new one, which runs while the block does. Skips the test where there is none."""
    programs()
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl on PATH to make certificates of clients with")
    folder.mkdir(exist_ok=True)
    _make_keys(openssl, folder)
    write_credentials(folder)
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
    """An authority for clients, and a certificate of it for the service account `node`."""

    def make(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)

    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
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
