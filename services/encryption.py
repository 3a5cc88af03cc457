"""The network of a service, encrypted as its configuration says."""

import contextlib
from collections.abc import Iterator

import structlog

from dittomq.doors.transport import GrpcTransport  # noqa: TID251  # every service's composition root passes here
from dittomq.errors import ConfigError
from dittomq.security.followed_files import following
from dittomq.security.settings import TlsTable
from dittomq.security.tls import Certificates
from dittomq.security.token_files import TokenFile

log = structlog.get_logger()


@contextlib.contextmanager
def encrypted_transport(settings: TlsTable, token_file: str) -> Iterator[GrpcTransport]:
    """A network with the configured certificates and token, followed until the end; in plain text without the former. Raises ConfigError.

    `token_file` holds what says who this node is to others; empty: only its certificate does.
    """
    token = certificates = None
    if token_file:
        token = TokenFile("access.own_token_file", token_file, on_renewal=_token_renewed, on_problem=_token_refused)
    if settings.files:
        certificates = Certificates(settings.files, on_renewal=_certificates_renewed, on_problem=_certificates_refused)
    with following(token, certificates):
        yield GrpcTransport(certificates, token)


def _certificates_renewed() -> None:
    log.info("certificates_renewed")


def _certificates_refused(problem: ConfigError) -> None:
    log.warning("certificates_not_renewed", why=str(problem))


def _token_renewed() -> None:
    log.info("own_token_renewed")


def _token_refused(problem: ConfigError) -> None:
    log.warning("own_token_not_renewed", why=str(problem))
