"""Files written by real brokers are read whole and written back with nothing lost."""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dittomq.metadata.formats import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    GROUPS,
    KINDS,
    TOPICS,
    DamagedFile,
    RowTexts,
    TableKind,
    decode,
    encode,
)
from dittomq.metadata.rows import ConsumerOffset, DelayOffset, GroupConfig
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.routes import DataVersion
from tests.support import vectors
from tests.support.table_round_trip import assert_read_and_written

KEPT = Path(__file__).parents[2] / "support" / "rocketmq_config"  # some rows of each file; recorded stores have them all
KIND_OF = {Path(kind.path).name: kind for kind in KINDS}


@pytest.mark.parametrize("path", sorted(KEPT.rglob("*.json")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_file_of_a_real_broker_keeps_every_field(path: Path) -> None:
    assert_read_and_written(KIND_OF[path.name], path.read_bytes())


def config_files(archive: Path) -> Iterator[tuple[TableKind[Any], bytes]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            kind = KIND_OF.get(Path(member.name).name.removesuffix(".bak"))
            if kind is not None and (file := tar.extractfile(member)) is not None:
                yield kind, file.read()


@pytest.mark.tier("test")
@pytest.mark.parametrize("variant", vectors.VARIANTS)
def test_all_config_files_of_a_recorded_store_keep_every_field(variant: str) -> None:
    files = list(config_files(vectors.folder() / variant / "store.tar.xz"))

    assert len(files) >= 8
    for kind, data in files:
        assert_read_and_written(kind, data)


def test_rows_of_a_real_broker_mean_what_they_say() -> None:
    topics = decode(TOPICS, (KEPT / "5.3.3" / "topics.json").read_bytes())
    offsets = decode(CONSUMER_OFFSETS, (KEPT / "5.3.3" / "consumerOffset.json").read_bytes())
    delays = decode(DELAY_OFFSETS, (KEPT / "4.9.7" / "delayOffset.json").read_bytes())
    groups = decode(GROUPS, (KEPT / "5.3.3" / "subscriptionGroup.json").read_bytes())

    assert topics.version == DataVersion(state_version=0, timestamp_ms=1795224585528, counter=26)
    assert topics.rows["Orders-hiz"] == TopicConfig("Orders-hiz", 4, 4, 6)
    assert offsets.rows["Orders-hiz", "readers-hiz", 3] == ConsumerOffset("Orders-hiz", "readers-hiz", 3, 100)
    assert delays == Table(DataVersion(), sorted_rows([DelayOffset(1, 23, 23), DelayOffset(2, 4, 4), DelayOffset(3, 4, 4)]))
    assert groups.rows["readers-hiz"].other_fields["groupRetryPolicy"] == {"type": "CUSTOMIZED"}


keys = st.text("abcXYZ%|_-0123456789", min_size=1, max_size=20)
integers = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
attributes = st.dictionaries(st.text(min_size=1).filter(lambda name: name[0] != "\0"), st.text(), max_size=3)
others = st.dictionaries(keys.map(lambda name: f"x{name}"), st.integers() | st.text() | st.lists(st.text()) | st.just({3: 4}), max_size=3)
versions = st.builds(DataVersion, longs, longs, longs)
topic_rows = st.builds(TopicConfig, keys, integers, integers, integers, integers, st.booleans(), attributes, st.text(), others)
group_rows = st.builds(
    GroupConfig, keys, *[st.booleans()] * 4, integers, integers, longs, longs, attributes=attributes, other_fields=others
)
offset_rows = st.builds(ConsumerOffset, keys, keys, integers, longs)
delay_rows = st.builds(DelayOffset, integers, longs, longs)
tables = st.one_of(
    *[
        st.tuples(st.just(kind), st.builds(Table, versions, st.lists(rows, max_size=6).map(sorted_rows), others))
        for kind, rows in ((TOPICS, topic_rows), (GROUPS, group_rows), (CONSUMER_OFFSETS, offset_rows), (DELAY_OFFSETS, delay_rows))
    ]
)
minimums = st.dictionaries(st.tuples(keys, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=6)


@given(tables)
def test_any_table_is_read_back_equal(kind_and_table: tuple[TableKind[Any], Table[Any]]) -> None:
    kind, table = kind_and_table

    assert decode(kind, encode(kind, table)) == table


@given(minimums)
def test_minimums_of_deleted_topics_are_read_back_in_order(minimums: dict[tuple[str, int], int]) -> None:
    table: Table[TopicConfig] = Table(rows={"a": TopicConfig("a")}).hiding(minimums)

    found = decode(TOPICS, encode(TOPICS, table))

    assert list(found.minimums.items()) == sorted(minimums.items())
    assert found.rows == table.rows


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TOPICS, ""),
        (TOPICS, "[]"),
        (TOPICS, '{"topicConfigTable":{"a":7}}'),
        (TOPICS, '{"topicConfigTable":{"a":{"perm":"six"}}}'),
        (TOPICS, '{"topicConfigTable":{"a":{"perm":true}}}'),
        (TOPICS, '{"topicConfigTable":{"a":{"readQueueNums":2147483648}}}'),
        (TOPICS, '{"topicConfigTable":{"a":{"attributes":{"x":1}}}}'),
        (TOPICS, '{"dataVersion":7}'),
        (TOPICS, '{"dittomqQueueMinimums":{"a":7}}'),
        (TOPICS, '{"dittomqQueueMinimums":{"a":{0:"x"}}}'),
        (TOPICS, '{"dataVersion":{"counter":9223372036854775808}}'),
        (CONSUMER_OFFSETS, '{"offsetTable":{"no-group":{0:1}}}'),
        (CONSUMER_OFFSETS, '{"offsetTable":{"a@b":{x:1}}}'),
        (DELAY_OFFSETS, '{"offsetTable":{1:1.5}}'),
        (DELAY_OFFSETS, '{"offsetTable":{1:1},"dittomqRocketmqOffsets":{1:"x"}}'),
    ],
)
def test_a_file_of_wrong_shape_is_damaged_and_says_where(kind: TableKind[Any], text: str) -> None:
    with pytest.raises(DamagedFile, match=r"\w+ "):
        decode(kind, text.encode())


@pytest.mark.parametrize("number", ['"--5"', '"-"', '"' + "9" * 5_000 + '"', "9" * 5_000])
def test_what_looks_like_a_number_and_is_none_is_damage(number: str) -> None:
    with pytest.raises(DamagedFile):
        decode(DELAY_OFFSETS, f'{{"offsetTable":{{"2":{number}}}}}'.encode())


def test_bytes_that_are_not_utf8_are_damage() -> None:
    with pytest.raises(DamagedFile):
        decode(TOPICS, b"\xff\xfe{}")


def test_delay_offsets_tell_rocketmqs_deliveries_from_ours_until_it_writes() -> None:
    rows = {1: DelayOffset(1, 9, 4), 2: DelayOffset(2, 7, 7), 3: DelayOffset(3, 5, 0)}
    ours = encode(DELAY_OFFSETS, Table(rows=rows))
    rewritten = b'{"offsetTable":{1:9,2:7,3:5}}'

    assert decode(DELAY_OFFSETS, ours).rows == rows
    assert [row.rocketmq_offset for row in decode(DELAY_OFFSETS, rewritten).rows.values()] == [9, 7, 5]


def test_quoted_integer_keys_are_read_too() -> None:
    assert decode(DELAY_OFFSETS, b'{"offsetTable":{"2":7}}').rows == {2: DelayOffset(2, 7, 7)}


def test_two_equal_tables_are_written_alike() -> None:
    one = sorted_rows([TopicConfig("b"), TopicConfig("a")])
    other = sorted_rows([TopicConfig("a"), TopicConfig("b")])

    assert encode(TOPICS, Table(DataVersion(), one)) == encode(TOPICS, Table(DataVersion(), other))


def test_rows_that_are_encoded_once_are_written_as_all_others_are() -> None:
    topics = Table(DataVersion(1, 1, 1), sorted_rows([TopicConfig(f"t{number}") for number in range(5)]))
    texts = RowTexts(TOPICS)
    texts.encode(topics)

    for changed in (
        topics.with_row(TopicConfig("new", 1, 1), 2, 2),
        topics.with_row(TopicConfig("t3", 9, 9), 2, 2),
        topics.without("t0", 2, 2).hiding({("t0", 1): 7}),
    ):
        assert texts.encode(changed) == encode(TOPICS, changed)
        assert decode(TOPICS, texts.encode(changed)) == changed
