"""Topics and the log they live in: what is deleted is not read again, and what is made again goes on where it ended."""

import random
from pathlib import Path

from dittomq.broker.metadata_sync import MetadataPuller
from dittomq.broker.topics import MasterTopics, TopicReads
from dittomq.commitlog.storage import OsStorage
from dittomq.commitlog.store import Frame, Store, StoreOptions
from dittomq.lineage import LineageEntry
from dittomq.message import Draft
from dittomq.metadata.tables import Ask
from dittomq.metadata.topics import QueueStatus, TopicConfig
from dittomq.offsets import Epoch
from services.slave.queues import StoreQueues
from tests.support.fake_master import FakeMaster
from tests.support.lanes import InlineLane
from tests.support.metadata_node import MetadataNode, run


def open_store(folder: Path) -> Store:
    options = StoreOptions(segment_bytes=1 << 20, reserve_bytes=0)
    store = Store.open(OsStorage(folder), options, chance=random.Random(1), wall_ms=1_700_000_000_000)
    if not store.lineage:
        store.begin_epoch(LineageEntry(Epoch(1), 0, 77, store.end))
    return store


def publish(store: Store, topic: str, count: int) -> None:
    store.append([Frame([Draft(topic, 0, 0, 1_700_000_000_000, b"x", b"", 0)] * count, "", -1)], 1_700_000_000_000)
    store.sync()
    store.dispatch(store.end)


class Master:
    """A master's topics on a real store."""

    def __init__(self, folder: Path) -> None:
        self.store = open_store(folder)
        self.node = MetadataNode.make(folder)
        self.reads = TopicReads("a/0", self.node.metadata, self.store, InlineLane())
        self.topics = MasterTopics("a/0", self.node.metadata, self.store, InlineLane(), self.node.clock, lambda: 1)

    async def status(self) -> list[QueueStatus]:
        _, queues = await self.reads.get("orders")
        return queues


def test_a_topic_made_again_continues_its_offsets_and_hides_what_was_deleted_also_after_a_restart(tmp_path: Path) -> None:
    async def story() -> None:
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

    run(story())


def test_a_slave_hides_what_its_master_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        store, node, master = open_store(tmp_path), MetadataNode.make(tmp_path, "a/1"), FakeMaster()
        master.topics("orders", "paid", counter=1)
        puller = MetadataPuller(master, node.metadata, node.clock, StoreQueues(store, InlineLane(), InlineLane()))
        publish(store, "orders", 3)
        publish(store, "paid", 2)
        await puller.pull_once()
        assert store.queue_range("orders", 0) == (0, 3)

        master.topics("paid", counter=2)
        await puller.pull_once()

        assert store.queue_range("orders", 0) == (3, 3)
        assert store.queue_range("paid", 0) == (0, 2)
        store.close(clean=True)

    run(story())


def test_a_topic_that_grows_during_the_pull_is_not_emptied(tmp_path: Path) -> None:
    async def story() -> None:
        store, node, master = open_store(tmp_path), MetadataNode.make(tmp_path, "a/1"), FakeMaster()
        master.topics("paid", counter=1)
        puller = MetadataPuller(master, node.metadata, node.clock, StoreQueues(store, InlineLane(), InlineLane()))
        publish(store, "orders", 3)
        grown: list[str] = []

        def made_again(kind: str, ask: Ask) -> None:
            if not grown:
                grown.append(kind)
                publish(store, "orders", 1)

        master.before = made_again
        await puller.pull_once()
        assert store.queue_range("orders", 0) == (0, 4)

        await puller.pull_once()
        assert store.queue_range("orders", 0) == (4, 4)
        store.close(clean=True)

    run(story())
