"""The demo's audits: the job as a process of its own, and the byte that is flipped between two of them."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dittomq.cli.demo.steps import DemoFailed
from dittomq.message import StoredMessage
from dittomq.testing.processes import module_environment

_LIMIT_S = 180


@dataclass(frozen=True, slots=True)
class Flipped:
    """One byte of one copy, and the message it belongs to."""

    node: str
    message: StoredMessage
    position: int


@dataclass(frozen=True, slots=True)
class Audit:
    """What the audit said: its exit status and its document."""

    status: int
    document: dict[str, Any]

    def rows(self) -> list[list[str]]:
        """The verdict on each broker group, as a table."""
        rows = [["GROUP", "COPIES", "COMPARED", "DIFFERING", "DAMAGED", "NOT CHECKED", "VERDICT"]]
        for group in self.document["groups"]:
            counts = [f"{group['compared_bytes']:,} B", f"{group['differing_bytes']:,} B", f"{group['records']['damaged']:,}"]
            rows.append([group["broker"], f"{len(group['copies'])}", *counts, f"{group['not_checked_bytes']:,}", group["verdict"]])
        return rows

    def passes(self, *, copies: int) -> bool:
        """Whether it compared so many copies of one group, and all are equal."""
        groups = self.document["groups"]
        return self.status == 0 and len(groups) == 1 and len(groups[0]["copies"]) == copies and groups[0]["compared_bytes"] > 0

    def finds(self, flipped: Flipped) -> bool:
        """Whether it names that node, message and byte, and nothing else."""
        findings = [finding for group in self.document["groups"] for finding in group["findings"]]
        if len(findings) != 1 or findings[0]["message"] is None:
            return False
        [finding] = findings
        named = finding["message"]
        return (finding["node"], finding["first_offset"], finding["differing_bytes"]) == (flipped.node, flipped.position, 1) and (
            named["topic"],
            named["queue"],
            named["queue_offset"],
        ) == (flipped.message.topic, flipped.message.queue, flipped.message.queue_offset)


def run_audit(nameserver: str, out: Path, history: Path) -> Audit:
    """Audit the cluster; DemoFailed when it comes to no result."""
    command = [
        sys.executable,
        "-m",
        "spark.audit",
        "run",
        "--nameserver",
        nameserver,
        "--out",
        str(out),
        "--history",
        str(history),
        "--json",
    ]
    done = subprocess.run(
        command, env=module_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    try:
        return Audit(done.returncode, json.loads(done.stdout))
    except ValueError as error:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise DemoFailed(f"the audit came to no result (exit {done.returncode}): {last[0]}") from error


def flip_a_byte(store: Path, node: str, message: StoredMessage) -> Flipped:
    """Flip one bit in the middle of the message's body, in the first file of that store, while its node runs."""
    with (store / "commitlog" / f"{0:020d}").open("r+b") as segment:
        segment.seek(message.physical_offset)
        record = segment.read(message.record_bytes)
        position = message.physical_offset + record.index(message.body) + len(message.body) // 2
        segment.seek(position)
        segment.write(bytes([record[position - message.physical_offset] ^ 1]))
    return Flipped(node, message, position)
