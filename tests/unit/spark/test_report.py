"""The document of an audit, its sentences, its page and its history."""

import json
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dittomq.copies import ReplicaDescription
from dittomq.offsets import PhysicalOffset
from dittomq.routes import DataVersion
from spark.audit import history
from spark.audit.__main__ import main
from spark.audit.conclude import account
from spark.audit.model import (
    AuditExit,
    Bounds,
    Damage,
    DamageKind,
    Finding,
    GroupAudit,
    GroupPlan,
    Leaf,
    MessageName,
    RunResult,
    Sample,
    Slice,
    Surveyed,
    Verdict,
)
from spark.audit.page import page
from spark.audit.report import document
from spark.audit.words import advice, headline, text
from tests.support.synthetic_log import address
from tests.support.tree import ROOT

END = 2_000


def copy(node: str, role: str) -> Surveyed:
    end = PhysicalOffset(END)
    held = ReplicaDescription(node, "c", node, role, (), 0, PhysicalOffset(0), end, end, end, 4_096, DataVersion(), "1")
    return Surveyed(address(node), held)


def group(**changed: Any) -> GroupAudit:
    copies = (copy("a/0", "SYNC_MASTER"), copy("a/1", "SLAVE"), copy("a/2", "SLAVE"))
    plan = GroupPlan("a", "c", copies, Bounds(0, END, 0), END, (), (), ())
    whole = GroupAudit(
        plan=plan, compared=END, differing=(), unexplained=0, findings=(), damaged=(), records=9, records_node="a/0", rehashed=END,
        queues=2, topics=1, ignored=0, transients=0, not_compared=(), problems=(),
    )  # fmt: skip
    return replace(whole, **changed)


def finding(node: str = "a/2", topic: str = "orders") -> Finding:
    name = MessageName(topic, 5, 7_113, ("o-5512",), 1_700_000_000_000, 1_200, 1_300)
    samples = (Sample("a/0", 1_232, b"PAYLOAD-SECRET"), Sample("a/2", 1_232, b"PAYLOAD-SECRFT"))
    whole_on = tuple(each for each in ("a/0", "a/1", "a/2") if each != node) if node else ()
    return Finding("a", node, 1_240, 1_241, 1_200, 1_300, 1, DamageKind.CORRUPT_BODY, name, 1, "because", whole_on, samples)


LEAF = Leaf(Slice("a", 0, END, 0, 4_096), 0, END)


def run(*groups: GroupAudit, problems: tuple[str, ...] = ()) -> RunResult:
    return RunResult("2026-11-20T02-00-00.000Z", "c", 1_000, 3_500, 1_200, 77, groups, problems)


def test_exit_bits_tell_divergence_damage_and_incompleteness_apart() -> None:
    damage = Damage("a/0", 5, 9, "torn")
    cases = {
        AuditExit(0): run(group()),
        AuditExit.DIVERGED: run(group(findings=(finding(),), differing=(LEAF,))),
        AuditExit.DAMAGED: run(group(damaged=(damage,))),
        AuditExit.INCOMPLETE: run(group(problems=("x",))),
        AuditExit.DIVERGED | AuditExit.INCOMPLETE: run(group(unexplained=3, problems=("x",))),
        AuditExit.DIVERGED | AuditExit.DAMAGED | AuditExit.INCOMPLETE: run(
            group(findings=(finding(),), damaged=(damage,)), group(problems=("x",))
        ),
    }
    for expected, result in cases.items():
        assert result.exit_status == expected
    assert run(problems=("nobody is there",)).verdict is Verdict.INCOMPLETE


def test_the_first_line_of_a_pass_counts_every_byte() -> None:
    one = document(run(group()), show_bytes=False)
    two = document(run(group(), group()), show_bytes=False)

    assert headline(one) == "PASS  a: 3 copies equal, 2,000 of 2,000 bytes compared, 0 not checked"
    assert headline(two) == "PASS  2 groups, 6 copies equal, 4,000 of 4,000 bytes compared, 0 not checked"
    assert advice(one) == []


