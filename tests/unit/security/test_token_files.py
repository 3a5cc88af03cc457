"""A process's own token, from a file that is exchanged while it runs."""

import os
import threading
from pathlib import Path

from dittomq.security.token_files import TokenFile
from tests.support.manual_clock import HandClock
from tests.support.waiting import eventually


def test_a_token_file_that_cannot_be_read_keeps_nobody_waiting(tmp_path: Path) -> None:
    path, clock = tmp_path / "node.token", HandClock()
    path.write_text("first")
    token = TokenFile("access.own_token_file", str(path), clock)
    path.unlink()
    os.mkfifo(path)  # whoever opens it waits until somebody writes

    clock.now_s += 30
    assert [token(), token()] == ["first", "first"]
    path.write_text("second")
    eventually(lambda: token() == "second", "what was written at last")


def test_an_unusable_token_file_leaves_the_former_token(tmp_path: Path) -> None:
    path, clock = tmp_path / "node.token", HandClock()
    path.write_text("first")
    token = TokenFile("access.own_token_file", str(path), clock)

    for content in ("no token", ""):
        path.write_text(content)
        clock.now_s += 30
        assert token() == "first"
        eventually(lambda: all(thread.name != "token" for thread in threading.enumerate()), "it was read")
        assert token() == "first"
    path.write_text("third")
    clock.now_s += 30
    eventually(lambda: token() == "third", "it is usable again")
    assert token() == "third"
