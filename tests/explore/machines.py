"""The real deciders as numbered states: each distinct state of a decider is kept once, and each step from it is taken once.

A step copies the decider, hands it the event, forgets what only time told it, and numbers what came of it. So the explorer runs the
deciders themselves through millions of states, and pays for each of their own states only once.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Final

from dittomq.group_record import GroupRecord, in_order

_ATOMS: Final = (str, int, float, bool, bytes, type(None), Enum)


def _parameters(kind: Any) -> Any:
    return kind.__dataclass_params__


@cache
def _is_frozen(kind: Any) -> bool:
    return issubclass(kind, _ATOMS) or (is_dataclass(kind) and _parameters(kind).frozen)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Attributes of a class's objects; () where they are in `__dict__`."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) and "__slots__" in kind.__dict__ else ()


def _state(value: object) -> dict[str, Any]:
    kind: Any = type(value)
    names = _names(kind)
    return {name: getattr(value, name) for name in names} if names else dict(vars(value))


def copied(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """A decider that shares nothing with this one that either could change."""
    kind: Any = type(value)
    seen = {} if seen is None else seen
    if _is_frozen(kind) or kind in (tuple, frozenset):
        return value
    if kind is dict:
        return {key: copied(each, seen) for key, each in value.items()}
    if kind is set:
        return set(value)
    if kind is list:
        return [copied(each, seen) for each in value]
    if id(value) not in seen:
        seen[id(value)] = made = kind.__new__(kind)
        for name, each in _state(value).items():
            setattr(made, name, copied(each, seen))
    return seen[id(value)]


def frozen(value: Any, seen: dict[int, int] | None = None) -> Hashable:
    """Equal for two deciders if, and only if, they are in the same state."""
    kind: Any = type(value)
    seen = {} if seen is None else seen
    if _is_frozen(kind):
        return value  # type: ignore[no-any-return]
    if kind is dict:
        return tuple(sorted(((key, frozen(each, seen)) for key, each in value.items()), key=_by_key))
    if kind in (set, frozenset):
        return frozenset(value)
    if kind in (tuple, list):
        return tuple(frozen(each, seen) for each in value)
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = len(seen)
    return kind, tuple(frozen(each, seen) for each in _state(value).values())


def _by_key(item: tuple[Any, Hashable]) -> Any:
    return item[0]


class Renaming:
    """The same with other names: each text that is a key of `names` becomes its value, wherever it stands."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names
        self._known: dict[Any, Any] = {}

    def of(self, value: Any, seen: dict[int, Any] | None = None) -> Any:
        """A renamed copy."""
        kind: Any = type(value)
        seen = {} if seen is None else seen
        if kind is str:
            return self._names.get(value, value)
        if issubclass(kind, _ATOMS):
            return value
        if kind is dict:
            return {self.of(key, seen): self.of(each, seen) for key, each in value.items()}
        if kind in (set, frozenset, tuple, list):
            return kind([self.of(each, seen) for each in value])
        if _is_frozen(kind):
            if value not in self._known:
                self._known[value] = self._copied(value, {})
            return self._known[value]
        if id(value) not in seen:
            seen[id(value)] = self._copied(value, seen)
        return seen[id(value)]

    def _copied(self, value: Any, seen: dict[int, Any]) -> Any:
        kind: Any = type(value)
        made = kind.__new__(kind)
        seen[id(value)] = made
        for name, each in _state(value).items():
            object.__setattr__(made, name, self.of(each, seen))
        if isinstance(made, GroupRecord):
            object.__setattr__(made, "members", in_order(made.members))
        return made


class Numbered:
    """Things by number, each distinct one once; `key` is what tells two of them apart."""

    def __init__(self, key: Callable[[Any], Hashable] = lambda value: value) -> None:
        self._key = key
        self._numbers: dict[Hashable, int] = {}
        self.things: list[Any] = []

    def number(self, thing: Any) -> int:
        """Its number."""
        key = self._key(thing)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.things)
            self.things.append(thing)
        return found

    def __getitem__(self, number: int) -> Any:
        return self.things[number]

    def __len__(self) -> int:
        return len(self.things)
