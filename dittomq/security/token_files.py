"""The token that a process sends to say who it is: from a file, which may be exchanged while the process runs."""

import contextlib
import re
import threading
from collections.abc import Callable
from typing import Final

from dittomq.doors.clock import Clock
from dittomq.errors import ConfigError
from dittomq.security.secret_files import read_secret

_READ_EVERY_S: Final = 30.0
_TOKEN: Final = re.compile(r"[a-zA-Z0-9._~+/=-]{1,8000}")


class TokenFile:
    """A file with one token, read again every 30 s when it is asked for, by a thread: a file system that hangs keeps no call waiting."""

    def __init__(self, setting: str, path: str, clock: Clock) -> None:
        """Reads it. Raises ConfigError."""
        self._setting = setting
        self._path = path
        self._clock = clock
        self._read_at = clock.monotonic()
        self._reading = threading.Thread()  # at most one reads
        self._token = read_token(setting, path)

    def __call__(self) -> str:
        """The token; the former one while the file is read again, and as long as it holds none."""
        now = self._clock.monotonic()
        if now - self._read_at >= _READ_EVERY_S and not self._reading.is_alive():
            self._read_at = now
            self._reading = threading.Thread(target=self._read_again, name="token", daemon=True)
            self._reading.start()
        return self._token

    def _read_again(self) -> None:
        with contextlib.suppress(ConfigError):  # who is called says when the former one is not valid any more
            self._token = read_token(self._setting, self._path)


def source_of_token(token: str | Callable[[], str] | None) -> Callable[[], str] | None:
    """What gives the token at each call; None: there is none. Raises ConfigError for what is no token."""
    if isinstance(token, str):
        checked_token("token", token)
        return lambda: token
    return token


def read_token(setting: str, path: str) -> str:
    """The token that a file holds. Raises ConfigError, which never tells what the file holds."""
    return checked_token(setting, read_secret(setting, path).decode(errors="replace").strip())


def checked_token(setting: str, token: str) -> str:
    """The same token. Raises ConfigError, which does not tell it, for what no header may carry."""
    if not _TOKEN.fullmatch(token):
        raise ConfigError(setting, "is no token: it has other characters than letters, digits and -._~+/=, or more than 8,000")
    return token
