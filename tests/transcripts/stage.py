"""Plays: a session's story as text. A scene is one event; what follows `----` is what the session commands.

    # what the play promises
    master end=900 confirmed=800 lineage=1@0,2@800      the session that acts, and what it starts with
    ----
    > Hello end=1000 …                                  an event, by class name, unnamed fields as in _DEFAULTS
    < SendVerdict action=truncate …                     each command, by class name

`TRANSCRIPTS=rewrite` in the environment writes down what the sessions do now, for review as a diff.
"""

import dataclasses
from collections.abc import Iterator
from enum import Enum
from typing import Any

from dittomq.lineage import Lineage, LineageEntry
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication import events, master_events, slave_events
from dittomq.replication.master_session import MasterLog, MasterSession, SessionLimits
from dittomq.replication.slave_session import SlaveSession
from dittomq.routes import DataVersion

_SEGMENT_BYTES = 1_000_000
_DEFAULTS: dict[str, Any] = {
    "cluster": "c",
    "broker": "a",
    "broker_id": 1,
    "replica_uuid": "u1",
    "protocol_version": events.PROTOCOL_VERSION,
    "min_offset": 0,
    "flushed": None,  # as `end`
    "confirmed": 0,
    "lineage": (),
    "digests": (),
    "verified_equal": 0,
    "replication_address": "a-1:10912",
    "segment_bytes": _SEGMENT_BYTES,
    "applied": 0,
    "digest": None,
    "differs": None,
    "reason": "",
    "heartbeat_ms": 5_000,
    "crc": 0,
    "cut_to": None,
    "ours_whole": True,
    "topics": None,
}
_SHOWN_ONLY_IF_SET = ("digest", "differs", "digests", "reason", "why", "topics")
_HIDDEN = ("heartbeat_ms", "crc")


def perform(text: str) -> str:
    """The play as the sessions act it now; equal to `text` when nothing has changed."""
    lines = text.splitlines()
    border = lines.index("----")
    heading, scenes = lines[: border + 1], lines[border + 1 :]
    opening = next(line for line in heading if not line.startswith("#"))
    session = _open(opening)
    now = 0.0
    played = list(heading)
    for line in scenes:
        if line.startswith("< "):
            continue
        played.append(line)
        if line.startswith("+"):
            now += float(line[1:].split()[0])
        elif line.startswith("> "):
            played += [f"< {shown(command)}" for command in session.handle(_event(session, line[2:]), now)]
    return "\n".join(played) + "\n"


def _open(line: str) -> MasterSession | SlaveSession:
    who, *facts = line.split()
    given = dict(_facts(facts))
    if who == "master":
        lineage = given["lineage"]
        begin = given.get("min", PhysicalOffset(0))
        log = MasterLog("c", "a", _SEGMENT_BYTES, begin, given["end"], given.get("confirmed", 0), lineage)
        limits = SessionLimits(window_bytes=given.get("window_bytes", 16 * 1024 * 1024))
        return MasterSession(log, limits, 0.0)
    end = given["end"]
    stored = slave_events.Stored(end, given.get("flushed", end), given.get("applied", PhysicalOffset(0)))
    begin = given.get("min", PhysicalOffset(0))
    return SlaveSession(given.get("lineage", ()), begin, stored, silence_s=20.0, now=0.0)


def _event(session: MasterSession | SlaveSession, text: str) -> Any:
    name, *facts = text.split()
    module = master_events if isinstance(session, MasterSession) else slave_events
    kind = getattr(module, name, None) or getattr(events, name)
    given = dict(_facts(facts))
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        value = given.pop(field.name, _DEFAULTS.get(field.name))
        if field.name == "flushed" and value is None:
            value = values["end"]
        if field.name == "data":
            value = bytes(int(value))
        if field.name == "action":
            value = events.VerdictAction(value)
        if field.name == "stored":
            value = slave_events.Stored(value, value, value)
        values[field.name] = value
    assert not given, f"{name} has no field {', '.join(given)}"
    return kind(**values)


def _facts(words: list[str]) -> Iterator[tuple[str, Any]]:
    for word in words:
        name, _, text = word.partition("=")
        yield name, _parsed(name, text)


def _parsed(name: str, text: str) -> Any:
    if name == "lineage":
        return _lineage(text)
    if name in ("digest", "differs"):
        return _digest(text)
    if name == "digests":
        return tuple(_digest(part) for part in text.split(",")) if text else ()
    if name == "topics":
        return DataVersion(*map(int, text.split(".")))
    if text in ("yes", "no"):
        return text == "yes"
    return int(text.replace("_", "")) if text.replace("_", "").lstrip("-").isdigit() else text


def _lineage(text: str) -> Lineage:
    """ "1@0,2@800": epoch at start; "2b@800" is the same epoch opened by another."""
    entries = []
    for part in filter(None, text.split(",")):
        epoch, _, start = part.partition("@")
        number = int(epoch.rstrip("ab"))
        entries.append(LineageEntry(Epoch(number), 0, number + (1_000 if epoch.endswith("b") else 0), PhysicalOffset(int(start))))
    return tuple(entries)


def _digest(text: str) -> events.RangeDigest:
    """ "0-900:x" digests [0, 900) to x."""
    span, _, digest = text.partition(":")
    start, _, end = span.partition("-")
    return events.RangeDigest(PhysicalOffset(int(start)), PhysicalOffset(int(end)), digest.encode())


def shown(value: Any) -> str:
    """A command or a value in one line."""
    if dataclasses.is_dataclass(value) and not isinstance(value, (LineageEntry, events.RangeDigest, DataVersion)):
        parts = [type(value).__name__]
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if field.name in _HIDDEN or (field.name in _SHOWN_ONLY_IF_SET and not inner):
                continue
            parts.append(f"{field.name}={_shown_field(inner)}")
        return " ".join(parts)
    return _shown_field(value)


def _shown_field(value: Any) -> str:
    match value:
        case LineageEntry():
            return f"{value.epoch}{'b' if value.incarnation >= 1_000 else ''}@{value.start}"
        case events.RangeDigest():
            return f"{value.start}-{value.end}:{value.digest.decode()}"
        case DataVersion():
            return f"{value.state_version}.{value.timestamp_ms}.{value.counter}"
        case tuple():
            return ",".join(map(_shown_field, value)) or "none"
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
