"""A store that RocketMQ wrote from its first byte on, read and opened here."""

import base64
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dittomq.cli.app import run
from dittomq.client import Client
from dittomq.errors import StoreOpenFailed
from dittomq.testing import LocalCluster
from dittomq.testing.state import NAMESERVER
from tests.interop.message_view import Seen, in_log_order
from tests.interop.peer import RETRY, Outgoing, Peer
from tests.interop.release import release
from tests.interop.rocketmq_visits import TOPICS, VISITS, Visited, pay
from tests.interop.written_store import Written, copy, open_store, read_all
from tests.support.real_group import MASTER, SEGMENT_BYTES, TOPIC
from tests.support.sequence_difference import first_difference
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.tier("nightly")

COMPRESSED = 0x1
SLAVE = "a/1"


@pytest.fixture(scope="module", params=VISITS)
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visited:
    folder = tmp_path_factory.mktemp("theirs") / "store"
    folder.mkdir()
    return pay(VISITS[request.param], folder)


def test_log_dump_shows_every_message_as_the_java_client_reads_it(theirs: Visited, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(theirs.folder), "--json"]) == 0

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first_difference(dumped(lines), theirs.messages) == ""
    assert theirs.ends_at(max(line["end_offset"] for line in lines if line["problem"] is None))


def test_log_verify_finds_it_whole(theirs: Visited, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "verify", str(theirs.folder), "--json"]) == 0

    report = json.loads(capsys.readouterr().out)
    assert report["whole"]
    assert theirs.ends_at(report["end_offset"])
    assert report["counts"].keys() <= ({"torn end"} if theirs.visit.killed else set())


def test_killed_rocketmqs_store_is_opened_and_every_message_is_read(theirs: Visited, tmp_path: Path) -> None:
    """So is what was acknowledged just before the kill."""
    store = open_store(copy(theirs.folder, tmp_path / "store"))

    found = read_all(store)
    store.close(clean=True)

    assert first_difference([each for each in found if each.topic in {*TOPICS, RETRY}], theirs.messages) == ""
    assert theirs.load.judge(found) == ""


@pytest.mark.parametrize("theirs", ["5.3.3", "4.9.7"], indirect=True)
def test_a_group_goes_on_with_it_and_the_slave_gets_its_whole_history(theirs: Visited, written: Written, tmp_path: Path) -> None:
    cluster = LocalCluster(copy(written.cluster, tmp_path / "cluster"))
    for node in (NAMESERVER, MASTER, SLAVE):  # the record of the group, too: none of its members is there any more
        shutil.rmtree(cluster.data_dir(node))
    copy(theirs.folder, cluster.data_dir(MASTER))

    with cluster, Client(cluster.nameserver) as mq:
        with mq.producer(timeout_s=PATIENCE_S) as producer:  # its slave copies the whole history first
            receipt = producer.publish(TOPIC, b"ours", queue=0)
        page = mq.reader(TOPIC, 0, node=SLAVE).pull(receipt.queue_offset, at_least=receipt.token, wait_s=PATIENCE_S)
        assert page.messages, "it has it all"
        # Queues that its log holds: the topic's table may still be on its way.
        held = sorted({each.queue for each in theirs.messages if each.topic == TOPIC})
        read = [message for queue in held for message in mq.reader(TOPIC, queue, node=SLAVE).messages(until_end=True)]
    slave = open_store(cluster.data_dir(SLAVE))
    epoch_history = slave.epoch_history
    slave.close(clean=True)

    found = in_log_order([Seen.stored(message) for message in read])
    assert first_difference(found[:-1], [each for each in theirs.messages if each.topic == TOPIC]) == ""
    assert (found[-1].body, found[-1].position) == (b"ours", receipt.physical_offset)
    assert epoch_history[0].start == theirs.end


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"storeType": "defaultRocksDB"}, "holds RocksDB queues, which this version does not read"),
        (
            {"messageStorePlugIn": "org.apache.rocketmq.tieredstore.TieredMessageStore"},
            "belongs to a tiered store, which this version does",
        ),
        ({"configManagerVersion": "v2"}, "config/rdb/ holds RocksDB tables, which this version does not read"),
    ],
    ids=["RocksDB queues", "tiered store", "RocksDB tables"],
)
def test_a_store_of_another_kind_is_refused_by_name(settings: dict[str, str], said: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    with Peer(release("5.3.3"), folder, SEGMENT_BYTES, **settings) as peer:
        peer.create(TOPIC, 1)
        peer.produce(TOPIC, 0, [Outgoing(b"in a store of another kind")])
        peer.close()

    with pytest.raises(StoreOpenFailed, match=said):
        open_store(folder)


def dumped(lines: list[dict[str, Any]]) -> Iterator[Seen]:
    """What `log dump --json` printed of the topics that the Java client read; the kill may have torn a record of the broker's own."""
    for line in lines:
        if line["sort"] != "record" or line["problem"] is not None or line["topic"] not in {*TOPICS, RETRY}:
            continue
        body = base64.b64decode(line["body"])
        yield Seen.pulled(
            {
                "position": line["start_offset"],
                "size": line["end_offset"] - line["start_offset"],
                "topic": line["topic"],
                "queue": line["queue"],
                "queueOffset": line["queue_offset"],
                "storeMs": line["store_ms"],
                "bornMs": line["born_ms"],
                "flag": line["flag"],
                "body": zlib.decompress(body) if line["system_flag"] & COMPRESSED else body,
                "tag": line["properties"].get("TAGS"),
                "keys": line["properties"].get("KEYS"),
                "properties": line["properties"],
            }
        )
