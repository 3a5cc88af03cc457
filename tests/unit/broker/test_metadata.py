"""A node's tables: durable before they are seen, changed one after the other, whole for every reader."""

import asyncio
from pathlib import Path

import pytest

from dittomq.broker.config_files import ConfigFiles
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.errors import DiskFull, InvalidField, StorageFailure
from dittomq.metadata.formats import GROUPS, KINDS, TOPICS
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.tables import Table, sorted_rows
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch
from tests.support.failing_storage import CrashingStorage
from tests.support.metadata_node import MetadataNode, run, whole_table
from tests.support.virtual_time import under


def adding(name: str, epoch: int = 1) -> "Adding":
    return Adding(name, epoch)


class Adding:
    """Makes the next table by adding a topic."""

    def __init__(self, name: str, epoch: int) -> None:
        self.name = name
        self.epoch = epoch

    def __call__(self, table: Table[TopicConfig]) -> Table[TopicConfig]:
        return table.changed([*table.rows.values(), TopicConfig(self.name)], self.epoch, 1_000)


@under(run)
async def test_a_change_is_on_the_disk_before_it_is_seen(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    change = asyncio.create_task(node.metadata.change(TOPICS, adding("orders")))
    while not node.topics:
        assert not node.heard.changes
        await asyncio.sleep(0)
        on_the_disk, _ = ConfigFiles(OsStorage(tmp_path), "b/0").load(TOPICS)
        assert set(node.topics) <= set(on_the_disk.rows)

    await change
    assert node.heard.changes == [("topics", node.metadata.table(TOPICS).version)]


@under(run)
async def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(node.metadata.change(TOPICS, adding(f"t{number:02}")))

    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    assert again.topics == [f"t{number:02}" for number in range(20)]
    assert again.metadata.table(TOPICS).version.counter == 20


@under(run)
async def test_a_change_that_is_refused_or_changes_nothing_leaves_version_and_file_alone(tmp_path: Path) -> None:
    def refuse(table: Table[TopicConfig]) -> Table[TopicConfig]:
        raise InvalidField("topic", "no")

    node = MetadataNode.make(tmp_path)
    before = await node.metadata.change(TOPICS, adding("orders"))
    written = (tmp_path / "config" / "topics.json").stat().st_mtime_ns

    with pytest.raises(InvalidField):
        await node.metadata.change(TOPICS, refuse)
    assert await node.metadata.change(TOPICS, lambda table: table) is before
    assert (tmp_path / "config" / "topics.json").stat().st_mtime_ns == written
    assert len(node.heard.changes) == 1


@under(run)
async def test_a_caller_that_leaves_does_not_stop_its_change(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    await node.metadata.change(TOPICS, adding("first"))
    leaving = asyncio.create_task(node.metadata.change(TOPICS, adding("second")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()

    await node.metadata.change(TOPICS, adding("third"))

    assert node.topics == ["first", "second", "third"]
    assert len(node.heard.changes) == 3


@pytest.mark.parametrize("operation", ["fdatasync", "rename", "fsync"])
@under(run)
async def test_a_failing_disk_is_final_and_stops_the_node(tmp_path: Path, operation: str) -> None:
    storage = CrashingStorage(OsStorage(tmp_path))
    node = MetadataNode.make(tmp_path, storage=storage)
    storage.failing = operation

    with pytest.raises(StorageFailure):
        await node.metadata.change(TOPICS, adding("orders"))

    storage.failing = ""
    with pytest.raises(StorageFailure):
        await node.metadata.change(TOPICS, adding("orders"))
    async with asyncio.timeout(1):
        with pytest.raises(StorageFailure):
            await node.metadata.watch()
    assert node.topics == []
    assert node.heard.changes == []


@under(run)
async def test_a_full_disk_refuses_a_change_and_takes_the_next_one_when_there_is_room(tmp_path: Path) -> None:
    storage = CrashingStorage(OsStorage(tmp_path))
    node = MetadataNode.make(tmp_path, storage=storage)
    storage.free = 0
    with pytest.raises(DiskFull):
        await node.metadata.change(TOPICS, adding("orders"))

    storage.free = None
    await node.metadata.change(TOPICS, adding("orders"))

    assert node.topics == ["orders"]


@under(run)
async def test_a_new_master_stamps_every_table_newer_than_anything_of_an_older_epoch(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    for number in range(5):
        await node.metadata.change(TOPICS, adding(f"t{number}", epoch=3))
    await node.metadata.change(GROUPS, lambda _: Table(rows=sorted_rows([GroupConfig("g")])))
    older = node.metadata.table(TOPICS).version

    await node.metadata.lead(Epoch(4), {("orders", 0): 3})

    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    assert again.metadata.table(TOPICS).version.state_version == 4
    assert again.metadata.table(TOPICS).version.is_newer_than(older)
    assert again.topics == [f"t{number}" for number in range(5)]
    assert again.metadata.table(GROUPS).version.state_version == 4


@under(run)
async def test_a_new_master_stamps_no_table_that_never_held_anything(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)

    await node.metadata.lead(Epoch(4), {("orders", 0): 3})

    assert [whole_table(node.metadata, kind) for kind in KINDS] == [Table()] * 4


@under(run)
async def test_a_damaged_file_is_told_at_the_start_and_the_other_tables_are_loaded(tmp_path: Path) -> None:
    node = MetadataNode.make(tmp_path)
    await node.metadata.change(TOPICS, adding("one"))
    await node.metadata.change(TOPICS, adding("two"))
    await node.metadata.change(GROUPS, lambda _: Table(rows=sorted_rows([GroupConfig("g")])))
    (tmp_path / "config" / "topics.json").write_bytes(b"{")

    again = MetadataNode.make(tmp_path)
    told = await again.metadata.load()

    assert len(told) == 1
    assert told[0].startswith("config/topics.json is damaged")
    assert again.topics == ["one"]
    assert len(again.metadata.table(GROUPS).rows) == 1
