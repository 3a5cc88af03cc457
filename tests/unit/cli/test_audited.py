"""What `repair --run` knows of an audit: what the auditor wrote down here."""

from pathlib import Path
from typing import Any

import pytest

from dittomq.cli.audited import wrong_spans
from dittomq.errors import InvalidField
from spark.audit import history

ENDED = "2026-11-20T02:31:00.000Z"


def finding(node: str | None, first: int, end: int, record: tuple[int, int] | None) -> dict[str, Any]:
    message = None if record is None else {"record_start_offset": record[0], "record_end_offset": record[1]}
    return {"node": node, "first_offset": first, "end_offset": end, "message": message}


def kept(folder: Path, name: str, *findings: dict[str, Any], damaged: tuple[dict[str, Any], ...] = (), cluster: str = "prod") -> Path:
    sizes = {"low_offset": 0, "cut_offset": 900, "compared_bytes": 900, "not_checked_bytes": 0}
    group = {"broker": "a", "verdict": "DIFFERS", "findings": list(findings), "damaged": list(damaged), **sizes}
    times = {"started_time": "2026-11-20T02:00:00.000Z", "ended_time": ENDED}
    history.keep(folder, {"run": name, "cluster": cluster, "verdict": "DIFFERS", "exit_status": 1, "groups": [group], **times})
    return folder / history.LINES


def test_whole_records_of_that_node_or_of_nobody_are_named_and_neighbours_together(tmp_path: Path) -> None:
    found = (
        finding("a/1", 250, 260, (200, 300)),
        finding("a/1", 310, 320, (300, 400)),
        finding("a/2", 0, 9, None),
        finding(None, 505, 506, (500, 600)),
    )
    path = kept(
        tmp_path, "2026-11-20T02-00-00.000Z", *found, damaged=({"node": "a/1", "start_offset": 700, "end_offset": 800, "problem": "torn"},)
    )

    assert wrong_spans("prod", "a/1", "last", path) == [(200, 400), (500, 600), (700, 800)]
    assert wrong_spans("prod", "a/2", "last", path) == [(0, 9), (500, 600)]
    assert wrong_spans("prod", "a/0", "last", path) == [(500, 600)]


def test_a_run_is_named_by_the_beginning_of_its_time_as_the_report_writes_it(tmp_path: Path) -> None:
    kept(tmp_path, "2026-11-20T02-00-00.000Z", finding("a/1", 1, 2, None))
    path = kept(tmp_path, "2026-11-21T02-00-00.000Z")

    assert wrong_spans("prod", "a/1", "2026-11-20T02:00", path) == [(1, 2)]


@pytest.mark.parametrize("run", ["2026-11-2", "2026-12", ""])
def test_what_names_no_run_or_several_is_refused_with_the_runs_that_there_are(tmp_path: Path, run: str) -> None:
    kept(tmp_path, "2026-11-20T02-00-00.000Z")
    path = kept(tmp_path, "2026-11-21T02-00-00.000Z")

    with pytest.raises(InvalidField, match=r"2026-11-20T02-00-00\.000Z, 2026-11-21T02-00-00\.000Z"):
        wrong_spans("prod", "a/1", run, path)


@pytest.mark.parametrize("run", ["last", "2026-11-20"])
def test_where_no_audit_was_run_it_is_said_that_one_has_to_be(tmp_path: Path, run: str) -> None:
    with pytest.raises(InvalidField, match=r"no audit of cluster prod is known in .*; run it first: dittomq audit"):
        wrong_spans("prod", "a/1", run, tmp_path / history.LINES)


def test_an_audit_of_another_cluster_is_not_the_last_one_and_has_no_name_here(tmp_path: Path) -> None:
    kept(tmp_path, "2026-11-20T02-00-00.000Z", finding("a/1", 1, 2, None))
    path = kept(tmp_path, "2026-11-21T02-00-00.000Z", cluster="test")

    assert wrong_spans("prod", "a/1", "last", path) == [(1, 2)]
    with pytest.raises(InvalidField, match="names 0 audits of cluster prod"):
        wrong_spans("prod", "a/1", "2026-11-21", path)


def test_an_audit_that_did_not_look_at_the_group_is_refused(tmp_path: Path) -> None:
    path = kept(tmp_path, "2026-11-20T02-00-00.000Z")

    with pytest.raises(InvalidField, match='did not look at broker group "b"'):
        wrong_spans("prod", "b/0", "last", path)


@pytest.mark.parametrize("left", [None, "{"])
def test_an_audit_whose_document_is_gone_or_cut_off_is_refused(tmp_path: Path, left: str | None) -> None:
    path = kept(tmp_path, "2026-11-20T02-00-00.000Z")
    document = tmp_path / "2026-11-20T02-00-00.000Z.json"
    document.unlink() if left is None else document.write_text(left)

    with pytest.raises(InvalidField, match="cannot be read"):
        wrong_spans("prod", "a/1", "last", path)
