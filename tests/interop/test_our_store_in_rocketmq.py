"""A store of ours, opened by a RocketMQ broker: everything is there, and RocketMQ's own checks hold."""

import json
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.records.format import Host
from dittomq.testing import LocalCluster
from tests.interop.message_view import Seen, in_log_order
from tests.interop.peer import Peer, Refused
from tests.interop.release import Release, release
from tests.interop.rocketmq_visits import CLOSED, VISITS
from tests.interop.written_store import AGAIN, DELETED, EVENTS, TOPICS, Left, Written, copy, log_bytes, open_store, read_all
from tests.support.real_group import MASTER, SEGMENT_BYTES, TOPIC
from tests.support.sequence_difference import first_difference
from tests.support.stores import frame, open_epoch

pytestmark = pytest.mark.tier("nightly")


@pytest.fixture(scope="module", params=["killed", "clean"])
def left(request: pytest.FixtureRequest, written: Written) -> Left:
    return written.left(request.param)


@pytest.fixture(scope="module", params=CLOSED)
def opened(request: pytest.FixtureRequest, left: Left, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    visit = VISITS[request.param]
    store = copy(left.folder, tmp_path_factory.mktemp("opened") / "store")
    with Peer(release(visit.version), store, SEGMENT_BYTES, **visit.settings) as peer:
        yield peer


def test_every_acknowledged_message_is_read_by_the_java_client_as_it_was_published(opened: Peer, left: Left) -> None:
    found = in_log_order([Seen.pulled(line) for topic in TOPICS if topic != AGAIN for line in opened.read(topic)])

    assert first_difference(found, [each for each in left.messages if each.topic != AGAIN]) == ""
    assert (opened.start, opened.end) == (0, left.end)


def test_rocketmq_skips_a_recreated_topic_unless_read_from_our_minimum(opened: Peer, left: Left) -> None:
    """The topic was made again in the log's first segment."""
    new = [each for each in left.messages if each.topic == AGAIN]
    assert {each.position // SEGMENT_BYTES for each in new} == {0}

    from_its_minimum = opened.read(AGAIN)
    from_ours = [Seen.pulled(line) for line in opened.read(AGAIN, new[0].queue_offset)]

    assert from_its_minimum == []
    assert first_difference(from_ours, new) == ""


def test_the_topics_have_their_queues_and_permissions(opened: Peer) -> None:
    known = opened.topics()

    assert {name: known[name]["readQueues"] for name in TOPICS} == TOPICS
    assert {name: known[name]["writeQueues"] for name in TOPICS} == TOPICS
    assert {known[name]["permission"] for name in TOPICS} == {6}
    assert DELETED not in known


def test_every_message_names_the_address_of_the_node_that_stored_it(opened: Peer, written: Written) -> None:
    address = LocalCluster(written.cluster).node(MASTER).address

    hosts = {(line["storeHost"], line["bornHost"]) for topic in TOPICS for line in opened.read(topic)}

    assert hosts == {(address, address)}


def test_rocketmq_reports_no_error_in_the_store(opened: Peer) -> None:
    assert [line for line in opened.complaints() if " ERROR " in line] == []


@pytest.mark.parametrize(("key", "born_ms"), [("key-42", [42]), ("one", [13]), ("schlüssel", [14]), ("key-199", [199]), ("nobody's", [])])
def test_a_message_is_found_by_each_of_its_keys(opened: Peer, key: str, born_ms: list[int]) -> None:
    assert [line["bornMs"] for line in opened.find(TOPIC, key)] == born_ms


def test_the_store_is_measured_and_whole_beside_the_running_broker(opened: Peer, left: Left, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "stats", str(opened.store), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["verified"]["end_offset"] == left.end


def test_opening_and_reading_changes_no_byte_of_the_log(opened: Peer, left: Left) -> None:
    opened.read(EVENTS)

    assert log_bytes(opened.store) == log_bytes(left.folder)


def test_rocketmq_reads_records_of_an_ipv6_node(rocketmq: Release, tmp_path: Path) -> None:
    """It names the node's address."""
    folder = tmp_path / "store"
    store = open_store(folder, host=Host(ip_address("2001:db8::7").packed, 10_911))
    open_epoch(store)
    store.append([frame(b"one"), frame(*(b"one of many, %d" % number for number in range(60)))], 1_000)
    store.persist_recovery_point(store.sync(), store.end)
    ours = read_all(store)
    store.close(clean=True)

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        peer.create("orders", 1)
        lines = peer.read("orders")
        assert peer.end == ours[-1].end

    assert first_difference([Seen.pulled(line) for line in lines], ours) == ""
    assert {line["storeHost"] for line in lines} == {line["bornHost"] for line in lines} == {"2001:db8:0:0:0:0:0:7:10911"}


def test_rocketmq_computes_the_checksum_that_every_record_has(written: Written, tmp_path: Path) -> None:
    rocketmq = release("5.3.3")  # 4.9 knows no record checksum
    store = copy(written.killed.folder, tmp_path / "store")  # after a kill it scans the log from its first byte

    with Peer(rocketmq, store, SEGMENT_BYTES, forceVerifyPropCRC="true") as peer:
        assert peer.end == written.killed.end


def test_a_store_that_is_open_here_is_refused_there(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    store = open_store(folder)
    try:
        with pytest.raises(Refused, match="Lock failed"):
            Peer(rocketmq, folder, SEGMENT_BYTES)
        assert first_difference(read_all(store), written.clean.messages) == ""
    finally:
        store.close(clean=True)
