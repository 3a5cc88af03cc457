"""Bad input: one sentence that says what to change, the documented exit code, no traceback, nothing half done."""

import json
import socket
from pathlib import Path

import pytest

from dittomq.cli.audited import HISTORY
from spark.audit import history
from tests.integration.cli.conftest import Bench
from tests.support.command_line import CommandLine, Ran

MIB = 1024 * 1024


def config_of(bench: Bench, node: str, **changes: str) -> Path:
    """A copy of a node's configuration file with some text exchanged, which listens on any free ports."""
    text = (bench.cluster.folder / f"{bench.cluster.node(node).file_stem}.toml").read_text()
    for port in bench.cluster.node(node).ports.all():
        text = text.replace(f":{port}", ":0")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = bench.command.folder / "changed.toml"
    path.write_text(text)
    return path


def ended_at_once(bench: Bench, role: str, config: Path) -> Ran:
    """A service that does not come up: its last line on stderr is the sentence."""
    ran = bench.command.run("serve", role, "--config", str(config))
    assert "Traceback" not in ran.err
    return Ran(ran.code, ran.out, ran.err.strip().splitlines()[-1])


def end_of(bench: Bench, topic: str) -> int:
    described = json.loads(bench.command.run("topic", "describe", topic, "--json").out)
    return sum(queue["max_offset"] for group in described["groups"] for queue in group["queues"])


def test_an_unknown_configuration_key_is_named_with_the_nearest_known_one(bench: Bench) -> None:
    ran = ended_at_once(bench, "master", config_of(bench, "a/0", segment_bytes="segment_byte"))

    assert ran.code == 64
    assert "store.segment_byte" in ran.err
    assert "segment_bytes" in ran.err
    assert "changed.toml:" in ran.err


def test_publishing_to_a_topic_that_does_not_exist_names_the_nearest(bench: Bench) -> None:
    ran = bench.command.run("publish", "order", "orders.jsonl")

    assert ran.code == 1
    assert ran.one_sentence().startswith('topic "order" does not exist')
    assert 'did you mean "orders"? Create it: dittomq topic create order' in ran.err


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("arguments", [("consume",), ("route",), ("topic", "describe"), ("topic", "delete")])
def test_every_command_refuses_a_topic_that_does_not_exist(bench: Bench, arguments: tuple[str, ...]) -> None:
    ran = bench.command.run(*arguments, "nothing")

    assert ran.code == 1
    assert "does not exist" in ran.out + ran.err
    assert "Traceback" not in ran.err


def test_a_message_that_is_too_large_leaves_nothing_of_its_file_behind(bench: Bench) -> None:
    before = end_of(bench, "orders")
    (bench.command.folder / "large").write_bytes(b"small\n" + b"x" * (4 * MIB + 1) + b"\n")

    ran = bench.command.run("publish", "orders", "large")

    assert ran.code == 1
    assert "line 2" in ran.one_sentence()
    assert "the limit is 4,194,304" in ran.err
    assert end_of(bench, "orders") == before


def test_a_record_that_is_not_json_leaves_nothing_of_its_file_behind(bench: Bench) -> None:
    before = end_of(bench, "orders")
    (bench.command.folder / "mixed").write_bytes(b'{"id": 1}\nnot json\n')

    ran = bench.command.run("publish", "orders", "mixed", "--keys", ".id")

    assert ran.code == 1
    assert "line 2" in ran.one_sentence()
    assert end_of(bench, "orders") == before


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("how", [("1000000",), (str(2**58),), ("1000000", "--follow")])
def test_an_offset_out_of_range_says_what_the_queue_holds(bench: Bench, how: tuple[str, ...]) -> None:
    ran = bench.command.run("consume", "orders", "--queue", "0", "--from", *how)

    assert ran.code == 1
    assert "is outside [0, " in ran.one_sentence()


def test_a_queue_that_does_not_exist_says_which_do(bench: Bench) -> None:
    ran = bench.command.run("consume", "orders", "--queue", "4")

    assert (ran.code, ran.one_sentence()) == (1, 'topic "orders" has queues 0 to 3, not 4')


def test_bytes_that_are_not_text_go_in_and_come_out_as_they_are(bench: Bench) -> None:
    assert bench.command.run("topic", "create", "bytes", "--queues", "1").code == 0
    (bench.command.folder / "bytes").write_bytes(b"\x00\xff\x10\xab\x07\n")

    assert bench.command.run("publish", "bytes", "bytes").code == 0

    assert bench.command.run("consume", "bytes").out.rstrip().endswith("<5 bytes, not text: 00 ff 10 ab 07>")
    assert json.loads(bench.command.run("consume", "bytes", "--json").out)["body"] == "AP8Qqwc="


