"""What `ha status` knows of audits: what the auditor wrote down here."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dittomq.cli.audited import HISTORY, LastAudit, last_audit
from spark.audit import history
from spark.audit.__main__ import DEFAULT_HISTORY

ENDED = datetime(2026, 11, 20, 2, 31, tzinfo=UTC)


def a_run(name: str, cluster: str, verdict: str, ended: datetime = ENDED) -> dict[str, Any]:
    times = {"started_time": (ended - timedelta(minutes=30)).isoformat(), "ended_time": ended.isoformat()}
    return {"run": name, "cluster": cluster, "verdict": verdict, "exit_status": 0, "groups": []} | times


def test_the_auditor_keeps_its_history_where_it_is_looked_for() -> None:
    assert HISTORY == DEFAULT_HISTORY / history.LINES


def test_the_newest_run_of_the_cluster_counts(tmp_path: Path) -> None:
    history.keep(tmp_path, a_run("1", "prod", "DIFFERS", ENDED - timedelta(days=1)))
    history.keep(tmp_path, a_run("2", "prod", "PASS"))
    history.keep(tmp_path, a_run("3", "test", "INCOMPLETE"))

    assert last_audit("prod", tmp_path / history.LINES) == LastAudit("PASS", int(ENDED.timestamp() * 1000))


@pytest.mark.parametrize(
    "torn", [b'{"run":"2","cluster":"prod"', b'{"cluster":"prod","verdict":"PASS","ended_time":"soon"}', b"[]", b"\xff"]
)
def test_a_line_that_says_nothing_is_passed_over(tmp_path: Path, torn: bytes) -> None:
    history.keep(tmp_path, a_run("1", "prod", "PASS"))
    with (tmp_path / history.LINES).open("ab") as file:
        file.write(torn)

    assert last_audit("prod", tmp_path / history.LINES) == LastAudit("PASS", int(ENDED.timestamp() * 1000))


def test_without_a_history_nothing_is_known(tmp_path: Path) -> None:
    assert last_audit("prod", tmp_path / history.LINES) is None
