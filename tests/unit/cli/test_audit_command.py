"""Which cluster `audit` hands to its job."""

import subprocess

import pytest

from dittomq.cli.app import run


@pytest.mark.parametrize(
    ("words", "audited"),
    [
        (["audit"], "env:1"),
        (["audit", "run"], "env:1"),
        (["audit", "--nameserver", "said:2"], "said:2"),
        (["audit", "--nameserver", "said:2", "run"], "said:2"),
        (["audit", "run", "--nameserver", "said:2"], "said:2"),
        (["audit", "--nameserver", "before:3", "run", "--nameserver", "said:2"], "said:2"),
        (["audit", "--nameserver", "one:1,two:2", "run"], "one:1,two:2"),
    ],
)
def test_the_nameservers_that_are_said_are_audited_wherever_they_are_said(
    words: list[str], audited: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def start(command: list[str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setenv("DITTOMQ_NAMESERVER", "env:1")

    assert run([*words, "--broker", "a"] if "run" in words else words) == 0
    [command] = started
    assert command[command.index("run") :][:3] == ["run", "--nameserver", audited]
