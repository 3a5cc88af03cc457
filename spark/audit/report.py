"""An audit's result as one JSON document: what programs read, and all that the page and the text are made from."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from spark.audit.model import Damage, Finding, GroupAudit, RunResult, Surveyed

SCHEMA = 1
MAP_CELLS = 48

Document = dict[str, Any]


def document(result: RunResult, *, show_bytes: bool) -> Document:
    """The whole result. Payload bytes are left out unless asked for; a schema's fields are only ever added to."""
    return {
        "schema": SCHEMA,
        "run": result.run,
        "cluster": result.cluster,
        "verdict": str(result.verdict),
        "exit_status": int(result.exit_status),
        "started_time": _time(result.started_ms),
        "cut_time": _time(result.cut_ms),
        "ended_time": _time(result.ended_ms),
        "duration_ms": result.ended_ms - result.started_ms,
        "salt": f"{result.salt:016x}",
        "problems": list(result.problems),
        "unseen_groups": list(result.unseen),
        "groups": [_group(group, show_bytes=show_bytes) for group in result.groups],
    }


def _group(group: GroupAudit, *, show_bytes: bool) -> Document:
    plan = group.plan
    return {
        "broker": plan.broker,
        "verdict": str(group.verdict),
        "low_offset": plan.bounds.low,
        "cut_offset": plan.bounds.cut,
        "confirmed_offset": plan.frontier,
        "total_bytes": group.total,
        "compared_bytes": group.compared,
        "differing_bytes": sum(leaf.end - leaf.start for leaf in group.differing),
        "not_checked_bytes": max(0, group.total - group.compared),
        "ignored_bytes": group.ignored,
        "transient_differences": group.transients,
        "unexplained_leaves": group.unexplained,
        "records": {
            "node": group.records_node,
            "whole": group.records,
            "damaged": len(group.damaged),
            "queues": group.queues,
            "topics": group.topics,
            "rehashed_bytes": group.rehashed,
        },
        "copies": [_copy(group, copy) for copy in plan.copies],
        "findings": [_finding(finding, show_bytes=show_bytes) for finding in group.findings],
        "damaged": [_damage(damage) for damage in group.damaged],
        "not_compared": [{"node": part.node, "bytes": part.size, "why": part.why, "normal": part.normal} for part in group.not_compared],
        "problems": list(group.problems),
    }


def _copy(group: GroupAudit, copy: Surveyed) -> Document:
    held = copy.held
    assert held is not None, "a plan holds copies that were described"
    wrong = [finding for finding in group.findings if finding.node in ("", held.node)]
    damaged = [damage for damage in group.damaged if damage.node == held.node]
    return {
        "node": held.node,
        "role": held.role,
        "epoch": held.epoch,
        "min_offset": held.min_offset,
        "end_offset": held.end,
        "confirmed_offset": held.confirmed,
        "behind_bytes": max(0, group.plan.frontier - held.end),
        "version": held.version,
        "wrong_bytes": sum(finding.differing for finding in wrong),
        "damaged_records": len(damaged),
        "verdict": "DIFFERS" if wrong or damaged else "INCOMPLETE" if group.problems else "PASS",
        "map": "".join(_map(group, copy, [finding for finding in group.findings if finding.node in ("", held.node)])),
    }


def _map(group: GroupAudit, copy: Surveyed, wrong: list[Finding]) -> Iterator[str]:
    """One character for each part of the log: `.` equal, `X` differs, `~` not all checked."""
    bounds = group.plan.bounds
    whole = max(1, group.plan.frontier)
    unchecked = any(part.node == copy.node and not part.normal for part in group.not_compared) or group.compared < bounds.cut - bounds.low
    for cell in range(MAP_CELLS):
        start, end = whole * cell // MAP_CELLS, max(whole * (cell + 1) // MAP_CELLS, whole * cell // MAP_CELLS + 1)
        if any(finding.first < end and start < finding.end for finding in wrong):
            yield "X"
        elif start < bounds.low or end > bounds.cut or unchecked:
            yield "~"
        else:
            yield "."


def _finding(finding: Finding, *, show_bytes: bool) -> Document:
    name = finding.message
    found: Document = {
        "node": finding.node or None,
        "first_offset": finding.first,
        "end_offset": finding.end,
        "differing_bytes": finding.differing,
        "kind": str(finding.kind),
        "words": finding.kind.words,
        "messages": finding.messages,
        "blame": finding.blame,
        "whole_on": list(finding.whole_on),
        "message": None,
    }
    if name is not None:
        found["message"] = {
            "topic": name.topic,
            "queue": name.queue,
            "queue_offset": name.queue_offset,
            "keys": list(name.keys),
            "store_time": _time(name.store_ms),
            "record_start_offset": name.start,
            "record_end_offset": name.end,
        }
    if show_bytes:
        found["bytes"] = [{"node": sample.node, "offset": sample.start, "hex": sample.data.hex(" ")} for sample in finding.samples]
    return found


def _damage(damage: Damage) -> Document:
    return {"node": damage.node, "start_offset": damage.start, "end_offset": damage.end, "problem": damage.problem}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
