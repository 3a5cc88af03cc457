"""The network of a service, encrypted as its configuration says."""

import contextlib
from collections.abc import Iterator

import structlog

from dittomq.doors.clock import Clock
from dittomq.doors.transport import GrpcTransport  # noqa: TID251  # every service's composition root passes here
from dittomq.errors import ConfigError
from dittomq.security.settings import TlsTable
from dittomq.security.tls import Certificates
from dittomq.security.token_files import TokenFile

log = structlog.get_logger()


@contextlib.contextmanager
def encrypted_transport(settings: TlsTable, token_file: str, clock: Clock) -> Iterator[GrpcTransport]:
    """A network with the configured certificates, followed until the end; in plain text where there are none. Raises ConfigError.

    `token_file` holds what says who this node is to others; empty: only its certificate does.
    """
    token = TokenFile("access.own_token_file", token_file, clock) if token_file else None
    if not settings.files:
        yield GrpcTransport(None, token)
        return
    certificates = Certificates(settings.files, on_renewal=_renewed, on_problem=_refused)
    certificates.follow()
    try:
        yield GrpcTransport(certificates, token)
    finally:
        certificates.close()


def _renewed() -> None:
    log.info("certificates_renewed")


def _refused(problem: ConfigError) -> None:
    log.warning("certificates_not_renewed", why=str(problem))
