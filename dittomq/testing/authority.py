"""A certificate authority of one local cluster, with a certificate for each node and one for its clients."""

import contextlib
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dittomq.errors import ConfigError
from dittomq.security.certificate_files import CertificateFiles

try:  # an optional extra
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID
except ImportError as error:
    raise ConfigError("--tls", 'makes certificates, and cryptography is not installed; pip install "dittomq[security]"') from error

_AUTHORITY: Final = "ca"
_VALID_FOR: Final = timedelta(days=365)
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """The folder it keeps its files in, for their owner only."""

    folder: Path

    def files_of(self, holder: str) -> CertificateFiles:
        """Where the certificate and key of a node, by its file stem, or of the clients are."""
        ca, certificate, key = (str(self.folder / name) for name in (f"{_AUTHORITY}.crt", f"{holder}.crt", f"{holder}.key"))
        return CertificateFiles(ca, certificate, key)

    def issue(self, holder: str, hosts: Sequence[str]) -> None:
        """Write a new certificate and key of `holder`, who is found at `hosts`. At the first time the authority is made."""
        key, certificate = self._authority()
        own = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(holder), *(_host(host) for host in hosts)]
        builder = (
            _builder(holder, own.public_key(), certificate.subject)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        self._write(f"{holder}.key", _pem(own))
        self._write(f"{holder}.crt", builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def _authority(self) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            key = serialization.load_pem_private_key((self.folder / f"{_AUTHORITY}.key").read_bytes(), password=None)
            assert isinstance(key, ec.EllipticCurvePrivateKey), "it makes no others"
            return key, x509.load_pem_x509_certificate((self.folder / f"{_AUTHORITY}.crt").read_bytes())
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("dittomq local authority")
        builder = _builder("dittomq local authority", key.public_key(), name).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        certificate = builder.sign(key, hashes.SHA256())
        self._write(f"{_AUTHORITY}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        self._write(f"{_AUTHORITY}.key", _pem(key))  # the last: who finds it finds both
        return key, certificate

    def _write(self, name: str, content: bytes) -> None:
        """In one step, for its owner only."""
        draft = self.folder / f"{name}.tmp"
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        draft.replace(self.folder / name)


def _builder(holder: str, public: ec.EllipticCurvePublicKey, issuer: x509.Name) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(holder))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + _VALID_FOR)
    )


def _name(holder: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, holder)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
