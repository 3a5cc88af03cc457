"""The keys of a configuration class, read from its dataclasses."""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import msgspec

MISSING: Final = dataclasses.MISSING


@dataclass(frozen=True, slots=True)
class Key:
    """One key of one table."""

    table: str
    name: str
    kind: Any  # the declared type with its limits, for msgspec
    default: Any  # MISSING: the key must be given
    sentence: str

    @property
    def path(self) -> str:
        """ "table.key"."""
        return f"{self.table}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return variable_of(self.path)


@dataclass(frozen=True, slots=True)
class SettingsTable:
    """One table. `keys` None: names are free, values are strings."""

    name: str
    kind: Any
    keys: Mapping[str, Key] | None
    sentence: str = ""

    def key(self, name: str) -> Key | None:
        """The key of that name, None when the table has none."""
        if self.keys is None:
            return Key(self.name, name, str, MISSING, "")
        return self.keys.get(name)


def variable_of(path: str) -> str:
    """The environment variable that sets the key "table.key"."""
    return f"DITTOMQ_{path.replace('.', '__')}".upper()


def tables_of(config_class: type) -> dict[str, SettingsTable]:
    """The tables of a configuration class, in their order."""
    hints = typing.get_type_hints(config_class, include_extras=True)
    return {field.name: _table(field.name, hints[field.name]) for field in dataclasses.fields(config_class)}


def bare_kind(kind: Any) -> Any:
    """A declared type without its limits."""
    return typing.get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def nearest(name: str, known: typing.Iterable[str]) -> str:
    """A hint that names the nearest known name, or all where none is near and they are few."""
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        return f'did you mean "{near[0]}"?'
    return f"known: {', '.join(names)}"


def _table(name: str, kind: Any) -> SettingsTable:  # a declared type
    if not dataclasses.is_dataclass(kind):
        return SettingsTable(name, kind, None, _sentence(kind))
    hints = typing.get_type_hints(kind, include_extras=True)
    keys = {field.name: _key(name, field, hints[field.name]) for field in dataclasses.fields(kind)}
    return SettingsTable(name, kind, keys)


def _key(table: str, field: dataclasses.Field[Any], kind: Any) -> Key:  # a declared type
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return Key(table, field.name, kind, default, _sentence(kind))


def _sentence(kind: Any) -> str:
    metadata = getattr(kind, "__metadata__", ())
    return " ".join(each.description for each in metadata if isinstance(each, msgspec.Meta) and each.description)