def test_a_group_of_one_copy_passes_on_its_records_alone() -> None:
    alone = group(plan=replace(group().plan, copies=(copy("a/0", "ASYNC_MASTER"),)), compared=0)

    assert headline(document(run(alone), show_bytes=False)) == "PASS  a: no second copy is configured; all 9 records are whole"


def test_the_first_line_names_node_queue_offset_and_byte_of_a_difference() -> None:
    found = document(run(group(findings=(finding(),), differing=(LEAF,))), show_bytes=False)

    named = "1 message is damaged on a/2: orders queue 5 offset 7,113, byte 1,240 (corrupt-body); a/0 and a/1 hold it whole"
    assert headline(found) == f"DIFFERS  a: {named}"
    assert advice(found)[0] == (
        "dittomq repair a/2 --run 2026-11-20T02-00-00.000Z: it fetches them from a/0 and a/1 while all run; then audit"
    )


def test_a_copy_of_another_history_is_not_for_repair_but_to_be_resynced() -> None:
    found = document(run(group(findings=(replace(finding(), kind=DamageKind.DIVERGED),), differing=(LEAF,))), show_bytes=False)

    assert advice(found)[0].startswith("a/2: stop it")


def test_a_run_that_differs_and_is_incomplete_says_both_first() -> None:
    found = document(run(group(findings=(finding(),), problems=("a/1 is silent",))), show_bytes=False)

    assert headline(found).startswith("DIFFERS, INCOMPLETE  a: ")
    assert headline(found).endswith("; 1 thing could not be checked")


def test_a_finding_that_blames_nobody_says_so() -> None:
    found = document(run(group(findings=(finding(node=""),))), show_bytes=False)

    assert "on one of the copies" in headline(found)
    assert "nothing tells which copy is wrong" in advice(found)[0]


def test_payload_is_shown_only_when_asked_for() -> None:
    result = run(group(findings=(finding(),)))
    without, shown = (document(result, show_bytes=asked) for asked in (False, True))

    secret = b"PAYLOAD-SECRET".hex(" ")
    assert secret not in page(without, [], "again") + text(without) + json.dumps(without)
    assert secret in page(shown, [], "again")


def test_hostile_names_stay_text_on_the_page() -> None:
    found = document(run(group(findings=(finding(topic="<script>alert(1)</script>"),))), show_bytes=False)

    assert "<script" not in page(found, [], "again")


def test_history_has_one_row_a_run_and_gives_the_whole_back(tmp_path: Path) -> None:
    first, second = (document(replace(run(group()), run=name), show_bytes=False) for name in ("r1", "r2"))
    history.keep(tmp_path, first)
    history.keep(tmp_path, second)
    with (tmp_path / history.LINES).open("a", encoding="utf-8") as file:
        file.write('{"run": "cut off')

    assert [row["run"] for row in history.rows(tmp_path)] == ["r1", "r2"]
    assert history.load(tmp_path, "last") == second
    assert history.load(tmp_path, "r1") == first
    assert history.last_verified(history.rows(tmp_path), "a", 1_240) == second["ended_time"]
    assert history.last_verified(history.rows(tmp_path), "a", END) is None
    with pytest.raises(history.NoSuchRun, match="the newest are: r1, r2"):
        history.load(tmp_path, "r9")


def test_a_line_that_a_crash_cut_off_takes_no_later_run_with_it(tmp_path: Path) -> None:
    history.keep(tmp_path, document(replace(run(group()), run="r1"), show_bytes=False))
    with (tmp_path / history.LINES).open("a", encoding="utf-8") as file:
        file.write('{"run": "cut off')
    history.keep(tmp_path, document(replace(run(group()), run="r2"), show_bytes=False))

    assert [row["run"] for row in history.rows(tmp_path)] == ["r1", "r2"]


