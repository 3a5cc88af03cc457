"""A publish that ends before its lines do: what became of those that were sent is said all the same."""

import json
import signal
import subprocess

import pytest

from tests.integration.cli.conftest import Bench
from tests.support.waiting import eventually


def messages(bench: Bench, topic: str) -> int:
    described = json.loads(bench.command.run("topic", "describe", topic, "--json").out)
    return sum(queue["max_offset"] for group in described["groups"] for queue in group["queues"])


def test_an_interrupted_publish_says_what_became_of_what_it_had_sent(bench: Bench) -> None:
    before = messages(bench, "orders")
    publish = bench.command.start("publish", "orders", "--json", stdin=subprocess.PIPE)
    assert publish.stdin is not None
    publish.stdin.write("first\nsecond\nthird, without an end")
    publish.stdin.flush()
    eventually(lambda: messages(bench, "orders") == before + 2, "two lines stored")

    ran = bench.command.interrupt(publish, signal.SIGINT)

    told = json.loads(ran.out)
    assert "interrupted" in ran.one_sentence()
    assert told["stored"] + told["unknown"] == 2
    assert ran.code == (4 if told["unknown"] else 130)


@pytest.mark.parametrize("how", ["publish orders <&-", "publish orders /proc/self/mem"])
def test_input_that_cannot_be_read_is_named_and_nothing_is_sent(bench: Bench, how: str) -> None:
    before = messages(bench, "orders")

    ran = bench.command.shell(f"dittomq {how}")

    assert ran.code in {1, 64}
    assert "input" in ran.one_sentence() or "cannot be read" in ran.err
    assert messages(bench, "orders") == before
