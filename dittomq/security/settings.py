"""What a node encrypts its connections with, as configuration says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from dittomq.errors import ConfigError
from dittomq.security.tls import CertificateFiles


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
