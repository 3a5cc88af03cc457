"""Files of keys and passwords, read again for each connection: they may be exchanged while a node runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from dittomq.coordination.settings import CoordinationTable
from dittomq.doors.workers import Executor
from dittomq.errors import ConfigError

_MAX_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that a setting names."""

    setting: str
    path: str
    lane: Executor

    async def read(self) -> bytes:
        """What it holds now. Raises ConfigError when it cannot be read, is empty or larger than 1 MiB."""
        return await self.lane.call(lambda: read_secret(self.setting, self.path))


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

    async def credentials(self) -> grpc.ChannelCredentials | None:
        """None for plain text. Raises ConfigError for what cannot be read."""
        if self.ca is None:
            return None
        certificate = None if self.certificate is None else await self.certificate.read()
        key = None if self.key is None else await self.key.read()
        return grpc.ssl_channel_credentials(await self.ca.read(), key, certificate)

    def check(self) -> None:
        """Raise ConfigError for what cannot be read. Blocks: for a start."""
        for file in (self.ca, self.certificate, self.key):
            if file is not None:
                read_secret(file.setting, file.path)


NO_TLS: Final = TlsFiles()


def read_secret(setting: str, path: str) -> bytes:
    """What the file holds. Raises ConfigError when it cannot be read, is empty or larger than 1 MiB."""
    if not path:
        raise ConfigError(setting, "is empty; name the file")
    try:
        with Path(path).open("rb") as file:
            found = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(setting, f"{path} cannot be read: {error.strerror or error}") from error
    if not found.strip():
        raise ConfigError(setting, f"{path} is empty")
    if len(found) > _MAX_BYTES:
        raise ConfigError(setting, f"{path} has more than {_MAX_BYTES:,} bytes")
    return found
