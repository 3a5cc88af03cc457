"""Two broker groups of real processes: what is spread over both, and what becomes of it while one of them is away."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dittomq.client import Client, Message, NotStored, OutcomeHandle, OutcomeUnknown, Receipt
from dittomq.client.sync_client import SyncProducer
from dittomq.errors import Unavailable
from dittomq.testing import LocalCluster
from tests.support.command_line import CommandLine
from tests.support.real_group import RealGroup, shape
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

GROUPS = ("a", "b")
TOPIC = "orders"
QUEUES = 3
PLACES = [(broker, queue) for broker in GROUPS for queue in range(QUEUES)]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two groups of a master and a slave each, a client, and a command line whose current context they are."""

    cluster: LocalCluster
    mq: Client
    command: CommandLine

    def revive(self) -> None:
        """Start what does not run, and wait until all of it works."""
        self.cluster.start()
        self.cluster.wait_in_sync()

    def read(self) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
        """Everything that readers of both groups give, by group and queue."""
        return {place: self._read(*place) for place in PLACES}

    def _read(self, broker: str, queue: int) -> list[tuple[int, bytes]]:
        reader = self.mq.reader(TOPIC, queue, broker=broker, max_messages=4_096)
        return [(message.queue_offset, message.body) for message in reader.messages(until_end=True)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder: Path = tmp_path_factory.mktemp("pair")
    command = CommandLine(folder)
    with LocalCluster(folder / "cluster", replace(shape(slaves=1), brokers=GROUPS)) as cluster, Client(cluster.nameserver) as mq:
        assert command.run("context", "add", "pair", cluster.nameserver).code == 0
        assert command.run("context", "use", "pair").code == 0
        created = command.run("topic", "create", TOPIC, "--queues", str(QUEUES))
        assert (created.code, created.out.split()[:2], created.out.count("created   3 queues")) == (0, ["a", "created"], 2), created
        for slave in ("a/1", "b/1"):
            eventually(lambda slave=slave: TOPIC in RealGroup(cluster, mq).topics(slave), f"{slave} knows the topic")  # type: ignore[misc]
        yield Pair(cluster, mq, command)


def keyed(first: int, count: int) -> list[Message]:
    return [Message(TOPIC, b"%d" % number, order_key=f"k{number % 20}") for number in range(first, first + count)]


def bodies(read: dict[tuple[str, int], list[tuple[int, bytes]]]) -> list[bytes]:
    return [body for messages in read.values() for _, body in messages]


def test_every_message_of_both_groups_is_read_once_and_in_queue_order(pair: Pair) -> None:
    with pair.mq.producer() as producer:
        receipts = producer.publish_many(keyed(10_000, 600))

    read = pair.read()
    for (broker, queue), messages in read.items():
        assert [offset for offset, _ in messages] == list(range(len(messages))), (broker, queue)
    placed = {(receipt.broker, receipt.queue, receipt.queue_offset): b"%d" % (10_000 + at) for at, receipt in enumerate(receipts)}
    assert {place: read[place[:2]][place[2]][1] for place in placed} == placed
    assert len(set(bodies(read))) == len(bodies(read))

    printed = pair.command.run("consume", TOPIC, "--json")
    lines = [json.loads(line) for line in printed.out.splitlines()]
    assert printed.code == 0
    assert [(line["broker"], line["queue"], line["queue_offset"]) for line in lines] == [
        (broker, queue, offset) for (broker, queue), messages in read.items() for offset, _ in messages
    ]


def test_other_group_takes_writes_while_one_master_is_dead(pair: Pair) -> None:
    """Slaves serve what both groups have."""
    before = pair.read()
    with pair.mq.producer(timeout_s=3, retry_s=1, max_waiting_bytes=64 * 1024) as producer:

        def killing() -> Iterator[Message]:
            for number, message in enumerate(keyed(20_000, 4_000)):
                if number == 2_000:
                    pair.cluster.kill("b/0")
                yield message

        outcomes = producer.publish_many(killing(), on_failure="return")
        free = [producer.publish(TOPIC, b"while b is away %d" % number) for number in range(12)]

        # Nothing failed silently: each has a receipt, or is unknown, or surely not stored because b's master does not answer.
        absent = {20_000 + at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, NotStored)}
        unknown = {20_000 + at: outcome for at, outcome in enumerate(outcomes) if isinstance(outcome, OutcomeUnknown)}
        assert absent
        assert all(isinstance(outcome.cause, Unavailable) for outcome in absent.values())
        assert {outcome.handle.broker for outcome in unknown.values()} <= {"b"}
        assert {receipt.broker for receipt in free} == {"a"}
        assert all(outcome.broker == "a" for outcome in outcomes[2_500:] if isinstance(outcome, Receipt))

        # b's slave serves all that was acknowledged.
        acknowledged = {b"%d" % (20_000 + at) for at, outcome in enumerate(outcomes) if isinstance(outcome, Receipt)}
        eventually(lambda: acknowledged <= set(bodies(pair.read())), "the slave of b serves what was acknowledged")
        read = pair.read()
        assert all(read[place][: len(messages)] == messages for place, messages in before.items())
        assert not {b"%d" % number for number in absent} & set(bodies(read))

        # It is back: what was unknown is known, and nothing is there twice.
        pair.revive()
        assert [result.error for result in pair.mq.admin.create_topic(TOPIC, QUEUES)] == [None, None]  # also where a channel backs off
        handles = {b"%d" % number: outcome.handle for number, outcome in unknown.items()}
        fates = {body: eventually(lambda handle=handle: fate(producer, handle), "it is known") for body, handle in handles.items()}  # type: ignore[misc]

    everything = bodies(pair.read())
    assert len(everything) == len(set(everything))
    assert {body for body in handles if body in everything} == {body for body, known in fates.items() if known == "stored"}


