"""Numbers that people type, beyond what Python or a log can take."""

from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.cli.exits import ExitCode

HUGE = "9" * 5_000


@pytest.mark.parametrize("span", [f"1..{HUGE}", f"{HUGE}..{HUGE}", ",..,", "1..9,999,999,999,999,999,999"])
def test_a_range_of_bytes_that_no_log_has_is_a_usage_error(span: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = (["log", "digest", str(tmp_path), "-o", str(tmp_path.parent / "file")], ["repair", "a/0", "--nameserver", "localhost:1"])
    for command in commands:
        assert run([*command, "--bytes", span]) == ExitCode.USAGE
        assert "is no range" in capsys.readouterr().err


@pytest.mark.parametrize("offset", [HUGE, str(1 << 63)])
def test_an_offset_that_no_queue_has_is_a_usage_error(offset: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume", "orders", "--from", offset, "--nameserver", "localhost:1"]) == ExitCode.USAGE
    assert "is no place in a queue" in capsys.readouterr().err