def audited(folder: Path, *brokers: str, cluster: str = "c", **asked: Any) -> RunResult:
    """A run that found these groups, as it is kept after what the history knows."""
    groups = [group(plan=replace(group().plan, broker=broker)) for broker in brokers]
    known = history.known_groups(history.rows(folder), cluster)
    result = account(replace(run(*groups), cluster=cluster), known, **asked)
    history.keep(folder, document(result, show_bytes=False))
    return result


def test_group_seen_by_an_earlier_audit_makes_each_audit_incomplete(tmp_path: Path) -> None:
    """Until it is back or forgotten."""
    gone = "no node of b is registered, and an earlier audit saw it; if it is gone for good, audit with --forget b"

    assert audited(tmp_path, "a", "b").exit_status == AuditExit(0)
    for _ in range(2):
        without = audited(tmp_path, "a")
        assert (without.exit_status, without.problems) == (AuditExit.INCOMPLETE, (gone,))
        assert headline(document(without, show_bytes=False)).startswith(f"INCOMPLETE  {gone}; ")
    assert audited(tmp_path, "a", "b").exit_status == AuditExit(0)
    assert audited(tmp_path, "a").problems == (gone,)
    assert audited(tmp_path, "a", forget=["b"]).exit_status == AuditExit(0)
    assert audited(tmp_path, "a").exit_status == AuditExit(0)


def test_an_audit_of_one_group_misses_no_other_and_forgets_none(tmp_path: Path) -> None:
    audited(tmp_path, "a", "b")

    assert audited(tmp_path, "a", only=True).exit_status == AuditExit(0)
    assert audited(tmp_path, "a", cluster="another").exit_status == AuditExit(0)
    assert audited(tmp_path, "a").exit_status == AuditExit.INCOMPLETE


def test_a_difference_beside_a_missing_group_is_said_first_and_the_group_is_counted(tmp_path: Path) -> None:
    audited(tmp_path, "a", "b")
    result = account(run(group(findings=(finding(),))), {"a", "b"})

    assert headline(document(result, show_bytes=False)).endswith("; 1 thing could not be checked")


def test_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    history.keep(tmp_path, document(run(group()), show_bytes=False))

    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_show_prints_an_earlier_run_with_its_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history.keep(tmp_path, document(run(group(findings=(finding(),))), show_bytes=False))

    assert main(["show", "--history", str(tmp_path)]) == 1
    assert capsys.readouterr().out.startswith("DIFFERS  a: 1 message is damaged on a/2")
    assert main(["show", "nothing", "--history", str(tmp_path)]) == 64
    assert "has no audit" in capsys.readouterr().err


def test_a_wrong_flag_is_usage_and_never_a_verdict() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--no-such-flag"])

    assert ended.value.code == 64


@pytest.mark.parametrize(
    "arguments", [("run", "--nameserver", "localhost:1", "--out", "FILE"), ("run", "--nameserver", "localhost:1", "--history", "FILE/x")]
)
def test_folders_that_cannot_hold_the_report_are_named_before_anything_is_read(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").touch()

    assert main(list(arguments)) == 64

    [sentence] = capsys.readouterr().err.splitlines()
    assert "FILE" in sentence
    assert "--out" in sentence


def test_an_unknown_flag_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--nameserver", "localhost:1", "--no-such-flag"])

    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.endswith("unrecognized arguments: --no-such-flag; see --help")


def test_a_reader_that_has_seen_enough_of_a_report_leaves_its_verdict(tmp_path: Path) -> None:
    history.keep(tmp_path, document(run(group(findings=(finding(),))), show_bytes=False))
    command = f'"{sys.executable}" -m spark.audit show --history "{tmp_path}" --json | true; exit "${{PIPESTATUS[0]}}"'

    ran = subprocess.run(["/bin/bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (1, "")


def test_an_interrupted_audit_gives_no_verdict_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    history.keep(tmp_path, document(run(group()), show_bytes=False))
    monkeypatch.setattr("json.loads", interrupted)

    assert main(["show", "--history", str(tmp_path)]) == 130
    assert capsys.readouterr().err == "interrupted; no verdict\n"
