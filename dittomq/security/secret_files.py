"""Files of keys, certificates and passwords."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

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


def read_secret(setting: str, path: str) -> bytes:
    """What the file holds. Raises ConfigError when it cannot be read, is empty or larger than 1 MiB."""
    if not path:
        raise ConfigError(setting, "is empty; name the file")
    found = read_file(setting, path, _MAX_BYTES)
    if not found.strip():
        raise ConfigError(setting, f"{path} is empty")
    return found


def read_file(setting: str, path: str, most_bytes: int) -> bytes:
    """What the file holds. Raises ConfigError when it cannot be read, or is larger."""
    try:
        with Path(path).open("rb") as file:
            found = file.read(most_bytes + 1)
    except OSError as error:
        raise ConfigError(setting, f"{path} cannot be read: {error.strerror or error}") from error
    if len(found) > most_bytes:
        raise ConfigError(setting, f"{path} has more than {most_bytes:,} bytes")
    return found
