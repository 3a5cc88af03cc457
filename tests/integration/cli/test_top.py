"""`dittomq top` beside a real node."""

import json
from pathlib import Path

import pytest

from dittomq.cli.app import run
from tests.support.real_group import TOPIC, real_group, shape


def test_top_once_prints_nodes_topics_and_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with real_group(tmp_path, shape(0)) as group:
        group.mq.admin.create_group("billing")
        with group.mq.producer() as producer:
            producer.publish(TOPIC, "paid")
        command = ["top", "--once", "--interval", "200ms", "--nameserver", group.cluster.nameserver]

        assert run([*command, "--json"]) == 0

        found = json.loads(capsys.readouterr().out)
        assert [(each["node"], each["role"], each["problem"]) for each in found["nodes"]] == [("a/0", "master", None)]
        assert found["nodes"][0]["bytes_per_s"] is not None
        assert {each["topic"]: each["messages"] for each in found["topics"]} == {TOPIC: 1, "unwritten": 0}
        assert [(each["group"], each["lag"]) for each in found["groups"]] == [("billing", 0)]
        assert run(command) == 0
        assert f"{TOPIC} " in capsys.readouterr().out
        assert run(["top", "--json", "--nameserver", group.cluster.nameserver]) == 64
        assert run([*command[:2], "--interval", "0s", "--nameserver", group.cluster.nameserver]) == 64
