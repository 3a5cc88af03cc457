"""Default, then file, then environment, then `--set`: the later layer wins, and every value knows where it came from."""

import re
import tomllib
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from dittomq.errors import ConfigError
from dittomq.settings.renamed import RENAMED
from dittomq.settings.schema import MISSING, Key, SettingsTable, bare_kind, nearest, tables_of, variable_of

PREFIX: Final = "DITTOMQ_"
CLIENT_VARIABLES: Final = frozenset(
    {
        "DITTOMQ_CA_FILE",
        "DITTOMQ_CERTIFICATE_FILE",
        "DITTOMQ_CONFIG",
        "DITTOMQ_DEBUG",
        "DITTOMQ_KEY_FILE",
        "DITTOMQ_NAMESERVER",
        "DITTOMQ_TOKEN_FILE",
    }
)
"""Read by the command line and the client: services leave these alone, and no others."""

DEFAULT_ORIGIN: Final = "default"
SET_ORIGIN: Final = "--set"

_HEADER = re.compile(r"^\s*\[\s*(?P<table>[^\[\]]+?)\s*\]\s*(#.*)?$")
_KEY = re.compile(r"""^\s*(?P<key>[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(\s*\.\s*(?P<inner>[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))?\s*=""")


class Configuration(Protocol):
    """What a configuration class must offer."""

    def problems(self) -> Iterable[tuple[str, str]]:
        """Broken rules between keys: ("table.key", what is wrong and what to change)."""
        ...


T = TypeVar("T", bound=Configuration)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A checked configuration. `origins`: "table.key" → "default", "file:line", a variable's name, or "--set"."""

    value: T
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Given:
    """One value as it was given; text comes from variables and flags."""

    table: str
    name: str
    value: Any
    origin: str
    is_text: bool


def load(config_class: type[T], file: Path | None, environment: Mapping[str, str], overrides: Sequence[str]) -> Loaded[T]:
    """Build and check the configuration; raises ConfigError, which names the place and says what to change."""
    tables = tables_of(config_class)
    given: dict[tuple[str, str], _Given] = {}
    for layer in (_from_file(tables, file), _from_environment(tables, environment), _from_overrides(tables, overrides)):
        given.update({(each.table, each.name): each for each in layer})
    origins: dict[str, str] = {}
    value = config_class(**{name: _build(table, given, origins) for name, table in tables.items()})
    for path, problem in value.problems():
        origin = origins.get(path, DEFAULT_ORIGIN)
        raise ConfigError(path if origin == DEFAULT_ORIGIN else origin, problem if origin == DEFAULT_ORIGIN else f"{path}: {problem}")
    return Loaded(value, origins)


def _from_file(tables: Mapping[str, SettingsTable], file: Path | None) -> Iterator[_Given]:
    if file is None:
        return
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also what is no text, and a number that Python does not read
        raise ConfigError(str(file), f"is not TOML: {error}") from error
    lines = _key_lines(text)
    for table, content in document.items():
        origin = _place(file, lines.get((table, "")))
        if table not in tables:
            raise ConfigError(origin, f'unknown table "{table}"; {nearest(table, tables)}')
        if not isinstance(content, dict):
            raise ConfigError(origin, f'"{table}" is a table: write [{table}] and its keys below')
        for name, value in content.items():
            origin = _place(file, lines.get((table, name)))
            _check_known(tables, table, name, origin)
            yield _Given(table, name, value, origin, is_text=False)


def _from_environment(tables: Mapping[str, SettingsTable], environment: Mapping[str, str]) -> Iterator[_Given]:
    variables = {key.variable: key for table in tables.values() if table.keys is not None for key in table.keys.values()}
    free = {f"{PREFIX}{table.name}__".upper(): table.name for table in tables.values() if table.keys is None}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in CLIENT_VARIABLES:
            continue
        prefix, separator, rest = variable.partition("__")
        table = free.get(prefix + separator)
        if variable in variables:
            key = variables[variable]
            yield _Given(key.table, key.name, environment[variable], variable, is_text=True)
        elif table is not None and rest:
            yield _Given(table, rest.lower(), environment[variable], variable, is_text=True)
        else:
            raise ConfigError(variable, _renamed_variable(variable) or f"unknown variable; {nearest(variable, variables)}")


def _renamed_variable(variable: str) -> str:
    """What to say of the variable of a renamed key; empty for another one."""
    new = {variable_of(old): variable_of(new) for old, new in RENAMED.items()}.get(variable)
    return "" if new is None else f"is called {new} since 0.2.0; set that"


