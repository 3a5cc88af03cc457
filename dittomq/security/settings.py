"""What a node encrypts its connections with, and who may do what on it, as configuration says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from dittomq.errors import ConfigError
from dittomq.security.certificate_files import CertificateFiles
from dittomq.security.gate import AccessFiles


@dataclass(frozen=True, slots=True)
class TlsTable:
    """Encryption of listen.clients and listen.replication, and of all connections to other nodes. Files are read again when they change."""

    ca_file: Annotated[
        str, Meta(description="certificate authority of the other nodes' and the clients' certificates, PEM; all three empty: plain text")
    ] = ""
    certificate_file: Annotated[
        str,
        Meta(description="this node's certificate, PEM; it names the hosts under which others reach the node, and serves as client too"),
    ] = ""
    key_file: Annotated[str, Meta(description="key of that certificate, PEM, without a password")] = ""
    clients_show_certificate: Annotated[
        bool, Meta(description="clients need a certificate of ca_file too; false: only other nodes, at listen.replication, need one")
    ] = True

    @property
    def files(self) -> CertificateFiles:
        """Their paths."""
        return CertificateFiles(self.ca_file, self.certificate_file, self.key_file, ("tls.ca_file", "tls.certificate_file", "tls.key_file"))

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is missing beside what is named."""
        try:
            self.files.check(serves=True)
        except ConfigError as error:
            yield error.where, error.problem


@dataclass(frozen=True, slots=True)
class AccessTable:
    """Who may do what, and how this node shows others who it is. The files are read again when they change."""

    file: Annotated[str, Meta(description="rules, TOML; empty: everybody may do everything")] = ""
    tokens_file: Annotated[str, Meta(description="names and hashes of static tokens, as dittomq token new prints them")] = ""
    jwks_file: Annotated[str, Meta(description="public keys of the issuer of JSON Web Tokens, its jwks_uri as a file")] = ""
    jwt_issuer: Annotated[str, Meta(description="iss of the JSON Web Tokens that are taken")] = ""
    jwt_audience: Annotated[str, Meta(description="aud of the JSON Web Tokens that are taken")] = ""
    own_token_file: Annotated[str, Meta(description="token that this node sends to other nodes; empty: its certificate says who it is")] = (
        ""
    )

    @property
    def files(self) -> AccessFiles:
        """What the gate obeys."""
        return AccessFiles(self.file, self.tokens_file, self.jwks_file, self.jwt_issuer, self.jwt_audience)

    def problems(self) -> Iterator[tuple[str, str]]:
        """What is missing beside what is named."""
        for name in ("tokens_file", "jwks_file"):
            if getattr(self, name) and not self.file:
                yield "access.file", f"is empty, and access.{name} is of no use without rules; name their file"
        for name in ("jwt_issuer", "jwt_audience"):
            if bool(getattr(self, name)) != bool(self.jwks_file):
                yield (
                    f"access.{name}" if self.jwks_file else "access.jwks_file",
                    "is empty; jwks_file, jwt_issuer and jwt_audience go together",
                )
