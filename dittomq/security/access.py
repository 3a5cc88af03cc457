"""Who may do what: the rules of an access file, and what they make of one caller in one role. Pure."""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dittomq.errors import ConfigError

MAX_RULES: Final = 10_000
EVERYTHING: Final = "*"
_KINDS: Final = ("san:", "cn:", "token:", "jwt:")
_KEYS: Final = frozenset({"who", "roles", "topics", "groups"})
_NAME: Final = re.compile(r"[\x21-\x7e]{1,255}")


class AccessRole(StrEnum):
    """What a caller may be allowed to do; the names of ditto.access.v1.Role."""

    ANYBODY = "anybody"
    PRODUCE = "produce"
    CONSUME = "consume"
    REPLICATE = "replicate"
    ADMIN = "admin"
    AUDIT = "audit"


_WITH_NAMES: Final = frozenset({AccessRole.PRODUCE, AccessRole.CONSUME, AccessRole.ADMIN})
_GIVEN: Final = {str(role): role for role in AccessRole if role is not AccessRole.ANYBODY}


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names, and beginnings of names."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Patterns":
        """ "orders" is that name; "orders-*" all that begin so; "*" all."""
        known = set(texts)
        prefixes = {text[:-1] for text in known if text.endswith(EVERYTHING)}
        if "" in prefixes:
            return ALL
        return cls(frozenset(text for text in known if not text.endswith(EVERYTHING)), tuple(sorted(prefixes)))

    @property
    def is_all(self) -> bool:
        """Whether every name matches."""
        return "" in self.prefixes

    def match(self, name: str) -> bool:
        """Whether it is one of them."""
        return name in self.names or name.startswith(self.prefixes)


ALL: Final = Patterns(prefixes=("",))


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one caller may do in one role."""

    topics: Patterns = ALL
    groups: Patterns = ALL

    @property
    def is_unlimited(self) -> bool:
        """Whether no name needs to be looked at."""
        return self.topics.is_all and self.groups.is_all

    def missing(self, topics: Collection[str], groups: Collection[str]) -> str:
        """Of these names one that it does not cover, as 'topic "x"'; empty when it covers all."""
        for topic in topics:
            if not self.topics.match(topic):
                return f'topic "{topic}"'
        for group in groups:
            if not self.groups.match(group):
                return f'group "{group}"'
        return ""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Whoever is one of `who` has each of `roles`, for these topics and groups."""

    who: Patterns
    roles: frozenset[AccessRole]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """All rules of a file. What is not allowed is refused; rules only add."""

    rules: tuple[AccessRule, ...] = ()

    def allowance(self, names: Sequence[str], role: AccessRole) -> Allowance | None:
        """What a caller with these names, "kind:name", may do in that role; None: nothing."""
        if role is AccessRole.ANYBODY:
            return Allowance() if names else None
        found = [rule for rule in self.rules if role in rule.roles and any(rule.who.match(name) for name in names)]
        if not found:
            return None
        if role not in _WITH_NAMES:
            return Allowance()
        topics = Patterns.of(text for rule in found for text in rule.topics)
        return Allowance(topics, Patterns.of(text for rule in found for text in rule.groups))


def parse_access(text: str, where: str) -> AccessRules:
    """The rules of an access file; `where` names it. Raises ConfigError that says which entry is wrong."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also a number that Python does not read
        raise ConfigError(where, f"is no TOML: {error}") from error
    entries = document.get("allow", [])
    if document.keys() - {"allow"} or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(where, "holds other things than tables [[allow]]; correct it")
    if len(entries) > MAX_RULES:
        raise ConfigError(where, f"has {len(entries):,} rules, the limit is {MAX_RULES:,}; join some")
    return AccessRules(tuple(_rule(entry, f"{where}: allow {number}") for number, entry in enumerate(entries, 1)))


def _rule(entry: Mapping[str, Any], where: str) -> AccessRule:
    for key in sorted(entry.keys() - _KEYS):
        raise ConfigError(where, f'"{key}" is no key of a rule; it has who, roles, topics and groups')
    who, roles, topics, groups = (_texts(entry, key, where) for key in ("who", "roles", "topics", "groups"))
    for name in who:
        if name != EVERYTHING and (not name.startswith(_KINDS) or name.endswith(":")):
            raise ConfigError(where, f'who: "{name}" is neither "*" nor begins with one of {", ".join(_KINDS)} and goes on')
    if not who or not roles:
        raise ConfigError(where, f"{'who' if not who else 'roles'} is missing or empty; say it")
    for problem in _problems(roles, topics, groups):
        raise ConfigError(where, problem)
    return AccessRule(Patterns.of(who), frozenset(_GIVEN[role] for role in roles), topics, groups)


def _problems(roles: Sequence[str], topics: Sequence[str], groups: Sequence[str]) -> Iterator[str]:
    for role in roles:
        if role not in _GIVEN:
            yield f'roles: "{role}" is none of {", ".join(_GIVEN)}'
    given = {_GIVEN[role] for role in roles if role in _GIVEN}
    if not given & _WITH_NAMES and (topics or groups):
        yield "topics and groups limit produce, consume and admin only; leave them out"
    if given & {AccessRole.PRODUCE, AccessRole.CONSUME} and not topics:
        yield 'topics is missing or empty; say which, or "*" for all'


def _texts(entry: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    texts = entry.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) and _NAME.fullmatch(text) for text in texts):
        raise ConfigError(where, f"{key} must be a list of texts of 1 to 255 printable ASCII characters without spaces")
    for text in texts:
        if EVERYTHING in text[:-1]:
            raise ConfigError(where, f'{key}: "{text}" has a * that is not at its end')
    return tuple(texts)
