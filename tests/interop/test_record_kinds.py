"""Records of every kind, written by RocketMQ's store: here, back there, and here again."""

import base64
import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from dittomq.cli.app import run
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.offline.open_store import items, open_on_disk
from dittomq.commitlog.queues.key_format import KeySizes
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.epoch_history import FOREIGN
from tests.interop.message_view import Seen
from tests.interop.peer import Line, Peer
from tests.interop.record_kinds import KINDS_TOPIC, every_kind
from tests.interop.release import Release, release
from tests.interop.rocketmq_visits import VISITS
from tests.interop.written_store import copy, log_bytes, open_store, read_all
from tests.support.real_group import SEGMENT_BYTES
from tests.support.record_round_trip import not_written_again
from tests.support.sequence_difference import first_difference
from tests.support.stores import frame, open_epoch

pytestmark = pytest.mark.tier("nightly")

SIZES = KeySizes(slots=500, entries=2_000)
INDEX: dict[str, int | str] = {"maxHashSlotNum": SIZES.slots, "maxIndexNum": SIZES.entries}
NOT_IN_QUEUES = {0x4, 0xC}


@dataclass(frozen=True, slots=True)
class Filled:
    """A store that RocketMQ closed; `records` as its store reads them, `read` as its client got them."""

    folder: Path
    rocketmq: Release
    settings: dict[str, int | str]
    records: list[Line]
    read: list[Line]
    end: int


@pytest.fixture(scope="module", params=["5.3.3", "5.3.3-with-record-checksums", "4.9.7"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    visit = VISITS[request.param]
    folder = tmp_path_factory.mktemp("kinds") / "store"
    folder.mkdir()
    settings = {**INDEX, **visit.settings}
    with Peer(release(visit.version), folder, SEGMENT_BYTES, **settings) as peer:
        peer.create(KINDS_TOPIC, 1)
        records = peer.store_records(list(every_kind(visit.version)))
        read = peer.read(KINDS_TOPIC)
        end = peer.end
        peer.close()
    return Filled(folder, release(visit.version), settings, records, read, end)


def test_log_dump_shows_every_field_of_each_as_rocketmqs_store_reads_it(filled: Filled, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["log", "dump", str(filled.folder), "--json"]) == 0

    dumped = {line["start_offset"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    shown = [in_rocketmqs_words(dumped[each["position"]]) for each in filled.records]
    assert first_difference(shown, [normal(each) for each in filled.records]) == ""


def test_each_is_written_here_from_its_fields_byte_for_byte_as_rocketmq_wrote_it(filled: Filled) -> None:
    found = [item for item in items(open_on_disk(OsStorage(filled.folder), str(filled.folder))) if item.record is not None]

    assert {item.start for item in found} >= {line["position"] for line in filled.records}
    assert not_written_again(filled.folder, found) == []


def test_every_one_that_a_queue_knows_is_read_here_as_the_java_client_reads_it(filled: Filled, tmp_path: Path) -> None:
    store = open_store(copy(filled.folder, tmp_path / "store"))

    found = [each for each in read_all(store) if each.topic == KINDS_TOPIC]
    store.close(clean=True)

    assert first_difference(found, [Seen.pulled(line) for line in filled.read]) == ""
    assert [each.position for each in found] == [line["position"] for line in filled.records if in_the_queue(line)]


def test_queues_and_key_index_built_from_the_log_alone_are_rocketmqs_byte_for_byte(filled: Filled, tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.parent.mkdir()
    copy(filled.folder / "commitlog", log)
    store = Store.open(
        OsStorage(log.parent),
        StoreOptions(segment_bytes=SEGMENT_BYTES, min_free_bytes=0, key_sizes=SIZES),
        chance=os_chance(), wall_ms=OsClock().wall_ms(),
    )  # fmt: skip

    store.dispatch(store.end)
    store.close(clean=True)

    assert contents(log.parent / "index") == contents(filled.folder / "index")
    for topic in {line["topic"] for line in filled.records}:
        ours, theirs = (contents(folder / "consumequeue" / topic / "0") for folder in (log.parent, filled.folder))
        assert ours == theirs, topic


def test_a_prepared_message_is_in_the_index_and_one_that_was_rolled_back_is_not(filled: Filled, tmp_path: Path) -> None:
    folder = copy(filled.folder, tmp_path / "store")
    store = open_store(folder)  # with RocketMQ's default sizes: queues and index are built anew
    read_all(store)
    store.close(clean=True)

    with Peer(filled.rocketmq, folder, SEGMENT_BYTES) as peer:
        found = {flag: bool(peer.find(KINDS_TOPIC, f"{flag}-0-49152-49152")) for flag in "048c"}

    assert found == {"0": True, "4": True, "8": True, "c": False}


def test_a_store_with_all_of_them_goes_there_and_comes_back(filled: Filled, tmp_path: Path) -> None:
    folder = copy(filled.folder, tmp_path / "store")
    store = open_store(folder)
    open_epoch(store)
    store.append([frame(b"ours, %d" % number, topic=KINDS_TOPIC) for number in range(5)], OsClock().wall_ms())
    store.persist_recovery_point(store.sync(), store.end)
    before = read_all(store)
    ours_end = store.end
    store.close(clean=True)

    with Peer(filled.rocketmq, folder, SEGMENT_BYTES, **filled.settings) as peer:
        there = [Seen.pulled(line) for line in peer.read(KINDS_TOPIC)]
        appended = peer.store_records(list(every_kind(filled.rocketmq.version)))
        read = [Seen.pulled(line) for line in peer.read(KINDS_TOPIC)]
        end = peer.end
        peer.close()
    log = log_bytes(folder)
    again = open_store(folder)
    found = read_all(again)
    epoch_history, stop = again.epoch_history, again.end
    again.close(clean=True)

    assert first_difference(there, [each for each in before if each.topic == KINDS_TOPIC]) == ""
    assert first_difference([each for each in found if each.topic == KINDS_TOPIC], read) == ""
    assert len(read) == len(there) + sum(1 for line in appended if in_the_queue(line))
    assert (stop, log_bytes(folder)) == (end, log)
    assert [(entry.master_id == FOREIGN, entry.start) for entry in epoch_history] == [(False, filled.end), (True, ours_end)]


def in_the_queue(line: Line) -> bool:
    return line["topic"] == KINDS_TOPIC and line["systemFlag"] & 0xC not in NOT_IN_QUEUES


def in_rocketmqs_words(line: Line) -> Line:
    return {
        "topic": line["topic"],
        "queue": line["queue"],
        "queueOffset": line["queue_offset"],
        "position": line["start_offset"],
        "size": line["end_offset"] - line["start_offset"],
        "flag": line["flag"],
        "systemFlag": line["system_flag"],
        "bornMs": line["born_ms"],
        "bornHost": host(line["born_host"]),
        "storeMs": line["store_ms"],
        "storeHost": host(line["store_host"]),
        "reconsumeTimes": line["reconsume_times"],
        "preparedOffset": line["prepared_offset"],
        "tag": line["properties"].get("TAGS"),
        "keys": line["properties"].get("KEYS"),
        "properties": line["properties"],
        "body": base64.b64decode(line["body"]),
    }


def normal(line: Line) -> Line:
    return {**line, "bornHost": host(line["bornHost"]), "storeHost": host(line["storeHost"])}


def host(text: str) -> tuple[object, int]:
    """An address as a value: both sides write IPv6 their own way."""
    address, _, port = text.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")), int(port)


def contents(folder: Path) -> list[bytes]:
    """What its files hold, in the order of their names."""
    return [path.read_bytes() for path in sorted(folder.iterdir())]
