"""A test that lacks something is skipped by name; where SKIPS=fail is set, as CI does, nothing is skipped."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.tree import ROOT

LACKING = """
import pytest

def test_that_passes():
    pass

def test_that_skips():
    pytest.skip("no such disk here")

@pytest.mark.skipif(True, reason="no such package here")
def test_that_is_marked():
    pass

@pytest.mark.parametrize("file", [])
def test_of_what_is_not_there(file):
    pass

@pytest.mark.xfail
def test_of_a_known_fault():
    assert False
"""
A_WHOLE_FILE = """
import pytest

pytest.skip("no such system here", allow_module_level=True)
"""


def run(folder: Path, test: str, skips: str) -> tuple[int, str]:
    """The exit code of pytest, and what it prints."""
    (folder / "test_lacking.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "tests.support.skips", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SKIPS": skips}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


def test_what_is_skipped_is_named_and_nothing_fails(tmp_path: Path) -> None:
    code, printed = run(tmp_path, LACKING, "")

    assert (code, "1 passed, 3 skipped, 1 xfailed" in printed) == (0, True), printed
    assert "no such disk here" in printed
    assert "no such package here" in printed


def test_where_nothing_may_be_skipped_each_fails_with_its_reason(tmp_path: Path) -> None:
    code, printed = run(tmp_path, LACKING, "fail")

    assert (code, "1 failed, 1 passed, 1 xfailed, 2 errors" in printed) == (1, True), printed
    assert "no such disk here" in printed
    assert "no such package here" in printed


def test_where_nothing_may_be_skipped_a_whole_file_is_not_either(tmp_path: Path) -> None:
    assert run(tmp_path, A_WHOLE_FILE, "")[0] == 5  # no test was found

    code, printed = run(tmp_path, A_WHOLE_FILE, "fail")

    assert (code, "no such system here" in printed) == (2, True), printed


def test_ci_lets_nothing_be_skipped() -> None:
    assert "export SKIPS=fail" in (ROOT / ".ci" / "run").read_text()
