"""What running RocketMQ brokers said to their slaves: the log as their HA link carried it, and the tables as a slave was answered."""

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.store import Store, StoreOptions
from dittomq.copies import LogStart
from dittomq.doors.chance import os_chance
from dittomq.doors.clock import OsClock
from dittomq.metadata.formats import CONSUMER_OFFSETS, DELAY_OFFSETS, GROUPS, TOPICS, TableKind, decode
from dittomq.offsets import PhysicalOffset
from tests.support import vectors
from tests.support.sequence_difference import first_difference
from tests.support.table_round_trip import assert_read_and_written
from tests.vectors.conftest import Line
from tests.vectors.log_dump import dump, in_rocketmqs_words, normal

VARIANTS = ["ha-4.9.7", "ha-5.3.3"]
SEGMENT_BYTES = 262_144
MOST_OF_A_FRAME = 32_768
_HA_HEADER = struct.Struct(">qi")
# By RocketMQ's request codes.
TABLES: dict[int, TableKind[Any]] = {21: TOPICS, 43: CONSUMER_OFFSETS, 45: DELAY_OFFSETS, 201: GROUPS}
REGISTER_BROKER = 103


class Frame(NamedTuple):
    """A piece of the log, cut anywhere, as a RocketMQ master sends it; a heartbeat has no data."""

    offset: int
    data: bytes


class Answered(NamedTuple):
    """A request, and the body of its answer."""

    code: int
    asked: bytes
    answer: bytes


