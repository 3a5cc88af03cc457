"""A loaded configuration as TOML that loads again, each line with its origin and its key's sentence."""

from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from dittomq.settings.layers import Loaded, T
from dittomq.settings.schema import tables_of

_COMMENT_COLUMN = 40
_ORIGIN_WIDTH = 20


class Setting(NamedTuple):
    """One setting as it is in force; `value` as in TOML."""

    key: str
    value: str
    origin: str


def render(loaded: Loaded[T]) -> str:
    """The whole configuration."""
    lines: list[str] = []
    for name, table in tables_of(type(loaded.value)).items():
        lines.append(f"[{name}]".ljust(_COMMENT_COLUMN) + f"# {table.sentence}" if table.sentence else f"[{name}]")
        values = getattr(loaded.value, name)
        if table.keys is None:
            lines += [_line(_key_text(each), values[each], loaded.origins[f"{name}.{each}"], "") for each in sorted(values)]
        else:
            lines += [_line(key.name, getattr(values, key.name), loaded.origins[key.path], key.sentence) for key in table.keys.values()]
        lines.append("")
    return "\n".join(lines)


def settings_of(loaded: Loaded[T]) -> list[Setting]:
    """Every setting, in the order of the tables and keys."""
    rows = []
    for name, table in tables_of(type(loaded.value)).items():
        values = getattr(loaded.value, name)
        keys = sorted(values) if table.keys is None else list(table.keys)
        for key in keys:
            value = values[key] if table.keys is None else getattr(values, key)
            rows.append(Setting(f"{name}.{key}", _toml(value), loaded.origins[f"{name}.{key}"]))
    return rows


def _line(name: str, value: Any, origin: str, sentence: str) -> str:  # any TOML value
    size = f", {_size(value)}" if name.endswith("_bytes") and isinstance(value, int) else ""
    comment = f"{origin}{size}".ljust(_ORIGIN_WIDTH) + (f" {sentence}" if sentence else "")
    return f"{name} = {_toml(value)}".ljust(_COMMENT_COLUMN - 1) + f" # {comment}".rstrip()


def _toml(value: Any) -> str:  # any TOML value
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return _toml(value.value)
        case int():
            return f"{value:_}"
        case float():
            return repr(value)
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case str() | Path():
            return _quoted(str(value))
        case _:
            raise TypeError(f"{type(value).__name__} has no form in TOML")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in escaped) + '"'


def _key_text(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _quoted(name)


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1_024:  # a KiB
            break
        size, unit = size / 1_024, larger
    return f"{size:g} {unit}" if size == int(size) else f"{size:.1f} {unit}"
