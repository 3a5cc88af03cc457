"""TLS with certificates from files, which may be exchanged while a process runs.

A server hands out the newest certificate at each handshake. A channel keeps what it was made with: who holds it compares `version`.
"""

import ssl
from collections.abc import Callable
from typing import Any, NamedTuple, Self

import grpc

from dittomq.errors import ConfigError
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.followed_files import FollowedFiles, ignore
from dittomq.security.secret_files import read_secret


class PemFiles(NamedTuple):
    """What the files hold; None where none is named."""

    ca: bytes
    certificate: bytes | None
    key: bytes | None


def load_certificates(files: CertificateFiles) -> PemFiles:
    """What they hold now, checked to belong together. Blocks. Raises ConfigError."""
    while True:
        found = _read(files)
        _check(files)
        if _read(files) == found:  # nobody exchanged them meanwhile
            return found


class Certificates(FollowedFiles):
    """The certificates of a process, and after `follow` those that replace them; for any number of threads."""

    def __init__(self, files: CertificateFiles, *, on_renewal: Callable[[], None], on_problem: Callable[[ConfigError], None]) -> None:
        """Reads them. Raises ConfigError."""
        super().__init__("certificates", on_renewal=on_renewal, on_problem=on_problem)
        self._files = files
        self._known = (0, load_certificates(files))

    @classmethod
    def of_client(cls, files: CertificateFiles) -> Self:
        """Those of a library's user, who is told of new ones that are unusable by the first call that fails. Raises ConfigError."""
        files.check(serves=False)
        return cls(files, on_renewal=ignore, on_problem=ignore)

    @property
    def version(self) -> int:
        """Grows when the files were exchanged."""
        return self._known[0]

    def _read_again(self) -> bool:
        version, known = self._known
        found = load_certificates(self._files)
        if found == known:
            return False
        self._known = (version + 1, found)
        return True

    def of_channel(self) -> grpc.ChannelCredentials:
        """What a channel that is made now shows and trusts."""
        _, pem = self._known
        return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)

    def of_server(self, *, callers_show_theirs: bool) -> grpc.ServerCredentials:
        """What a server shows and trusts, the newest at each handshake. Unless callers must show theirs, none is asked for."""
        shown, pem = self._known

        def renewed() -> Any:  # None, which gRPC takes for no change, is not in its types
            nonlocal shown
            version, newest = self._known
            if version == shown:
                return None
            shown = version
            return _configuration(newest)

        return grpc.dynamic_ssl_server_credentials(_configuration(pem), renewed, callers_show_theirs)


def _configuration(pem: PemFiles) -> grpc.ServerCertificateConfiguration:
    assert pem.key is not None, "who serves has one"
    assert pem.certificate is not None, "the same"
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


def _read(files: CertificateFiles) -> PemFiles:
    ca, certificate, key = files.settings
    if not files.certificate:
        return PemFiles(read_secret(ca, files.ca), None, None)
    return PemFiles(read_secret(ca, files.ca), read_secret(certificate, files.certificate), read_secret(key, files.key))


def _check(files: CertificateFiles) -> None:
    """Files that are none gRPC would take, and then every handshake fails."""
    ca, certificate, key = files.settings
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(files.ca)
    except OSError as error:
        raise ConfigError(ca, f"{files.ca} holds no certificates in PEM; name the certificate authority's file") from error
    if not files.certificate:
        return
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError) and error.reason == "KEY_VALUES_MISMATCH":
            raise ConfigError(key, f"{files.key} is not the key of {files.certificate}; name the one that belongs to it") from error
        problem = f"{files.certificate} and {files.key} ({key}) are no certificate and key in PEM without a password"
        raise ConfigError(certificate, problem) from error


def _no_password() -> str:
    """Asked only where a key needs one; else a prompt would wait for somebody at a terminal."""
    raise ValueError("the key has a password")
