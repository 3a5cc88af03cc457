"""Stores of real RocketMQ brokers, read as RocketMQ reads them."""

import hashlib
import ipaddress
from pathlib import Path
from typing import Any

import pytest

from dittomq.commitlog.decoding import Record
from dittomq.commitlog.format import Host
from dittomq.commitlog.inspect import items, open_on_disk
from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.commitlog.verifying import Kind, Report, verify
from dittomq.commitlog.walk import Sort
from dittomq.doors.chance import os_chance
from dittomq.errors import UnreadableStore
from tests.support import vectors

VARIANTS = ["controller-5.3.3", "crc-5.3.3", "ha-4.9.7", "ipv6-5.3.3", "killed-5.3.3", "plain-4.9.7", "plain-5.3.3", "queues-5.3.3"]


def told(record: Record, start: int) -> dict[str, object]:
    """A record in the words of RocketMQ's decoder."""
    return {
        "position": start,
        "totalSize": record.size,
        "magic": f"{record.magic:08x}",
        "topic": record.topic,
        "queueId": record.queue,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "flag": record.flag,
        "sysFlag": record.system_flag,
        "bodyCRC": record.body_crc,
        "storedBodyLength": len(record.body),
        "storedBodySha256": hashlib.sha256(record.body).hexdigest(),
        "bornTimestamp": record.born_ms,
        "bornHost": host(record.born_host),
        "storeTimestamp": record.store_ms,
        "storeHost": host(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "properties": dict(record.properties),
    }


def host(found: Host) -> list[object]:
    return [ipaddress.ip_address(found.address), found.port]


def normal(line: dict[str, Any]) -> dict[str, Any]:
    for name in ("bornHost", "storeHost"):
        address, port = line[name]
        line[name] = [ipaddress.ip_address(str(address).partition("%")[0]), port]
    return line


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_record_is_read_as_rocketmq_reads_it(variant: str, tmp_path: Path) -> None:
    store = open_on_disk(OsStorage(vectors.unpack(variant, tmp_path) / "master"), variant)
    expected = [normal(line) for line in vectors.lines(variant, "records-master.jsonl.xz") if "topic" in line]

    ours = [told(item.record, item.start) for item in items(store) if item.record is not None]

    keys = ours[0].keys()
    assert len(ours) == len(expected)
    for mine, theirs in zip(ours, expected, strict=True):
        assert mine == {key: theirs[key] for key in keys}


@pytest.mark.parametrize("variant", VARIANTS)
def test_marks_lie_where_rocketmq_sees_blanks(variant: str, tmp_path: Path) -> None:
    store = open_on_disk(OsStorage(vectors.unpack(variant, tmp_path) / "master"), variant)
    blanks = [line["position"] for line in vectors.lines(variant, "records-master.jsonl.xz") if "blank" in line]

    assert [item.start for item in items(store) if item.sort is Sort.MARK] == blanks


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("role", ["master", "slave"])
def test_a_store_of_rocketmq_is_whole(variant: str, role: str, tmp_path: Path) -> None:
    report = report_of(variant, role, tmp_path)

    assert report.whole, report.findings
    assert report.records > 0


@pytest.mark.parametrize("variant", ["killed-5.3.3", "killed-4.9.7"])
def test_the_torn_record_that_rocketmq_keeps_is_not_counted(variant: str, tmp_path: Path) -> None:
    opened = vectors.lines(variant, "opened-slave.jsonl.xz")[0]

    report = report_of(variant, "slave", tmp_path)

    assert report.counts == {Kind.TORN_END: 1}
    assert report.end < opened["recoveredMaxPhyOffset"], "RocketMQ takes the torn record for whole"


def test_the_divergence_that_rocketmq_never_noticed_is_found(tmp_path: Path) -> None:
    assert report_of("diverged-5.3.3", "master", tmp_path / "m").whole

    report = report_of("diverged-5.3.3", "slave", tmp_path / "s")

    assert report.counts[Kind.DAMAGED] == 1
    assert report.findings[0].position == 1_318_151


def test_a_store_of_rocketmq_that_is_refused_is_left_alone(tmp_path: Path) -> None:
    folder = vectors.unpack("plain-5.3.3", tmp_path) / "master"
    before = sorted(str(path) for path in folder.rglob("*"))

    with pytest.raises(UnreadableStore, match="configure the size it was made with"):
        Store.open(OsStorage(folder), StoreOptions(), chance=os_chance(), wall_ms=0)

    assert sorted(str(path) for path in folder.rglob("*") if path.name != "lock") == [path for path in before if not path.endswith("lock")]


def test_queues_of_another_kind_are_refused_by_name(tmp_path: Path) -> None:
    folder = vectors.unpack("queues-5.3.3", tmp_path) / "master"

    with pytest.raises(UnreadableStore, match="batch queues"):
        Store.open(OsStorage(folder), StoreOptions(), chance=os_chance(), wall_ms=0)


def report_of(variant: str, role: str, tmp_path: Path) -> Report:
    return verify(open_on_disk(OsStorage(vectors.unpack(variant, tmp_path) / role), variant))
