"""`dittomq context`, and the cluster that other commands take from it."""

from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.client.context import load_contexts


@pytest.fixture(autouse=True)
def _contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DITTOMQ_CONFIG", str(tmp_path / "contexts.toml"))
    monkeypatch.delenv("DITTOMQ_NAMESERVER", raising=False)


@pytest.mark.parametrize("nameserver", ["localhost", "http://localhost:9876", ",", "localhost:x"])
def test_a_context_whose_nameserver_cannot_be_one_is_not_remembered(nameserver: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["context", "add", "prod", nameserver]) == 64

    assert load_contexts().all == ()
    assert "host:port" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["9" * 5_000, "[" * 5_000])
def test_a_file_of_contexts_with_a_value_that_no_program_reads_is_a_usage_error(tmp_path: Path, value: str) -> None:
    (tmp_path / "contexts.toml").write_text(f"current = {value}\n")

    assert run(["cluster"]) == 64


def test_a_current_context_whose_nameserver_cannot_be_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "contexts.toml").write_text('current = "prod"\n[contexts]\nprod = "localhost"\n')

    assert run(["cluster"]) == 64

    assert capsys.readouterr().err == 'context "prod": "localhost" is not host:port, for instance localhost:9876\n'