def _from_overrides(tables: Mapping[str, SettingsTable], overrides: Sequence[str]) -> Iterator[_Given]:
    for override in overrides:
        path, equals, value = override.partition("=")
        table, dot, name = path.strip().partition(".")
        if not (equals and dot and name):
            raise ConfigError(f"{SET_ORIGIN} {override}", "write table.key=value")
        _check_known(tables, table, name, f"{SET_ORIGIN} {override}")
        yield _Given(table, name, value.strip(), SET_ORIGIN, is_text=True)


def _check_known(tables: Mapping[str, SettingsTable], table: str, name: str, origin: str) -> None:
    if table in tables and tables[table].key(name) is not None:
        return
    if f"{table}.{name}" in RENAMED:
        raise ConfigError(origin, f'"{table}.{name}" is called "{RENAMED[f"{table}.{name}"]}" since 0.2.0; write that')
    known = [key.path for each in tables.values() if each.keys is not None for key in each.keys.values()]
    in_table = [path for path in known if path.startswith(f"{table}.")]
    raise ConfigError(origin, f'unknown key "{table}.{name}"; {nearest(f"{table}.{name}", known if table not in tables else in_table)}')


def _build(table: SettingsTable, given: Mapping[tuple[str, str], _Given], origins: dict[str, str]) -> Any:  # a table
    if table.keys is None:
        named = [each for each in given.values() if each.table == table.name]
        origins.update({f"{each.table}.{each.name}": each.origin for each in named})
        return {each.name: _converted(Key(table.name, each.name, str, MISSING, ""), each) for each in named}
    values = {}
    for name, key in table.keys.items():
        one = given.get((table.name, name))
        if one is None and key.default is MISSING:
            raise ConfigError(key.path, f"is not set; write it in the file as {name} = … under [{table.name}], or set {key.variable}")
        origins[key.path] = DEFAULT_ORIGIN if one is None else one.origin
        values[name] = key.default if one is None else _converted(key, one)
    return table.kind(**values)


def _converted(key: Key, given: _Given) -> Any:  # a key's value
    if given.is_text and bare_kind(key.kind) is not Path and any("\ud800" <= letter <= "\udfff" for letter in given.value):
        raise ConfigError(given.origin, f"{key.path}: is no text in UTF-8")
    value = _parsed(key, given.value) if given.is_text else given.value
    try:
        return msgspec.convert(value, key.kind, strict=not given.is_text, dec_hook=_path)
    except msgspec.ValidationError as error:
        got = given.value if given.is_text else repr(given.value)
        raise ConfigError(given.origin, f"{key.path}: {_expected(key, error)}, got {got}") from error


def _parsed(key: Key, text: str) -> Any:  # a TOML value
    """`text` as its TOML value where it is one and no string is wanted; a list may be given as a,b,c."""
    kind = bare_kind(key.kind)
    if kind is str:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        is_list = typing.get_origin(kind) in (tuple, list)
        return [part.strip() for part in text.split(",") if part.strip()] if is_list else text


def _path(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise msgspec.ValidationError("Expected a path")


def _expected(key: Key, error: msgspec.ValidationError) -> str:
    kind = bare_kind(key.kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return f"expected {' or '.join(str(each.value) for each in kind)}"
    text = re.sub(r", got .*$", "", str(error).replace("`", ""))
    return text[:1].lower() + text[1:]


def _place(file: Path, line: int | None) -> str:
    return str(file) if line is None else f"{file}:{line}"


def _key_lines(text: str) -> dict[tuple[str, str], int]:
    """(table, key) → line, counted from 1; (table, "") is the table's own. tomllib tells none. What is written in unusual ways is left out.

    Text inside a multi-line string may look like a key: the first line wins, and nothing but a message depends on it.
    """
    lines: dict[tuple[str, str], int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        header = _HEADER.match(line)
        key = _KEY.match(line)
        if header:
            table = _bare(header["table"])
            lines.setdefault((table, ""), number)
        elif key and table:
            lines.setdefault((table, _bare(key["key"])), number)
        elif key:
            lines.setdefault((_bare(key["key"]), _bare(key["inner"] or "")), number)
            lines.setdefault((_bare(key["key"]), ""), number)
    return lines


def _bare(name: str) -> str:
    return name.strip("\"'")
