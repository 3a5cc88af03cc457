"""A master's consumer offsets over a folder, with the groups and topics that they belong to."""

from collections.abc import Callable
from pathlib import Path

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.groups import MasterGroups
from dittomq.broker.topics import MasterTopics
from dittomq.consumer_progress import OffsetCommit
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.offsets import PhysicalOffset
from tests.support.failing_storage import CrashingStorage
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import FakeTopicStore, MetadataNode, nothing_under_way


class OffsetsOfMaster:
    """A master with topic "orders" of 2 queues with messages [0, 10), and group "billing", epoch 3."""

    def __init__(self, folder: Path, storage: CrashingStorage | None = None) -> None:
        self.node = node = MetadataNode.make(folder, storage=storage)
        self.store = FakeTopicStore()
        self.store.ranges = {("orders", 0): (0, 10), ("orders", 1): (0, 10)}
        self.lane = InlineLane()
        self.offsets = ConsumerOffsets(node.metadata, self.store, self.lane, node.clock, files=node.files, file_lane=InlineLane())
        self.groups = MasterGroups("a/0", node.metadata, node.clock, lambda: 3, self.offsets.forget_group)
        self.topics = MasterTopics(
            "a/0",
            node.metadata,
            self.store,
            InlineLane(),
            node.clock,
            epoch=lambda: 3,
            caught_up=nothing_under_way,
            deleted=self.offsets.forget_topic,
            grows=self.offsets.begin_queues,
        )
        self.epoch: Callable[[], int] = lambda: 3
        self.rules = OffsetRules(
            "a/0",
            self.leading_epoch,
            lambda: PhysicalOffset(1_000),
            lambda name: find_topic(node.metadata.table(TOPICS).rows, name, "a/0"),
        )

    def leading_epoch(self) -> int:
        return self.epoch()

    async def fill(self) -> "OffsetsOfMaster":
        await self.topics.create(TopicConfig("orders", 2, 2), validate_only=False)
        await self.groups.create(GroupConfig("billing"), validate_only=False)
        return self

    async def commit(self, *offsets: int, resets: int | None = None) -> list[int | None]:
        commits = [OffsetCommit("orders", queue, offset, resets) for queue, offset in enumerate(offsets)]
        return [each.offset for each in await self.offsets.commit("billing", commits, self.rules)]

    async def committed(self, queues: int = 2) -> list[int | None]:
        found = await self.offsets.get("billing", [("orders", queue) for queue in range(queues)], self.rules)
        return [each.offset for each in found]
