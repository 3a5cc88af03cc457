"""`dittomq group` with real processes, as far as only members and their messages show it."""

import json
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.client import GroupConfig
from tests.support.real_group import TOPIC, real_group, shape


def test_messages_that_a_group_gave_up_are_printed_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with real_group(tmp_path, shape(1)) as group:
        group.mq.admin.create_group(GroupConfig("billing", retry_max_times=0))
        command = ["group", "dead-letters", "billing", "--nameserver", group.cluster.nameserver]
        assert run(command) == 0
        assert capsys.readouterr().err == "consumer group billing has no dead letters\n"
        with group.mq.producer() as producer:
            producer.publish(TOPIC, "poison", keys=["k"])
        with group.mq.consumer("billing", [TOPIC]) as messages:
            assert next(iter(messages)).retry() is False

        assert run([*command, "--json"]) == 0

        [letter] = map(json.loads, capsys.readouterr().out.splitlines())
        assert (letter["topic"], letter["text"], letter["keys"]) == ("%DLQ%billing", "poison", ["k"])
        assert run(command) == 0
        assert capsys.readouterr().out.endswith(f"poison  from {TOPIC}\n")
        assert run([*command, "--replay", "--dry-run"]) == 0
        assert capsys.readouterr().out == "a 0@0  would be again in queue 0 of %RETRY%billing\n"
        assert run([*command, "--replay", "--broker", "a", "--letter", "0@0", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["replayed"] == [{"broker": "a", "queue": 0, "offset": 0, "retry_queue": 0}]
        with group.mq.consumer("billing", [TOPIC]) as messages:
            again = next(iter(messages))
            assert (again.body, again.topic) == (b"poison", TOPIC)
            again.ack()
        assert run(["group", "dead-letters", "nobody", "--nameserver", group.cluster.nameserver]) == 1
