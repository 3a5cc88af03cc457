"""Keeps what audits found: one line a run in `runs.jsonl`, and the whole document of each run beside it."""

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from dittomq.errors import DittoError
from spark.audit.report import Document

LINES = "runs.jsonl"


class NoSuchRun(DittoError):
    """The history has no such run."""

    reason = "NO_SUCH_RUN"


def keep(folder: Path, run: Document) -> None:
    """Add a run to the history. It begins a line of its own, also where a crash cut the last one off."""
    folder.mkdir(parents=True, exist_ok=True)
    write_private(folder / f"{run['run']}.json", json.dumps(run, indent=1))
    line = json.dumps(_row(run), separators=(",", ":")) + "\n"
    descriptor = os.open(folder / LINES, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        torn = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * torn + line.encode())


def rows(folder: Path) -> list[dict[str, Any]]:
    """One row a run, oldest first. A line that a crash cut off is left out."""
    found = []
    path = folder / LINES
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def load(folder: Path, run: str) -> Document:
    """The document of a run; "last" is the newest. Raises NoSuchRun, which says what there is."""
    names = [row["run"] for row in rows(folder)]
    name = names[-1] if run == "last" and names else run
    if name not in names:
        known = ", ".join(names[-3:]) or "none yet"
        raise NoSuchRun(f'{folder} has no audit "{run}"; the newest are: {known}')
    document: Document = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return document


def known_groups(earlier: list[dict[str, Any]], cluster: str) -> set[str]:
    """Broker groups of a cluster that its newest run saw, and those that it did not see and had not been told to forget."""
    row = next((row for row in reversed(earlier) if row["cluster"] == cluster), None)
    return set() if row is None else {*row["groups"], *row.get("unseen_groups", ())}


def last_verified(earlier: list[dict[str, Any]], broker: str, position: int) -> str | None:
    """When a byte of a group was last verified as equal on all copies; None when it never was."""
    for row in reversed(earlier):
        group = row["groups"].get(broker)
        if group is not None and group["verdict"] == "PASS" and group["low_offset"] <= position < group["cut_offset"]:
            time: str = row["ended_time"]
            return time
    return None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def _row(run: Document) -> dict[str, Any]:
    seconds = (datetime.fromisoformat(run["ended_time"]) - datetime.fromisoformat(run["started_time"])).total_seconds()
    return {
        "run": run["run"],
        "cluster": run["cluster"],
        "ended_time": run["ended_time"],
        "seconds": seconds,
        "verdict": run["verdict"],
        "exit_status": run["exit_status"],
        "findings": sum(len(group["findings"]) for group in run["groups"]),
        "unseen_groups": run.get("unseen_groups", []),
        "groups": {
            group["broker"]: {
                "verdict": group["verdict"],
                "low_offset": group["low_offset"],
                "cut_offset": group["cut_offset"],
                "compared_bytes": group["compared_bytes"],
                "not_checked_bytes": group["not_checked_bytes"],
            }
            for group in run["groups"]
        },
    }