@pytest.mark.parametrize("variant", VARIANTS)
def test_log_streamed_over_two_connections_is_the_masters(
    variant: str, unpacked: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte and record by record."""
    again = frames(variant, "ha-1")
    there = again[0].offset  # the relay had taken more from the master than the slave got
    first = [Frame(offset, data[: there - offset]) for offset, data in frames(variant, "ha-0") if offset < there]

    end = received([*first, *again], 0, tmp_path / "store")

    assert there > 0
    assert_is_the_masters(tmp_path / "store", unpacked(variant) / "master", end)
    assert_is_the_masters(tmp_path / "store", unpacked(variant) / "slave", end)
    assert_reads_as_rocketmq_does(variant, tmp_path / "store", (0, end), capsys)


@pytest.mark.parametrize("variant", VARIANTS)
def test_log_of_a_late_slave_begins_at_the_masters_last_segment(
    variant: str, unpacked: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is read from there."""
    sent = frames(variant, "ha-fresh-0")
    start = next(frame.offset for frame in sent if frame.data)

    end = received([frame for frame in sent if frame.data], start, tmp_path / "store")

    assert start == max(
        int(path.name) for path in (unpacked(variant) / "master" / "commitlog").iterdir() if path.read_bytes().rstrip(b"\0")
    )
    assert_is_the_masters(tmp_path / "store", unpacked(variant) / "master", end)
    assert_reads_as_rocketmq_does(variant, tmp_path / "store", (start, end), capsys)


def test_every_recorded_table_is_read_and_the_last_is_the_masters(
    unpacked: Callable[[str], Path],
) -> None:
    """Nothing is lost."""
    answers = [each for number in (0, 1) for each in exchanges("ha-5.3.3", f"remoting-slave-master-{number}") if each.code in TABLES]

    for code, _, answer in answers:
        assert_read_and_written(TABLES[code], answer)
    last = {code: decode(TABLES[code], answer) for code, _, answer in answers}
    assert last.keys() == TABLES.keys()
    for code, table in last.items():
        kept = decode(TABLES[code], (unpacked("ha-5.3.3") / "master" / TABLES[code].path).read_bytes())
        assert table.rows, TABLES[code].path
        assert {key: kept.rows.get(key) for key in table.rows} == dict(table.rows)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_topics_that_a_broker_registered_are_read_with_nothing_lost(variant: str, unpacked: Callable[[str], Path]) -> None:
    registered = [each.asked for each in exchanges(variant, "remoting-slave-nameserver-0") if each.code == REGISTER_BROKER]

    tables: list[Line] = [json.loads(body)["topicConfigSerializeWrapper"] for body in registered]
    for table in tables:
        assert_read_and_written(TOPICS, json.dumps(table).encode())
    last = decode(TOPICS, json.dumps(tables[-1]).encode())
    kept = decode(TOPICS, (unpacked(variant) / "slave" / TOPICS.path).read_bytes())
    assert len(last.rows) > 5
    assert {key: kept.rows.get(key) for key in last.rows} == dict(last.rows)


def received(sent: list[Frame], start: int, folder: Path) -> int:
    """Take the frames into a new store as a slave of ours takes chunks; where it ends then."""
    options = StoreOptions(segment_bytes=SEGMENT_BYTES, min_free_bytes=0)
    store = Store.open(OsStorage(folder), options, chance=os_chance(), wall_ms=OsClock().wall_ms())
    if start:
        store.set_log_start(LogStart(PhysicalOffset(start)))
    for offset, data in sent:
        assert len(data) <= MOST_OF_A_FRAME
        assert offset == store.written_raw
        if data:
            store.write_chunk(offset, data)
    assert store.written_raw == store.end, "a stream ends with a record"
    store.dispatch(store.end)
    end = store.end
    store.close(clean=True)
    return end


def assert_is_the_masters(store: Path, theirs: Path, end: int) -> None:
    """Byte for byte, and their log ends there too."""
    for path in sorted((store / "commitlog").iterdir()):
        held = path.read_bytes()[: end - int(path.name)]
        their_bytes = (theirs / "commitlog" / path.name).read_bytes()
        assert held == their_bytes[: len(held)], path.name
        assert not their_bytes[len(held) :].rstrip(b"\0"), path.name


def assert_reads_as_rocketmq_does(variant: str, store: Path, held: tuple[int, int], capsys: pytest.CaptureFixture[str]) -> None:
    start, end = held
    records = [in_rocketmqs_words(line) for line in dump(store, capsys) if line["sort"] == "record"]
    lines: list[Line] = vectors.lines(variant, "records-master.jsonl.xz")
    expected = [normal(line) for line in lines if "topic" in line and start <= line["position"]]
    assert first_difference(records, expected) == ""
    assert expected[-1]["position"] + expected[-1]["totalSize"] == end


def frames(variant: str, name: str) -> list[Frame]:
    """What the master sent on a connection; the last one as far as it came."""
    stream, at, found = said(variant, name, "s"), 0, []
    while at + _HA_HEADER.size <= len(stream):
        offset, size = _HA_HEADER.unpack_from(stream, at)
        at += _HA_HEADER.size
        found.append(Frame(offset, stream[at : at + size]))
        at += size
    return found


def exchanges(variant: str, name: str) -> Iterator[Answered]:
    """The answered requests of a connection, in their order."""
    asked, answers = (dict(commands(said(variant, name, side))) for side in "cs")
    for number, (header, body) in asked.items():
        if number in answers:
            yield Answered(header["code"], body, answers[number][1])


def commands(stream: bytes) -> Iterator[tuple[int, tuple[Line, bytes]]]:
    """RocketMQ's remoting commands, by their numbers: i32 length, i32 length of the header, a header in JSON, a body."""
    at = 0
    while at + 8 <= len(stream):
        length, header_length = struct.unpack_from(">ii", stream, at)
        assert header_length >> 24 == 0, "its header is JSON"
        header_end, end = at + 8 + header_length, at + 4 + length
        if end > len(stream):
            return
        header = json.loads(stream[at + 8 : header_end])
        yield header["opaque"], (header, stream[header_end:end])
        at = end


def said(variant: str, name: str, by: str) -> bytes:
    """All that one side of a recorded connection sent."""
    data = vectors.raw(variant, f"{name}.bin.xz")
    recording = json.loads((vectors.folder() / variant / f"{name}.json").read_text())
    return b"".join(data[at : at + length] for _, side, at, length in recording["chunks"] if side == by)