@pytest.mark.tier("nightly")
@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", ".", "", "x" * 128, "naïve", "a b", "semi;colon", "nul\x1b[31m", "new\nline"])
def test_a_hostile_topic_name_is_refused_and_makes_nothing(bench: Bench, name: str) -> None:
    ran = bench.command.run("topic", "create", "--", name)

    assert ran.code in {1, 64}
    sentence = ran.one_sentence()
    assert "\x1b" not in sentence
    topics = json.loads(bench.command.run("topic", "list", "--json").out)["topics"]
    assert {topic["topic"] for topic in topics} <= {"orders", "bytes"}


def test_repair_with_nothing_to_verify_says_so(bench: Bench) -> None:
    """A repair of an unknown node is refused."""
    group = {"broker": "a", "verdict": "PASS", "findings": [], "damaged": [], "low_offset": 0, "cut_offset": 9}
    group |= {"compared_bytes": 9, "not_checked_bytes": 0}
    times = {"started_time": "2026-11-20T02:00:00.000Z", "ended_time": "2026-11-20T02:31:00.000Z"}
    run = {"run": "2026-11-20T02-00-00.000Z", "cluster": bench.cluster.settled().cluster, "verdict": "PASS", "exit_status": 0}
    history.keep(bench.command.folder / HISTORY.parent, {**run, **times, "groups": [group]})

    named = (("a/1",), ("nonsense/7",), ("--broker", "nonsense"), ("",))
    known, *unknown = (bench.command.run("repair", *name, "--run", "last") for name in named)

    assert (known.code, known.out) == (0, "a/1  nothing was verified: that audit found nothing wrong on it\n")
    assert [ran.code for ran in unknown] == [1, 1, 1]
    assert [ran.one_sentence().partition(" is not registered")[0] for ran in unknown] == [
        'node: "nonsense/7"',
        'broker: "nonsense"',
        'node: ""',
    ]


@pytest.mark.tier("nightly")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish",), "Missing argument"),
        (("publish", "orders", "absent.jsonl"), "absent.jsonl: cannot be read"),
        (("publish", "orders", "orders.jsonl", "--ack", "SOMETIMES"), "SOMETIMES"),
        (("publish", "orders", "orders.jsonl", "--order-key", "customer"), "not a JSON path"),
        (("publish", "orders", "orders.jsonl", "--timeout", "5"), "not a duration"),
        (("consume", "orders", "--from", "somewhere"), "earliest, latest, an offset"),
        (("ha", "status", "--wait", "heaven"), "in-sync is"),
        (("topic", "create", "orders", "--queues", "many"), "--queues"),
        (("unheard-of",), "unheard-of"),
        (("cluster", "--unheard-of"), "--unheard-of"),
        (("cluster", "--nameserver", "nowhere"), "host:port"),
        (("context", "use", "lokal"), 'did you mean "local"'),
        (("local", "status", "--pid", "b/0"), "b/0"),
        (("log", "digest", "absent", "-o", "x.dmd", "--bytes", "1-2"), "is no range"),
        (("audit", "compare", "orders.jsonl", "absent.dmd"), "orders.jsonl"),
        (("repair", "a/1", "--bytes", "²..³"), "is no range"),
    ],
)
def test_wrong_usage_ends_with_64_and_names_what_is_wrong(bench: Bench, arguments: tuple[str, ...], said: str) -> None:
    ran = bench.command.run(*arguments)

    assert ran.code == 64
    assert said in ran.one_sentence()


def test_a_cluster_that_does_not_answer_is_unavailable(bench: Bench) -> None:
    with socket.socket() as deaf:  # nobody else gets the port, and nobody listens on it
        deaf.bind(("127.0.0.1", 0))
        ran = bench.command.run("cluster", "--nameserver", f"127.0.0.1:{deaf.getsockname()[1]}")

    assert ran.code == 5
    assert "does not answer" in ran.one_sentence()


def test_without_a_cluster_the_ways_to_name_one_are_told(tmp_path: Path) -> None:
    ran = CommandLine(tmp_path).run("cluster")

    assert ran.code == 64
    assert "dittomq local up" in ran.one_sentence()


def test_a_store_that_is_none_is_refused_by_name(bench: Bench) -> None:
    (bench.command.folder / "empty").mkdir()

    for command in ("dump", "verify"):
        ran = bench.command.run("log", command, "empty")
        assert ran.code == 1
        assert "empty" in ran.one_sentence()


def test_a_second_cluster_in_the_same_folder_is_refused(bench: Bench) -> None:
    ran = bench.command.run("local", "up", "--slaves", "3")

    assert ran.code == 64
    assert "dittomq local down" in ran.one_sentence()


def test_a_damaged_state_of_the_local_cluster_is_refused_by_name(tmp_path: Path) -> None:
    state = tmp_path / ".dittomq" / "local.json"
    state.parent.mkdir()
    state.write_text("{")

    ran = CommandLine(tmp_path).run("local", "up")

    assert ran.code == 64
    assert "local.json" in ran.one_sentence()
    assert state.read_text() == "{"


def test_a_reader_that_has_seen_enough_ends_the_command_without_a_word(bench: Bench) -> None:
    ran = bench.command.shell("set -o pipefail; dittomq consume orders --json | head -n 1")

    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["topic"] == "orders"


@pytest.mark.parametrize("endless", ["consume orders --follow", "ha status --watch"])
def test_a_reader_that_has_gone_ends_a_command_that_has_no_end(bench: Bench, endless: str) -> None:
    ran = bench.command.shell(f"set -o pipefail; dittomq {endless} | true")

    assert (ran.code, ran.err) == (0, "")
