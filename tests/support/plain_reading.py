"""RocketMQ's files read by the plainest code, a token and a row at a time: what the product's quicker readers are held against."""

import json
import math
import re
from typing import Any, NoReturn

from dittomq.metadata.formats import DamagedFile
from dittomq.metadata.offset_file import LoadedOffsets
from dittomq.metadata.offset_table import Name, NameOffsets
from dittomq.routes import DataVersion

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|([-\w]++)(\s*+:)?+', re.DOTALL)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_MOST_LEVELS = 100


def fastjson_value(text: str) -> Any:
    """As `fastjson.loads`."""
    try:
        value = json.loads(_TOKEN.sub(_quoted, text), object_pairs_hook=_object, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("deep") from error
    if _depth(value) > _MOST_LEVELS:
        raise ValueError("deep")
    if _HALF.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def offsets_of(text: str) -> LoadedOffsets:
    """As `decode_offsets`."""
    fields = _dict(fastjson_value(text))
    version = _dict(fields.pop("dataVersion", None))
    numbers = [_number(0 if (part := version.get(name)) is None else part, 64) for name in ("stateVersion", "timestamp", "counter")]
    names, incarnations, resets = (_dict(fields.pop(name, None)) for name in ("offsetTable", "dittomqIncarnations", "dittomqResets"))
    by_name: dict[Name, NameOffsets] = {}
    for key, queues in names.items():
        topic, at, group = str(key).partition("@")
        if not at or not isinstance(queues, dict):
            raise DamagedFile(key)
        for queue_key, offset in queues.items():
            queue, of_queues = _number(queue_key, 32), resets.get(key, {})
            if not isinstance(of_queues, dict):
                raise DamagedFile(key)
            of_name = by_name.setdefault((topic, group), NameOffsets(_number(incarnations.get(key, 0), 64)))
            of_name.offsets[queue] = _number(offset, 64)
            if times := _number(of_queues.get(queue, 0), 64):
                of_name.resets[queue] = times
    for name, lows in _dict(fields.pop("dittomqQueueMinimums", None)).items():
        if not isinstance(lows, dict):
            raise DamagedFile(name)
        for queue_key, low in lows.items():
            _number(queue_key, 32), _number(low, 64)
    return LoadedOffsets(DataVersion(*numbers), by_name, fields)


def _quoted(token: re.Match[str]) -> str:
    word, colon = token.groups()
    return f'"\\u0000{word}"{colon}' if colon else token[0]


def _object(pairs: list[tuple[str, Any]]) -> dict[str | int, Any]:
    return {_key(key): value for key, value in pairs}


def _key(key: str) -> str | int:
    bare = key[1:]
    if not key.startswith("\0"):
        return key
    return int(bare) if bare.lstrip("-").isdecimal() else bare


def _depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(_depth, value.values() if isinstance(value, dict) else value), default=0)


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _dict(value: Any) -> dict[str | int, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError(value)
    return value or {}


def _number(value: Any, bits: int) -> int:
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(value)
    return value
