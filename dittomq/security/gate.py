"""The gate of a node: its access rules and what tokens are verified with, as its files say now.

A gate without rules lets everybody do everything.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dittomq.doors.clock import Clock
from dittomq.errors import ConfigError, PermissionDenied, Unauthenticated
from dittomq.security.access import AccessRole, AccessRules, Allowance, parse_access
from dittomq.security.authentication import Authentication, Caller, KnownTokens
from dittomq.security.followed_files import FollowedFiles
from dittomq.security.secret_files import read_file
from dittomq.security.tokens import parse_tokens
from dittomq.security.web_tokens import parse_keys

_MAX_BYTES: Final = 16 * 1024 * 1024
_MOST_ALLOWANCES: Final = 10_000


@dataclass(frozen=True, slots=True)
class AccessFiles:
    """Paths of what a gate obeys. `rules` empty: no gate."""

    rules: str = ""
    tokens: str = ""
    web_keys: str = ""
    issuer: str = ""
    audience: str = ""


@dataclass(frozen=True, slots=True)
class AccessState:
    """What holds at one time."""

    rules: AccessRules
    tokens: KnownTokens
    allowances: dict[tuple[tuple[str, ...], AccessRole], Allowance | None] = field(default_factory=dict, compare=False)

    def allowance(self, caller: Caller, role: AccessRole) -> Allowance:
        """What a caller may do in that role. Raises PermissionDenied when it is nothing."""
        key = caller.names, role
        if key not in self.allowances:
            if len(self.allowances) >= _MOST_ALLOWANCES:
                self.allowances.clear()
            self.allowances[key] = self.rules.allowance(*key)
        found = self.allowances[key]
        if found is None:
            raise PermissionDenied(f"{caller} has no role {role}: no rule of the access file gives it")
        return found


class Gate(FollowedFiles):
    """Who may do what on this node, now."""

    def __init__(
        self,
        files: AccessFiles,
        authentication: Authentication,
        clock: Clock,
        *,
        on_renewal: Callable[[], None],
        on_problem: Callable[[ConfigError], None],
    ) -> None:
        """Reads the files. Raises ConfigError."""
        super().__init__("access", on_renewal=on_renewal, on_problem=on_problem)
        self._files = files
        self._authentication = authentication
        self._clock = clock
        self._read = _contents(files)
        self.state = _state(files, self._read)

    async def caller(self, headers: Iterable[tuple[str, Any]], connection: Mapping[str, Iterable[bytes]]) -> Caller:
        """Who calls. Raises Unauthenticated, LimitReached."""
        return await self._authentication.caller(self.state.tokens, headers, connection)

    def check_still(self, caller: Caller) -> None:
        """Raise Unauthenticated when what a caller has shown before is not valid any more."""
        if not self.state.tokens.still_know(caller, self._clock.wall_ms()):
            raise Unauthenticated("the token is not valid any more; get a new one")

    def _read_again(self) -> bool:
        found = _contents(self._files)
        if found == self._read:
            return False
        self.state = _state(self._files, found)
        self._read = found
        return True


def _contents(files: AccessFiles) -> tuple[str, str, str]:
    """Of the three files; of one that is not named nothing."""
    named = (("access.file", files.rules), ("access.tokens_file", files.tokens), ("access.jwks_file", files.web_keys))
    rules, tokens, keys = (_content(setting, path) if path else "" for setting, path in named)
    return rules, tokens, keys


def _content(setting: str, path: str) -> str:
    try:
        return read_file(setting, path, _MAX_BYTES).decode()
    except UnicodeDecodeError:
        raise ConfigError(setting, f"{path} cannot be read: it is not UTF-8") from None


def _state(files: AccessFiles, contents: tuple[str, str, str]) -> AccessState:
    rules, tokens, keys = contents
    hashes = parse_tokens(tokens, files.tokens) if files.tokens else {}
    web_keys = parse_keys(keys, files.web_keys, files.issuer, files.audience) if files.web_keys else None
    return AccessState(parse_access(rules, files.rules), KnownTokens(hashes, web_keys))