def fate(producer: SyncProducer, handle: OutcomeHandle) -> str:
    try:
        producer.resolve(handle)
    except NotStored:
        return "not stored"
    return "stored"


def test_commands_say_what_was_done_where_and_can_be_run_again_until_all_is_done(pair: Pair) -> None:
    pair.cluster.kill("b/0")

    made = pair.command.run("topic", "create", "lines", "--queues", "2")
    described = pair.command.run("topic", "describe", TOPIC)
    status = pair.command.run("ha", "status")
    routed = pair.command.run("route", TOPIC)
    listed = pair.command.run("cluster")
    read = pair.command.run("consume", TOPIC)

    assert made.code == 3
    assert re.search(r"^a  created   2 queues, read and write$", made.out, re.MULTILINE)
    assert re.search(r"^b  FAILED    b/0 at .* does not answer.*; run the same command again when it does$", made.out, re.MULTILINE)
    assert described.code == 0
    assert [line.split()[0::5] for line in described.out.splitlines()[1:]] == [
        [broker, f"{broker}/{'ab'.index(broker)}"] for broker, _ in PLACES
    ]
    assert status.code == 3
    assert "2 broker groups · 1 needs attention" in status.out
    assert "b  NO MASTER ANSWERS" in status.out
    assert routed.code == listed.code == 0
    assert "b/1" in routed.out
    assert "b/1" in listed.out
    assert (read.code, {line.split()[0] for line in read.out.splitlines()}) == (0, {"a", "b"})

    pair.revive()
    again = pair.command.run("topic", "create", "lines", "--queues", "2")
    assert (again.code, again.out.split()[:2]) == (0, ["a", "exists"])

    pair.cluster.stop_node("b/0")  # cleanly: its nameserver knows at once
    deleted = pair.command.run("topic", "delete", "lines")
    assert (deleted.code, deleted.out.splitlines()[0]) == (3, "a  deleted")
    assert deleted.out.splitlines()[1].startswith("b  FAILED    the master of b does not answer: no nameserver knows one now; run")
    for listing in (["cluster"], ["route", TOPIC]):
        said = pair.command.run(*listing)
        assert (said.code, said.one_sentence()[:23]) == (0, "b has no master now and")
    pair.revive()
    rest = pair.command.run("topic", "delete", "lines")
    assert (rest.code, rest.out) == (0, "a  was not there\nb  deleted\n")
    assert pair.command.run("topic", "delete", "lines").code == 1


def test_a_group_that_is_gone_altogether_does_not_keep_the_other_one_from_being_read(pair: Pair) -> None:
    pair.mq.admin.create_topic("few", 1)
    with pair.mq.producer() as producer:
        assert {producer.publish("few", b"%d" % number).broker for number in range(6)} == set(GROUPS)
    for name in ("b/0", "b/1"):
        pair.cluster.kill(name)

    read = pair.command.run("consume", TOPIC)
    only_b = pair.command.run("consume", TOPIC, "--node", "b/1")
    described = pair.command.run("topic", "describe", TOPIC)

    assert read.code == described.code == 3
    assert {line.split()[0] for line in read.out.splitlines()} == {"a"}
    assert read.one_sentence().startswith("b is not read to its end: ")
    assert described.one_sentence().startswith("b/1 at ")
    assert (only_b.code, only_b.out) == (5, "")

    following = pair.command.start("consume", "few", "--follow", "--json", "--max", "6")
    assert following.stderr is not None
    waited_for = following.stderr.readline()
    pair.revive()
    out, _ = following.communicate(timeout=60)

    assert waited_for.startswith("b is waited for: ")
    assert following.returncode == 0
    assert sorted(json.loads(line)["text"] for line in out.splitlines()) == ["0", "1", "2", "3", "4", "5"]
