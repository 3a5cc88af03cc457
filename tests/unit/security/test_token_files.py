"""A process's own token, from a file that is exchanged while it runs."""

import os
from pathlib import Path

import pytest

from dittomq.errors import ConfigError
from dittomq.security.token_files import TokenFile
from tests.support.waiting import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "node.token"
    path.write_text("first")
    return path


def test_an_exchanged_token_is_known_before_anybody_asks_for_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.security.followed_files.LOOK_EVERY_S", 0.01)
    renewals: list[str] = []
    token = TokenFile("access.own_token_file", str(path), on_renewal=lambda: renewals.append(token()))
    token.follow()
    try:
        path.write_text("second")
        eventually(lambda: renewals == ["second"], "the new one was read, and no call has asked for it")
    finally:
        token.close()


def test_a_token_file_that_cannot_be_read_keeps_nobody_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dittomq.security.followed_files.LOOK_EVERY_S", 0.01)
    token = TokenFile("access.own_token_file", str(path))
    path.unlink()
    os.mkfifo(path)  # to open it takes until somebody writes
    token.follow()
    try:
        assert token() == "first"
        path.write_text("second")
        eventually(lambda: token() == "second", "what was written at last")
    finally:
        token.close()


def test_an_unusable_token_file_leaves_the_former_token_and_is_told_once(path: Path) -> None:
    problems: list[ConfigError] = []
    token = TokenFile("access.own_token_file", str(path), on_problem=problems.append)
    for content in ("s3cr3t!", "s3cr3t!", "", "third"):
        path.write_text(content)
        token.look()
        assert token() == (content if content == "third" else "first")

    assert len(problems) == 2
    assert "s3cr3t" not in f"{problems}"
