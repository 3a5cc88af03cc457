"""JSON Web Tokens of an OpenID provider, checked with its keys from a file: issuer, audience, expiry; no network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dittomq.errors import ConfigError, Unauthenticated

LEEWAY_S: Final = 30
_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")  # none with a shared secret
_MAX_SUBJECT: Final = 250
_LATEST_S: Final = 1e11  # the year 5138


class WebSubject(NamedTuple):
    """Who a token names, by which key, and until when, in milliseconds since 1970."""

    name: str
    key_id: str
    until_ms: int


@dataclass(frozen=True, slots=True)
class WebKeys:
    """Keys of the issuer, by their ids."""

    issuer: str
    audience: str
    keys: Mapping[str, Any]

    def subject(self, token: str, now_ms: int) -> WebSubject:
        """Whom a token names. Raises Unauthenticated, which never holds the token."""
        import jwt  # noqa: PLC0415  # an extra

        try:
            key_id = str(jwt.get_unverified_header(token).get("kid", ""))
            key = self._key(key_id)
            said = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm_name],
                audience=self.audience,
                issuer=self.issuer,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
            )
        except jwt.PyJWTError as problem:
            raise Unauthenticated(f"the JSON Web Token is not valid: {_kind(problem)}") from None
        return _in_time(said, key_id, now_ms)

    def _key(self, key_id: str) -> Any:
        key = self.keys.get(key_id)
        if key is None and not key_id and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        if key is None:
            raise Unauthenticated("the JSON Web Token is signed with a key that access.jwks_file does not hold")
        return key


def parse_keys(text: str, where: str, issuer: str, audience: str) -> WebKeys:
    """The keys of a JWKS document; `where` names it. Raises ConfigError."""
    try:
        import jwt  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError(where, "needs the packages pyjwt and cryptography; install them: pip install 'dittomq[security]'") from error
    try:
        found = jwt.PyJWKSet.from_json(text).keys
    except (jwt.PyJWTError, ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise ConfigError(where, "is no JSON Web Key Set with keys that can be used; fetch it from the issuer's jwks_uri again") from None
    keys = {str(key.key_id or ""): key for key in found if key.algorithm_name in _ALGORITHMS and key.public_key_use in {None, "sig"}}
    if not keys:
        raise ConfigError(where, "holds no public key for signatures; fetch it from the issuer's jwks_uri again")
    return WebKeys(issuer, audience, keys)


def _in_time(said: Mapping[str, Any], key_id: str, now_ms: int) -> WebSubject:
    until, since, subject = said["exp"], said.get("nbf", 0), said["sub"]
    if not all(isinstance(time, int | float) and 0 <= time < _LATEST_S for time in (until, since)):
        raise Unauthenticated("the JSON Web Token is not valid: exp or nbf is no time")
    if not isinstance(subject, str) or not 1 <= len(subject) <= _MAX_SUBJECT:
        raise Unauthenticated("the JSON Web Token is not valid: sub is no text of at most 250 characters")
    if now_ms >= (until + LEEWAY_S) * 1000:
        raise Unauthenticated("the JSON Web Token has expired; get a new one")
    if now_ms < (since - LEEWAY_S) * 1000:
        raise Unauthenticated("the JSON Web Token is not valid yet; check the clocks")
    return WebSubject(subject, key_id, int((until + LEEWAY_S) * 1000))


def _kind(problem: Exception) -> str:
    """What is wrong in words of ours: the library's may quote the token."""
    kind = type(problem).__name__.removesuffix("Error")
    words = {
        "InvalidSignature": "its signature is not one of this key",
        "InvalidAudience": "it is for another audience",
        "InvalidIssuer": "it is of another issuer",
        "MissingRequiredClaim": "exp, iss, aud or sub is missing",
        "InvalidAlgorithm": "it is signed by an algorithm that is not taken",
    }
    return words.get(kind, "it cannot be read")
