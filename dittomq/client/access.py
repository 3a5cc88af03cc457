"""Where a cluster is, and what its nodes are shown, as the environment or a context says."""

from collections.abc import Mapping
from dataclasses import dataclass

from dittomq.client.context import Context, current_context, load_contexts
from dittomq.errors import ConfigError
from dittomq.security.certificate_files import NO_CERTIFICATES, CertificateFiles
from dittomq.security.token_files import TokenFile

VARIABLES = ("DITTOMQ_CA_FILE", "DITTOMQ_CERTIFICATE_FILE", "DITTOMQ_KEY_FILE")
TOKEN_VARIABLE = "DITTOMQ_TOKEN_FILE"


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """Nameservers, "host:port" separated by commas, and certificates; without any, in plain text.

    `token_file` holds a token that says who the client is; empty: its certificate does.
    """

    nameserver: str
    tls: CertificateFiles = NO_CERTIFICATES
    token_file: str = ""

    def token(self) -> TokenFile | None:
        """What is sent to say who the client is. Raises ConfigError."""
        return TokenFile(TOKEN_VARIABLE, self.token_file) if self.token_file else None


def access_of_context(name: str | None) -> ClusterAccess:
    """To the context with that name, or to the current one. Raises ConfigError when there is none."""
    context = load_contexts().find(name) if name is not None else current_context()
    if context is None:
        raise ConfigError("no context is current", "choose one: dittomq context use NAME")
    return to_context(context, {})


def to_context(context: Context, environment: Mapping[str, str]) -> ClusterAccess:
    """To that one, with its certificates, or with those that variables name."""
    return ClusterAccess(context.nameserver, certificates_of(environment) or context.tls, environment.get(TOKEN_VARIABLE, ""))


def certificates_of(environment: Mapping[str, str]) -> CertificateFiles:
    """What DITTOMQ_CA_FILE, DITTOMQ_CERTIFICATE_FILE and DITTOMQ_KEY_FILE name."""
    ca, certificate, key = (environment.get(variable, "") for variable in VARIABLES)
    return CertificateFiles(ca, certificate, key, VARIABLES)
