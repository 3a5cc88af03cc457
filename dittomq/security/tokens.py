"""Static tokens, "NAME~SECRET", and the file that knows them by their argon2 hashes only.

A line of the file: NAME, a space, the hash. The secret is 256 random bits, so that the hash need not be slow to be safe.
"""

import base64
import random
import re
from collections.abc import Mapping
from typing import Final

from dittomq.errors import ConfigError

MAX_TOKENS: Final = 10_000
SEPARATOR: Final = "~"
_SECRET_BYTES: Final = 32
_NAME: Final = re.compile(r"[a-zA-Z0-9_.-]{1,63}")
_TOKEN: Final = re.compile(rf"({_NAME.pattern}){SEPARATOR}([a-zA-Z0-9_-]{{20,128}})")
_MEMORY_KIB, _PASSES, _LANES = 19_456, 2, 1  # OWASP's first choice: 20 ms and 19 MiB
_MOST_MEMORY_KIB, _MOST_PASSES, _MOST_LANES = 262_144, 16, 16  # a line that asks for more would let callers stop the node


def new_token(name: str, chance: random.Random) -> tuple[str, str]:
    """A token, to be shown once, and its line for the file. Raises ConfigError for a name that is none, or without argon2."""
    if not _NAME.fullmatch(name):
        raise ConfigError("NAME", f'"{name}" has other characters than letters, digits, dots, dashes or underscores, or more than 63')
    secret = base64.urlsafe_b64encode(chance.randbytes(_SECRET_BYTES)).decode().rstrip("=")
    try:
        from argon2.low_level import Type, hash_secret  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise _without_argon2("NAME") from error
    parameters = {"time_cost": _PASSES, "memory_cost": _MEMORY_KIB, "parallelism": _LANES}
    hashed = hash_secret(secret.encode(), chance.randbytes(16), hash_len=32, type=Type.ID, **parameters)
    return f"{name}{SEPARATOR}{secret}", f"{name} {hashed.decode()}"


def parse_token(text: str) -> tuple[str, str] | None:
    """Name and secret; None for what is no static token."""
    found = _TOKEN.fullmatch(text)
    return None if found is None else (found[1], found[2])


def is_token_of(hashed: str, secret: str) -> bool:
    """Whether the hash of the file is this secret's. Takes 20 ms of a core and blocks."""
    from argon2 import PasswordHasher  # noqa: PLC0415  # an extra
    from argon2.exceptions import VerifyMismatchError  # noqa: PLC0415  # the same

    try:
        return PasswordHasher().verify(hashed, secret)
    except VerifyMismatchError:
        return False


def parse_tokens(text: str, where: str) -> Mapping[str, str]:
    """By name the hashes of a tokens file; `where` names it. Raises ConfigError that names the line and none of its content."""
    try:
        from argon2 import extract_parameters  # noqa: PLC0415  # an extra
        from argon2.exceptions import InvalidHashError  # noqa: PLC0415  # the same
    except ImportError as error:
        raise _without_argon2(where) from error
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        place, words = f"{where}:{number}", line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or not _NAME.fullmatch(words[0]):
            raise ConfigError(place, "is not a name and a hash; make a line with dittomq token new NAME")
        if words[0] in found:
            raise ConfigError(place, f'names "{words[0]}" again; give the other one another name')
        try:
            asked = extract_parameters(words[1])
        except InvalidHashError:
            raise ConfigError(place, "has no hash of argon2; make a line with dittomq token new NAME") from None
        if asked.memory_cost > _MOST_MEMORY_KIB or asked.time_cost > _MOST_PASSES or asked.parallelism > _MOST_LANES:
            raise ConfigError(place, "asks for more work than a call may cost; make a line with dittomq token new NAME")
        found[words[0]] = words[1]
    if len(found) > MAX_TOKENS:
        raise ConfigError(where, f"has {len(found):,} tokens, the limit is {MAX_TOKENS:,}")
    return found


def _without_argon2(where: str) -> ConfigError:
    return ConfigError(where, "needs the package argon2-cffi; install it: pip install 'dittomq[security]'")
