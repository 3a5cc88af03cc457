"""The files in `config/`: what we write there RocketMQ takes over, and what it writes we do."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dittomq.metadata.formats import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, TableKind, decode, encode
from dittomq.metadata.rows import ConsumerOffset, GroupConfig
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.interop.peer import Outgoing, Peer
from tests.interop.release import Release, release
from tests.interop.rocketmq_visits import VISITS, pay
from tests.interop.written_store import COMMITTED, EVENTS, GROUP, Written, copy, open_store, read_all
from tests.support.real_group import SEGMENT_BYTES, TOPIC
from tests.support.waiting import eventually

pytestmark = pytest.mark.tier("nightly")

VERSION = DataVersion(3, 1_700_000_000_000, 40)
OURS = [TopicConfig("ours", 3, 2, 4), TopicConfig("ours-ordered", 1, 1, 6, order=True)]
READERS = [GroupConfig("readers", retry_queues=2, retry_max_times=5), GroupConfig("no-readers", consume_enable=False, broker_id=7)]
OFFSETS = [ConsumerOffset(TOPIC, "readers", queue, 10 + queue) for queue in range(4)] + [ConsumerOffset(EVENTS, "no-readers", 0, 3)]


def test_what_we_write_is_what_rocketmq_knows_and_writes_again(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    put(folder, TOPICS, OURS)
    put(folder, GROUPS, READERS)
    put(folder, CONSUMER_OFFSETS, OFFSETS)

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        known = {name: decode(kind, peer.config()[name].encode()) for name, kind in KINDS.items()}
        peer.create("theirs", 1)
        peer.close()
    again = {name: decode(kind, (folder / kind.path).read_bytes()) for name, kind in KINDS.items()}

    for tables in (known, again):
        assert essence(OURS) == essence(each for each in tables["topics"].rows.values() if each.name.startswith("ours"))
        assert essence(READERS) == essence(each for each in tables["groups"].rows.values() if "readers" in each.name)
        assert [each for each in tables["offsets"].rows.values() if "readers" in each.group] == sorted(OFFSETS, key=lambda each: each.topic)
    assert "theirs" in again["topics"].rows


def test_rocketmq_consumers_go_on_where_a_group_of_ours_stopped(rocketmq: Release, written: Written, tmp_path: Path) -> None:
    folder = copy(written.clean.folder, tmp_path / "store")
    left = sorted((each.queue, each.queue_offset) for each in written.clean.messages if each.topic == TOPIC)
    left = [(queue, offset) for queue, offset in left if offset >= COMMITTED[queue]]

    with Peer(rocketmq, folder, SEGMENT_BYTES) as peer:
        got = sorted((line["queue"], line["queueOffset"]) for line in peer.consume(GROUP, TOPIC, len(left)))
        peer.close()
    after = decode(CONSUMER_OFFSETS, (folder / CONSUMER_OFFSETS.path).read_bytes())

    assert got == left
    ends = {queue: offset + 1 for queue, offset in left}
    assert {row.queue: row.offset for row in after.rows.values() if row.group == GROUP} == ends


def test_message_consumed_in_rocketmq_is_not_delivered_again(written: Written, tmp_path: Path) -> None:
    """We had the store in between."""
    visited = pay(VISITS["5.3.3"], copy(written.clean.folder, tmp_path / "store"))
    store = open_store(visited.folder)
    read_all(store)
    store.close(clean=True)
    path = visited.folder / DELAY_OFFSETS.path
    progress = decode(DELAY_OFFSETS, path.read_bytes())
    path.write_bytes(encode(DELAY_OFFSETS, progress))

    with Peer(release("5.3.3"), visited.folder, SEGMENT_BYTES) as peer:
        peer.produce(EVENTS, 0, [Outgoing(b"delayed later", delay_level=1)])
        eventually(lambda: any(line["body"] == b"delayed later" for line in peer.read(EVENTS)), "the second one is delivered")
        delivered = [line["body"] for line in peer.read(EVENTS) if line["body"].startswith(b"delayed")]

    assert progress.rows
    assert delivered == [b"delayed", b"delayed later"]


KINDS: Mapping[str, TableKind[Any]] = {"topics": TOPICS, "groups": GROUPS, "offsets": CONSUMER_OFFSETS}


def put(folder: Path, kind: TableKind[Any], rows: Iterable[Any]) -> None:
    """Write the table with these rows besides those that are there."""
    path = folder / kind.path
    held = decode(kind, path.read_bytes()).rows.values() if path.exists() else ()
    path.write_bytes(encode(kind, Table(VERSION, sorted_rows([*held, *rows]))))


def essence(rows: Iterable[Any]) -> list[dict[str, object]]:
    """By name, without the fields that only one side has."""
    shown = [{name: getattr(row, name) for name in row.__dataclass_fields__ if name not in {"other_fields", "attributes"}} for row in rows]
    return sorted(shown, key=lambda row: str(row["name"]))
