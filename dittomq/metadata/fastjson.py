"""RocketMQ's JSON: what fastjson reads and writes. It differs from JSON in integer keys, which stand without quotes."""

import json
import math
import re
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, NoReturn

from dittomq.metadata.rows import Json

# A whole string; an object of whole numbers, such as the offsets of a group; or a bare word and the colon that makes it a key.
# Possessive, so that a damaged file takes linear time.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|\{([0-9]++:[0-9]++(?:,[0-9]++:[0-9]++)*+)\}|([-\w]++)(\s*+:)?+', re.DOTALL)

# Half of a letter that takes two: as an escape, the only way in which UTF-8 holds one.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")

_MOST_LEVELS = 100
_NESTED = (dict, list)

# Marks a bare key on its way through the JSON parser. No name of RocketMQ's holds a NUL.
_BARE = "\\u0000"
_AFTER_KEY = '":'
_BEFORE_KEY = f',"{_BARE}'


def loads(text: str) -> Json:
    """Read one value; raises ValueError for anything else, and for what `dumps` could not write so that it is read again."""
    try:
        value: Json = json.loads(_TOKEN.sub(_quoted, text), object_pairs_hook=_objects(), parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    _refuse_depth(value)
    if _HALF.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def dumps(value: Json, pretty_levels: int = 0, margin: str = "") -> str:
    """Write a value with sorted keys; the outermost `pretty_levels` objects have a line for each key."""
    match value:
        case dict():
            return _object_text(value, pretty_levels, margin)
        case list():
            return f"[{','.join(dumps(item) for item in value)}]"
        case str():
            return encode_basestring_ascii(value)
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int() | float():
            return repr(value)


def _object_text(value: Mapping[str | int, Json], pretty_levels: int, margin: str) -> str:
    if not value:
        return "{}"
    inner = margin + "\t"
    keys = sorted(value, key=lambda key: (isinstance(key, str), key))
    items = [
        f"{key if isinstance(key, int) else encode_basestring_ascii(key)}:{dumps(value[key], pretty_levels - 1, inner)}" for key in keys
    ]
    if pretty_levels <= 0:
        return f"{{{','.join(items)}}}"
    lines = f",\n{inner}".join(items)
    return f"{{\n{inner}{lines}\n{margin}}}"


def _quoted(token: re.Match[str]) -> str:
    numbers, word, colon = token.groups()
    if numbers:
        return f'{{"{_BARE}{numbers.replace(":", _AFTER_KEY).replace(",", _BEFORE_KEY)}}}'
    return f'"{_BARE}{word}"{colon}' if colon else token[0]


class _Keys(dict[str, str | int]):
    """What the keys of a file mean. Most of them are there many times: each is looked at once."""

    def __missing__(self, key: str) -> str | int:
        self[key] = found = _key(key)
        return found


def _objects() -> Callable[[list[tuple[str, Any]]], dict[str | int, Any]]:
    keys = _Keys()
    return lambda pairs: {keys[key]: value for key, value in pairs}


def _key(key: str) -> str | int:
    if not key.startswith("\0"):
        return key
    bare = key[1:]
    return int(bare) if bare.lstrip("-").isdecimal() else bare


def _refuse_depth(value: Json) -> None:
    level: list[Any] = [[value]]
    for _ in range(_MOST_LEVELS):
        level = [item for each in level for item in (each.values() if type(each) is dict else each) if type(item) in _NESTED]
        if not level:
            return
    raise ValueError("is nested too deeply")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no value of RocketMQ's files")
