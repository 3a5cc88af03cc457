"""Topics and the log they live in: what is deleted is not read again, and what is made again goes on where it ended."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.topics import MasterTopics, TopicReads
from dittomq.broker.writer import Writer, WriterEvents, WriterLanes, WriterLimits
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.commitlog.queues import index_checkpoint
from dittomq.commitlog.store import AppendBatch, Store, StoreOptions
from dittomq.epoch_history import EpochEntry
from dittomq.errors import Unavailable
from dittomq.message import Draft
from dittomq.metadata.formats import TOPICS, TableKind
from dittomq.metadata.offset_table import OffsetPage
from dittomq.metadata.tables import Ask, QueueMinimums, R, TablePage
from dittomq.metadata.topics import QueueStatus, TopicConfig, topics_of_queues
from dittomq.offsets import Epoch
from dittomq.routes import DataVersion
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import MetadataNode, run
from tests.support.stores import begin_epoch, frame
from tests.support.virtual_time import under


def open_store(folder: Path) -> Store:
    options = StoreOptions(segment_bytes=1 << 20, min_free_bytes=0)
    store = Store.open(OsStorage(folder), options, chance=random.Random(1), wall_ms=1_700_000_000_000)
    if not store.epoch_history:
        begin_epoch(store, EpochEntry(Epoch(1), 0, 77, store.end))
    return store


def publish(store: Store, topic: str, count: int, body: bytes = b"x") -> None:
    store.append([AppendBatch([Draft(topic, 0, 0, 1_700_000_000_000, body, b"", 0)] * count, "", -1)], 1_700_000_000_000)
    store.sync()
    store.dispatch(store.end)


class Master:
    """A master's topics on a real store."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder)
        self.node = MetadataNode.make(folder)
        self.reads = TopicReads("a/0", self.node.metadata, self.store, InlineLane())
        lane = InlineLane()
        self.writer = Writer(self.store, WriterLanes(lane, InlineLane()), self.node.clock, WriterLimits(), sync_each_group=True)
        self.topics = MasterTopics("a/0", self.node.metadata, self.store, lane, self.node.clock, lambda: 1, self.writer.caught_up)

    async def status(self) -> list[QueueStatus]:
        _, queues = await self.reads.get("orders")
        return queues


@under(run)
async def test_recreated_topic_continues_its_offsets_and_hides_old_messages(tmp_path: Path) -> None:
    """Also after a restart."""
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    publish(master.store, "orders", 3)
    assert await master.status() == [QueueStatus(0, 0, 3)]

    await master.topics.delete("orders", validate_only=False)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    assert await master.status() == [QueueStatus(0, 3, 3)]
    publish(master.store, "orders", 2)
    master.store.close(clean=True)

    again = Master(tmp_path)
    await again.node.metadata.load()
    assert await again.status() == [QueueStatus(0, 3, 5)]
    again.store.close(clean=True)


@under(run)
async def test_unwritten_message_of_a_deleted_topic_is_never_found(tmp_path: Path) -> None:
    """It waits to be written, and no start finds it."""
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 8, 8), validate_only=False)
    publish(master.store, "orders", 3)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(master.writer.run(WriterEvents(lambda _: None, lambda _: None)))
        master.writer.pause()
        taken = tasks.create_task(master.writer.submit(frame(b"raced"), 5))
        await asyncio.sleep(0)
        deletion = tasks.create_task(master.topics.delete("orders", validate_only=False))
        await asyncio.sleep(1)
        assert master.topics.writable() == {}, "no more messages are taken in"
        master.writer.resume()
        [placed] = await (await taken)
        await deletion
        running.cancel()
    assert placed.queue_offset == 3
    master.store.dispatch(master.store.end)

    assert topics_of_queues(master.store.queues_with_messages()) == {}
    master.store.close(clean=True)
    again = Master(tmp_path)
    assert topics_of_queues(again.store.queues_with_messages()) == {}
    await again.node.metadata.load()
    await again.topics.create(TopicConfig("orders", 8, 8), validate_only=False)
    assert (await again.status())[0] == QueueStatus(0, 4, 4)
    assert list(again.topics.writable()) == ["orders"]
    again.store.close(clean=True)


