"""Who a caller is: a certificate of its connection, or a token that it sends. A token is verified once, not at each call."""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import LimitReached, Unauthenticated
from dittomq.security.tokens import is_token_of, parse_token
from dittomq.security.web_tokens import WebKeys

AUTHORIZATION: Final = "authorization"
_SCHEME: Final = "bearer "
_MOST_REMEMBERED: Final = 10_000
_MOST_WAITING: Final = 256
_MAX_TOKEN_CHARACTERS: Final = 8_000  # gRPC takes headers of 8 KiB
_ALTERNATIVE_NAMES: Final = "x509_subject_alternative_name"
_COMMON_NAME: Final = "x509_common_name"
_MISSING: Final = "this call needs a certificate or a token, and there is none; configure one"
_INVALID: Final = "the token is not valid (any more); get a new one"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls: names, "kind:name"; a token's also what it was verified with, and until when in milliseconds since 1970."""

    names: tuple[str, ...]
    shown: str = ""
    until_ms: int | None = None

    def __str__(self) -> str:
        return ", ".join(self.names[:3])


@dataclass(frozen=True, slots=True)
class KnownTokens:
    """What tokens are verified with: hashes of static ones by name, and the keys of an issuer."""

    hashes: Mapping[str, str] = field(default_factory=dict)
    web_keys: WebKeys | None = None

    def still_know(self, caller: Caller, now_ms: int) -> bool:
        """Whether what a caller has shown is valid still."""
        kind, _, name = caller.names[0].partition(":")
        if kind == "token":
            return self.hashes.get(name) == caller.shown
        if kind == "jwt":
            has_key = self.web_keys is not None and (caller.shown in self.web_keys.keys or not caller.shown)
            return has_key and caller.until_ms is not None and now_ms < caller.until_ms
        return True


class Authentication:
    """Tells callers from each other. Tokens are remembered by a keyed hash, so that none lies in memory for longer than its call."""

    def __init__(self, clock: Clock, lane: Executor, chance: random.Random) -> None:
        """`lane` verifies tokens, as many at a time as it is wide."""
        self._clock = clock
        self._lane = lane
        self._key = chance.randbytes(32)
        self._remembered: OrderedDict[bytes, Caller | str] = OrderedDict()  # of a token that was refused why
        self._known = KnownTokens()
        self._waiting = 0

    async def caller(self, known: KnownTokens, headers: Iterable[tuple[str, Any]], connection: Mapping[str, Iterable[bytes]]) -> Caller:
        """Who calls. A token goes before a certificate. Raises Unauthenticated, and LimitReached where too many are being verified."""
        for name, value in headers:
            if name == AUTHORIZATION:
                return await self._of_token(known, value)
        names = _names(connection)
        if not names:
            raise Unauthenticated(_MISSING)
        return Caller(names)

    async def _of_token(self, known: KnownTokens, header: object) -> Caller:
        if not isinstance(header, str) or not header[: len(_SCHEME)].lower() == _SCHEME or len(header) > _MAX_TOKEN_CHARACTERS:
            raise Unauthenticated('the header "authorization" is not "Bearer" and a token')
        if known is not self._known:  # what was refused may be valid now
            self._known = known
            self._remembered.clear()
        token = header[len(_SCHEME) :].strip()
        key = hashlib.blake2b(token.encode(), key=self._key, digest_size=32).digest()
        found = self._remembered.get(key)
        if found is None:
            found = await self._verify(known, token, key)
        else:
            self._remembered.move_to_end(key)
        if isinstance(found, str):
            raise Unauthenticated(found)
        if found.until_ms is not None and self._clock.wall_ms() >= found.until_ms:
            raise Unauthenticated("the JSON Web Token has expired; get a new one")
        return found

    async def _verify(self, known: KnownTokens, token: str, key: bytes) -> Caller | str:
        if self._waiting >= _MOST_WAITING:
            raise LimitReached("the number of tokens that are being verified", _MOST_WAITING)
        self._waiting += 1
        try:
            now_ms = self._clock.wall_ms()
            found = await self._lane.call(lambda: self._remembered.get(key) or _verified(known, token, now_ms))
        finally:
            self._waiting -= 1
        if known is self._known:
            self._remembered[key] = found
            if len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)
        return found


def _verified(known: KnownTokens, token: str, now_ms: int) -> Caller | str:
    """Whose token it is, or why it is nobody's. Blocks for 20 ms."""
    parts = parse_token(token)
    if parts is not None:
        name, secret = parts
        hashed = known.hashes.get(name)
        if hashed is None or not is_token_of(hashed, secret):
            return _INVALID
        return Caller((f"token:{name}",), hashed)
    if known.web_keys is None or token.count(".") != 2:
        return _INVALID
    try:
        subject = known.web_keys.subject(token, now_ms)
    except Unauthenticated as refused:
        return str(refused)
    return Caller((f"jwt:{subject.name}",), subject.key_id, subject.until_ms)


def _names(connection: Mapping[str, Iterable[bytes]]) -> tuple[str, ...]:
    """Of a certificate that gRPC has verified; none where there is none."""
    found = [f"san:{name}" for name in _texts(connection, _ALTERNATIVE_NAMES)]
    return (*found, *(f"cn:{name}" for name in _texts(connection, _COMMON_NAME)))


def _texts(connection: Mapping[str, Iterable[bytes]], key: str) -> list[str]:
    return [value.decode(errors="replace") for value in connection.get(key, ()) if value]
