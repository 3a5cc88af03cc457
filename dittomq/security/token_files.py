"""The token that a process sends to say who it is: from a file, which may be exchanged while the process runs."""

import re
from collections.abc import Callable
from typing import Final

from dittomq.errors import ConfigError
from dittomq.security.followed_files import FollowedFiles, ignore
from dittomq.security.secret_files import read_secret

_TOKEN: Final = re.compile(r"[a-zA-Z0-9._~+/=-]{1,8000}")


class TokenFile(FollowedFiles):
    """The token that a file holds, and after `follow` the one that replaces it. No call waits for the file."""

    def __init__(
        self, setting: str, path: str, *, on_renewal: Callable[[], None] = ignore, on_problem: Callable[[ConfigError], None] = ignore
    ) -> None:
        """Reads it. Raises ConfigError. By default only the node that is called says when the former token has expired."""
        super().__init__("token", on_renewal=on_renewal, on_problem=on_problem)
        self._setting = setting
        self._path = path
        self._token = read_token(setting, path)

    def __call__(self) -> str:
        """The token; the former one as long as the file holds none."""
        return self._token

    def _read_again(self) -> bool:
        found = read_token(self._setting, self._path)
        if found == self._token:
            return False
        self._token = found
        return True


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