@under(run)
async def test_a_topic_takes_messages_again_when_its_deletion_is_given_up(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    master.writer.pause()
    taken = asyncio.create_task(master.writer.submit(frame(b"held"), 4))
    await asyncio.sleep(0)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await master.topics.delete("orders", validate_only=False)

    assert list(master.topics.writable()) == ["orders"]
    taken.cancel()
    master.store.close(clean=True)


class SlaveOf:
    """A slave on a real store, that pulls its master's tables and copies its log when told."""

    def __init__(self, folder: Path, master: Master) -> None:
        self.store = open_store(folder)
        self.node = MetadataNode.make(folder, "a/1")
        self.master = master
        self.puller = MetadataPuller(TablesOf(master), self.node.metadata, self.node.clock, self._hide)

    async def _hide(self, minimums: QueueMinimums) -> None:
        self.store.hide(minimums)

    def copy_log(self) -> None:
        store, source = self.store, self.master.store
        store.write_chunk(store.end, source.read_records(store.end, source.end, 1 << 20))
        store.sync()
        store.dispatch(store.end)

    def bodies(self) -> list[bytes]:
        """What can be read of queue 0 of `orders`."""
        low, high = self.store.queue_range("orders", 0)
        return [each.body for each in self.store.read_queue("orders", 0, low, 100, 1 << 20).messages] if low < high else []


class TablesOf:
    """A master's tables, as a slave asks for them."""

    def __init__(self, master: Master) -> None:
        self._master = master

    async def fetch(self, kind: TableKind[R], ask: Ask, deadline_s: float) -> TablePage[R]:
        return self._master.node.metadata.answer(kind, ask)

    async def fetch_offsets(self, ask: Ask, deadline_s: float) -> OffsetPage:
        return self._master.node.metadata.offsets.answer(ask, takes_changes=True)

    async def watch_versions(self) -> AsyncIterator[Mapping[str, DataVersion]]:
        raise Unavailable("a/0", "it knows no watch")
        yield {}


async def made_again(master: Master) -> None:
    """Three old messages, deleted, and one new one."""
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    publish(master.store, "orders", 3)
    await master.topics.delete("orders", validate_only=False)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    publish(master.store, "orders", 1, b"new")


@under(run)
async def test_a_slave_hides_what_its_master_deleted_and_nothing_else(tmp_path: Path) -> None:
    master = Master(tmp_path / "a0")
    slave = SlaveOf(tmp_path / "a1", master)
    for topic in ("orders", "paid"):
        await master.topics.create(TopicConfig(topic, 1, 1), validate_only=False)
        publish(master.store, topic, 3)
    slave.copy_log()
    await slave.puller.pull_once()
    assert slave.store.queue_range("orders", 0) == (0, 3)

    await master.topics.delete("orders", validate_only=False)
    await slave.puller.pull_once()

    assert slave.store.queue_range("orders", 0) == (3, 3)
    assert slave.store.queue_range("paid", 0) == (0, 3)


@pytest.mark.parametrize("restart", ["clean", "killed", "without its checkpoint"])
@under(run)
async def test_a_slave_that_restarts_before_the_deleted_messages_arrive_never_shows_them(tmp_path: Path, restart: str) -> None:
    master = Master(tmp_path / "a0")
    slave = SlaveOf(tmp_path / "a1", master)
    await made_again(master)
    await slave.puller.pull_once()
    slave.store.close(clean=restart == "clean")
    if restart == "without its checkpoint":
        (tmp_path / "a1" / "dittomq" / "checkpoint").unlink(missing_ok=True)

    again = SlaveOf(tmp_path / "a1", master)
    again.copy_log()

    assert again.bodies() == [b"new"]
    again.store.close(clean=True)
    rebuilt = SlaveOf(tmp_path / "a1", master)
    assert rebuilt.bodies() == [b"new"]


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_messages_of_an_undone_deletion_return_at_the_next_start(tmp_path: Path, how: str) -> None:
    """Others stay hidden."""
    store = open_store(tmp_path)
    for topic in ("orders", "paid"):
        publish(store, topic, 3)
    store.hide({("orders", 0): 3, ("paid", 0): 3})
    publish(store, "orders", 1)
    assert store.show_again({("orders", 0): 1, ("paid", 0): 3})
    assert not store.show_again({("orders", 0): 1, ("paid", 0): 3})
    store.checkpoint()
    store.close(clean=how == "closed")

    for _ in range(2):
        store = open_store(tmp_path)
        store.dispatch(store.end)
        assert (store.queue_range("orders", 0), store.queue_range("paid", 0)) == ((1, 4), (3, 3))
        assert store.minimums() == {("orders", 0): 1, ("paid", 0): 3}
        store.close(clean=True)


def test_checkpoint_is_ignored_after_a_start_died_before_rebuilding_queues(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    publish(store, "orders", 3)
    store.hide({("orders", 0): 3})
    store.show_again({})
    store.checkpoint()
    store.close(clean=True)
    assert index_checkpoint.take_order(OsStorage(tmp_path))  # that start came no further

    store = open_store(tmp_path)
    store.dispatch(store.end)

    assert store.queue_range("orders", 0) == (0, 3)
    store.close(clean=True)


@under(run)
async def test_first_topic_after_lost_tables_starts_at_the_stores_minimums(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    publish(master.store, "orders", 3)
    await master.topics.delete("orders", validate_only=False)
    master.store.close(clean=True)
    shutil.rmtree(tmp_path / "config")
    again = Master(tmp_path)
    await again.node.metadata.load()
    await again.node.metadata.lead(Epoch(2), again.store.minimums())

    await again.topics.create(TopicConfig("bills", 1, 1), validate_only=False)

    assert again.node.metadata.table(TOPICS).minimums == {("orders", 0): 3}
    again.store.close(clean=True)
