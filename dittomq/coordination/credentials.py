"""What connections to a store are encrypted with, read again for each: the files may be exchanged while a node runs."""

from dataclasses import dataclass

import grpc
import grpc.experimental

from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.workers import Executor
from dittomq.errors import ConfigError
from dittomq.security.secret_files import SecretFile, read_secret


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What connections are encrypted with; without `ca` they are in plain text."""

    ca: SecretFile | None = None
    certificate: SecretFile | None = None
    key: SecretFile | None = None

    @classmethod
    def of(cls, settings: CoordinationTable, lane: Executor) -> "TlsFiles":
        """As configured. Raises ConfigError."""
        if bool(settings.certificate_file) != bool(settings.key_file):
            missing = "coordination.key_file" if settings.certificate_file else "coordination.certificate_file"
            raise ConfigError(missing, "is empty; a client certificate and its key go together")
        if settings.certificate_file and not settings.ca_file:
            raise ConfigError("coordination.ca_file", "is empty; a client certificate needs it, for it needs TLS")
        named = (("ca_file", settings.ca_file), ("certificate_file", settings.certificate_file), ("key_file", settings.key_file))
        return cls(*(SecretFile(f"coordination.{name}", path, lane) if path else None for name, path in named))

    async def credentials(self) -> grpc.ChannelCredentials:
        """Also of plain text, whatever this node's own connections are. Raises ConfigError for what cannot be read."""
        if self.ca is None:
            plain: grpc.ChannelCredentials = grpc.experimental.insecure_channel_credentials()  # type: ignore[no-untyped-call]
            return plain
        certificate = None if self.certificate is None else await self.certificate.read()
        key = None if self.key is None else await self.key.read()
        return grpc.ssl_channel_credentials(await self.ca.read(), key, certificate)

    def check(self) -> None:
        """Raise ConfigError for what cannot be read. Blocks: for a start."""
        for file in (self.ca, self.certificate, self.key):
            if file is not None:
                read_secret(file.setting, file.path)
