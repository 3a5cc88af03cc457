"""The last audit of a cluster that somebody ran here, from the history that `dittomq audit` keeps. Elsewhere run ones are not known."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

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
    return next((found for line in reversed(lines) if (found := _run_of(cluster, line)) is not None), None)


def _run_of(cluster: str, line: bytes) -> LastAudit | None:
    """The run that a line tells of, if it is one of this cluster. A line that a crash cut off tells of none."""
    try:
        row = json.loads(line)
        if row["cluster"] != cluster:
            return None
        return LastAudit(str(row["verdict"]), int(datetime.fromisoformat(row["ended_time"]).timestamp() * 1000))
    except (ValueError, KeyError, TypeError):
        return None
