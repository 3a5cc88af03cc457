"""The words of plays: facts as `name=value`, and values in one line.

1@0,2@800       an epoch history: epoch at start; "2b@800" is the same epoch opened by another, "1f@700" what RocketMQ appended to it,
"2/1@800" was opened by node 1
0-900:x         the digest x of [0, 900)
yes, no, 900, 900_000, "words with spaces", unknown (None), none (nothing of several)
"""

import dataclasses
import re
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dittomq.epoch_history import FOREIGN, EpochEntry, EpochHistory
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.events import RangeDigest
from dittomq.routes import DataVersion

_SHOWN_ONLY_IF_SET = ("digest", "differs", "digests", "reason", "why", "topics", "begin", "birth")
_SHOWN_ONLY_IF_KNOWN = ("end", "reverify_from", "incarnation", "slots", "missing_now")
_SHOWN_ONLY_IF_NO = ("counts", "adopted")  # an epoch that is adopted: not the one that the ack is of
_HIDDEN = ("heartbeat_ms", "crc", "replica_uuid")
_VALUES = (EpochEntry, RangeDigest, DataVersion)
_FACT = re.compile(r'(\w+)=("[^"]*"|\S*)')
_OTHER = 1_000  # incarnations from here on are those of the other opener, "b"


def facts(text: str) -> dict[str, Any]:
    """The facts of one line, by name; anything else in it is refused."""
    assert not _FACT.sub("", text).strip(), f"not a fact: {_FACT.sub('', text).strip()}"
    return {name: _parsed(name, value) for name, value in _FACT.findall(text)}


def shown(value: Any) -> str:
    """A command or a value in one line."""
    if dataclasses.is_dataclass(value) and not isinstance(value, _VALUES):
        return " ".join([type(value).__name__, *_shown_fields(value)])
    return _shown_value(value)


def _parsed(name: str, text: str) -> Any:
    if name == "epoch_history":
        return _epoch_history(text)
    if name in ("digest", "differs", "theirs", "ours"):
        return _digest(text)
    if name == "digests":
        return tuple(_digest(part) for part in text.split(",")) if text else ()
    if name == "topics":
        return DataVersion(*map(int, text.split(".")))
    if text in ("yes", "no"):
        return text == "yes"
    if text.startswith('"'):
        return text.strip('"')
    return int(text.replace("_", "")) if text.replace("_", "").lstrip("-").isdigit() else text


def _epoch_history(text: str) -> EpochHistory:
    entries = []
    for part in filter(None, text.split(",")):
        epoch, _, start = part.partition("@")
        epoch, _, node = epoch.partition("/")
        number = int(epoch.rstrip("bf"))
        opener = FOREIGN if epoch.endswith("f") else int(node or 0)
        entries.append(EpochEntry(Epoch(number), opener, number + (_OTHER if epoch.endswith("b") else 0), PhysicalOffset(int(start))))
    return tuple(entries)


def _digest(text: str) -> RangeDigest:
    span, _, digest = text.partition(":")
    start, _, end = span.partition("-")
    return RangeDigest(PhysicalOffset(int(start)), PhysicalOffset(int(end)), digest.encode())


def _shown_fields(value: Any) -> Iterator[str]:
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        unknown = inner is None and field.name in _SHOWN_ONLY_IF_KNOWN
        as_usual = field.name in _SHOWN_ONLY_IF_NO and (inner is True or inner == getattr(value, "epoch", None))
        if field.name not in _HIDDEN and not unknown and not as_usual and (inner or field.name not in _SHOWN_ONLY_IF_SET):
            yield f"{field.name}={_shown_value(inner)}"


def _shown_value(value: Any) -> str:
    match value:
        case EpochEntry():
            mark = "f" if value.master_id == FOREIGN else "b" if value.incarnation >= _OTHER else ""
            node = f"/{value.master_id}" if value.master_id > 0 else ""
            return f"{value.epoch}{mark}{node}@{value.start}"
        case RangeDigest():
            return f"{value.start}-{value.end}:{value.digest.decode()}"
        case DataVersion():
            return f"{value.state_version}.{value.timestamp_ms}.{value.counter}"
        case tuple():
            return ",".join(map(_shown_value, value)) or "none"
        case Enum():
            return str(value.value)
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case bytes():
            return f"{len(value)}B"
        case str():
            return f'"{value}"'
        case None:
            return "unknown"
        case _:
            return f"({shown(value)})"
