"""What earlier audits said and found, from the history that `dittomq audit` keeps here. Elsewhere run ones are not known."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from dittomq.errors import InvalidField

T = TypeVar("T")

Span = tuple[int, int]
HISTORY: Final = Path(".dittomq/audit/history/runs.jsonl")
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LastAudit:
    """`verdict`: PASS, DIFFERS or INCOMPLETE. `ended_ms` is wall time."""

    verdict: str
    ended_ms: int


def last_audit(cluster: str, history: Path = HISTORY) -> LastAudit | None:
    """The newest run of that cluster among the last 1 MiB of the history; None when there is none, or none that can be read."""
    try:
        with history.open("rb") as file:
            file.seek(max(0, history.stat().st_size - _READ_BYTES))
            lines = file.read(_READ_BYTES).splitlines()
    except OSError:
        return None
    return next((found for line in reversed(lines) if (found := _read_row(cluster, line, _verdict)) is not None), None)


def _verdict(row: Any) -> LastAudit:
    return LastAudit(str(row["verdict"]), int(datetime.fromisoformat(row["ended_time"]).timestamp() * 1000))


def wrong_spans(cluster: str, node: str, run: str, history: Path = HISTORY) -> list[Span]:
    """Bytes [start, end) of the records that the run found wrong on the node, in order, neighbours together.

    What differs in its group and cannot be blamed on any copy may be wrong on this one too.

    `run` is the name of one of the cluster's runs, the beginning of one, or "last". Raises InvalidField, which names those that there are,
    or when the run did not look at the node's group or cannot be read.
    """
    broker = node.rpartition("/")[0]
    try:
        name = _named(cluster, run, history)
        document = json.loads((history.parent / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidField("run", f"what that audit found cannot be read: {error}") from error
    merged: list[Span] = []
    groups = [group for group in document["groups"] if group["broker"] == broker]
    if not groups:
        raise InvalidField("run", f'the audit {name} did not look at broker group "{broker}"')
    for start, end in sorted(span for group in groups for span in _spans(group, node)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _spans(group: dict[str, Any], node: str) -> Iterator[Span]:
    for finding in group["findings"]:
        if finding["node"] in {node, None}:
            message = finding["message"]
            start, end = finding["first_offset"], finding["end_offset"]
            if message is not None:
                start, end = min(start, message["record_start_offset"]), max(end, message["record_end_offset"])
            yield start, end
    yield from ((damage["start_offset"], damage["end_offset"]) for damage in group["damaged"] if damage["node"] == node)


def _named(cluster: str, run: str, history: Path) -> str:
    names = list(_names(cluster, history))
    begun = [name for name in names if name.startswith(run.replace(":", "-"))]
    if run == "last" and names:
        return names[-1]
    if not names:
        raise InvalidField("run", f"no audit of cluster {cluster} is known in {history.parent}; run it first: dittomq audit")
    if len(begun) != 1:
        known = ", ".join(names[-3:])
        raise InvalidField("run", f'"{run}" names {len(begun)} audits of cluster {cluster} in {history.parent}; the newest are: {known}')
    return begun[0]


def _names(cluster: str, history: Path) -> Iterator[str]:
    """The cluster's runs, oldest first."""
    lines = history.read_text(encoding="utf-8").splitlines() if history.exists() else []
    return (name for line in lines if (name := _read_row(cluster, line, lambda row: row["run"])) is not None)


def _read_row(cluster: str, line: str | bytes, read: Callable[[Any], T]) -> T | None:
    """What is read of a line, if it tells of a run of this cluster. One that a crash cut off tells of none."""
    try:
        row = json.loads(line)
        return read(row) if row["cluster"] == cluster else None
    except (ValueError, KeyError, TypeError):
        return None
