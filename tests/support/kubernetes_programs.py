"""The programs of a Kubernetes, built here from pinned Go modules, and the flags of its API server.

They take ten minutes of two cores to build. CI builds them beside the tests that come first; elsewhere a test that needs them is skipped
until `make kubernetes` or `make coordination` has built them.
"""

import functools
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.go_tools import NotBuiltError, built, place
from tests.support.skips import nothing_may_be_skipped

ISSUER: Final = "https://kubernetes.default.svc"
SERVICES: Final = "10.96.0.0/24"
"""The addresses of services; the API's own is the first."""
ADMINISTRATOR: Final = "administrator"
"""The token of who may do all."""
_NAME: Final = "kubernetes_node"
_BUILD_TIMEOUT_S: Final = 3600


def build() -> Path:
    """The folder of the programs, made now where it was not. Raises NotBuiltError."""
    return built(_NAME, "./kubernetes", "./pause", "tool", timeout_s=_BUILD_TIMEOUT_S)


@functools.cache
def programs() -> Path:
    """It, where it was built or nothing may be skipped. Waits for who builds it; the test is skipped where there is none."""
    if not (place(_NAME).exists() or nothing_may_be_skipped()):
        pytest.skip("no Kubernetes is built here; `make kubernetes` builds it in ten minutes")
    try:
        return build()
    except NotBuiltError as why:
        pytest.skip(str(why))


def program(name: str) -> list[str]:
    """The beginning of the command line of a program: all of Kubernetes is one file."""
    return [str(programs() / "kubernetes"), name]


def api_server(folder: Path, etcd: str, *, host: str, port: int, advertised: str) -> list[str]:
    """An API server's command line: it writes into `folder`, where `write_credentials` has been, and makes its certificate there."""
    key = str(folder / "accounts.key")
    settings = {
        "etcd-servers": etcd,
        "bind-address": host,
        "advertise-address": advertised,
        "secure-port": str(port),
        "service-cluster-ip-range": SERVICES,
        "cert-dir": str(folder / "certificates"),
        "token-auth-file": str(folder / "administrators.csv"),
        "authorization-mode": "RBAC",
        "anonymous-auth": "false",
        "service-account-issuer": ISSUER,
        "service-account-key-file": key,
        "service-account-signing-key-file": key,
        "kubelet-preferred-address-types": "InternalIP",
    }
    return [*program("kube-apiserver"), *(f"--{name}={value}" for name, value in settings.items())]


def authority(folder: Path) -> Path:
    """The certificate that the API server shows, with its authority."""
    return folder / "certificates" / "apiserver.crt"


def write_credentials(folder: Path) -> None:
    """The administrator's token, and the key that signs those of service accounts."""
    (folder / "administrators.csv").write_text(f"{ADMINISTRATOR},administrator,1,system:masters\n")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "accounts.key").write_bytes(pem)


if __name__ == "__main__":
    print(build())
