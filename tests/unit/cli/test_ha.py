"""What `dittomq ha …` prints and exits with, for each answer."""

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dittomq.cli import ha
from dittomq.cli.app import run
from dittomq.cli.output import clock_date, clock_time
from dittomq.client import Client
from dittomq.client.sync_client import SyncAdmin
from dittomq.errors import DittoError, PreconditionFailed, Unavailable
from dittomq.ha_status import HaStatus
from dittomq.wire.admin import FailoverAnswer, HaChange, SwitchoverAnswer
from tests.support.ha_answers import MASTER, NOW_MS

Answer = Callable[..., object]
PROMOTED = replace(MASTER, node="a/1", epoch=8)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each call answers, by name; a DittoError is raised. Each call's keywords are noted as "<name>_with"."""
    told: dict[str, Any] = {"ha_status": PROMOTED}

    def answer(name: str) -> Answer:
        def call(_: SyncAdmin, *__: object, **keywords: object) -> object:
            told[f"{name}_with"] = keywords
            if isinstance(told[name], DittoError):
                raise told[name]
            return told[name]

        return call

    for name in ("switchover", "failover", "set_paused", "ha_history", "ha_status"):
        monkeypatch.setattr(SyncAdmin, name, answer(name))
    moments = iter(range(1_000))
    monkeypatch.setattr(ha, "time", SimpleNamespace(monotonic=lambda: float(next(moments)), sleep=lambda _: None))
    return told


def ha_command(*words: str) -> int:
    return run(["ha", *words, "--nameserver", "localhost:1"])


def test_a_switchover_says_in_which_epoch_the_slave_was_promoted(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["switchover"] = SwitchoverAnswer(7)

    assert ha_command("switchover", "a/1") == 0
    assert capsys.readouterr().out.startswith("a/1 promoted in epoch 8 · after ")


def test_a_switchover_is_a_document_for_programs(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["switchover"] = SwitchoverAnswer(7)

    assert ha_command("switchover", "a/1", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["node"], document["epoch"], document["data_loss"]) == ("a/1", 8, None)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        (replace(PROMOTED, epoch=7, role="SLAVE", waiting_for="a quorum"), "it is a slave and waits for a quorum"),
        (replace(PROMOTED, epoch=7), "it leads in epoch 7 still"),
        (replace(PROMOTED, writable=False), "too few copies are in sync"),
        (Unavailable("a/1", "connection refused"), "connection refused"),
    ],
    ids=["is a slave", "is the master of the old epoch", "takes no writes", "is silent"],
)
def test_a_promotion_is_waited_for_and_reported_as_unknown_while_the_node(
    seen: HaStatus | DittoError, why: str, asked: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked |= {"switchover": SwitchoverAnswer(7), "ha_status": seen}

    assert ha_command("switchover", "a/1") == 4
    said = capsys.readouterr().err
    assert said.startswith("a/1 is not the master after 30 s: ")
    assert why in said
    assert said.endswith("see dittomq ha status\n")


def test_a_switchover_that_is_refused_is_told_why(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["switchover"] = PreconditionFailed("refused: a/1 is not a member of the in-sync set")

    assert ha_command("switchover", "a/1") == 1
    assert "a/1 is not a member of the in-sync set" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "answer", "said"),
    [
        ("switchover", SwitchoverAnswer(7), "a/1 would be promoted in an epoch above 7\n"),
        ("failover", FailoverAnswer(7, "", ("a/0",)), "a/1 would stand for election; data loss: nothing\n"),
        ("failover", FailoverAnswer(7, "what a/0 has", ("a/0",)), "a/1 would stand for election; data loss: what a/0 has\n"),
    ],
)
def test_a_dry_run_says_what_would_happen(
    command: str, answer: object, said: str, asked: dict[str, Any], *, capsys: pytest.CaptureFixture[str]
) -> None:
    asked[command] = answer

    assert ha_command(command, "a/1", "--dry-run") == 0
    assert capsys.readouterr().out == said
    assert asked[f"{command}_with"]["validate_only"] is True


def test_a_failover_that_loses_nothing_says_nothing_of_loss(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["failover"] = FailoverAnswer(7, "", ("a/0",))

    assert ha_command("failover", "a/1") == 0
    told = capsys.readouterr()
    assert told.out.startswith("a/1 promoted in epoch 8 · after ")
    assert "data loss" not in told.out
    assert told.err == ""
    assert asked["failover_with"]["allow_data_loss"] is False


def test_a_failover_that_may_lose_data_names_the_loss_and_whom_to_stop(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["failover"] = FailoverAnswer(7, "messages above 900 may be lost", ("a/0", "a/2"))

    assert ha_command("failover", "a/1", "--allow-data-loss") == 0
    told = capsys.readouterr()
    assert told.out.endswith(" · data loss: messages above 900 may be lost\n")
    assert told.err == "nothing fences a/0, a/2: stop them before they take writes again\n"
    assert asked["failover_with"]["allow_data_loss"] is True


@pytest.mark.parametrize(
    ("command", "changed", "said"),
    [
        (("pause", "a"), True, "a: failover is paused\n"),
        (("pause", "a"), False, "a: failover is paused, as before\n"),
        (("resume", "a"), True, "a: failover is automatic\n"),
        (("resume", "a", "--dry-run"), False, "a: failover would be automatic, as it is\n"),
    ],
)
def test_failover_is_paused_and_resumed(
    command: tuple[str, ...], changed: bool, said: str, asked: dict[str, Any], *, capsys: pytest.CaptureFixture[str]
) -> None:
    asked["set_paused"] = changed

    assert ha_command(*command) == 0
    assert capsys.readouterr().out == said
    assert asked["set_paused_with"] == {"paused": command[0] == "pause", "validate_only": "--dry-run" in command}


def test_the_history_is_one_line_a_change_the_oldest_first(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["ha_history"] = [
        HaChange(NOW_MS, 30, 6, "a/0", ("a/0", "a/1"), "a/1 was added", 12),
        HaChange(NOW_MS + 1_000, 31, 7, "a/1", ("a/0", "a/1"), "elected: a/0 was silent", 940),
    ]

    assert ha_command("history", "a") == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ["TIME", "REVISION", "EPOCH", "MASTER", "MEMBERS", "TOOK", "CAUSE"]
    assert first.startswith(f"{clock_date(NOW_MS)} {clock_time(NOW_MS)}  30 ")
    assert first.endswith("  6      a/0     a/0 a/1  0.01 s  a/1 was added")
    assert second.endswith("0.94 s  elected: a/0 was silent")


def test_the_history_is_a_document_for_programs(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    asked["ha_history"] = [HaChange(NOW_MS, 30, 6, "a/0", ("a/0", "a/1"), "a/1 was added", 12)]

    assert ha_command("history", "a", "--json") == 0
    [change] = json.loads(capsys.readouterr().out)["changes"]
    assert change == {
        "time_ms": NOW_MS,
        "revision": 30,
        "epoch": 6,
        "master": "a/0",
        "members": ["a/0", "a/1"],
        "cause": "a/1 was added",
        "duration_ms": 12,
    }


@pytest.mark.parametrize("command", ["switchover", "failover"])
def test_who_interrupts_a_promotion_hears_that_it_may_go_on(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "__enter__", interrupted)

    assert ha_command(command, "a/1") == 130
    assert "interrupted; the election may go on: dittomq ha status says who is the master" in capsys.readouterr().err
