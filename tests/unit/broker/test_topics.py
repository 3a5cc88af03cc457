"""Topics of a master and of a slave: created, described, listed, deleted; changes are durable before they are answered."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.broker.topics import MasterTopics, SlaveTopics, TopicReads
from dittomq.errors import DiskFull, InvalidField, NotMaster, NotReady, StorageFailure, TopicExists, TopicNotFound, VersionConflict
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import QueueMinimums
from dittomq.metadata.topics import QueueStatus, TopicConfig, TopicUpdate
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import FakeTopicStore, MetadataNode, nothing_under_way, run
from tests.support.virtual_time import under


class Master:
    """A master's topics over a folder, epoch 3."""

    def __init__(self, folder: Path) -> None:
        self.node = MetadataNode.make(folder)
        self.store = FakeTopicStore()
        self.reads = TopicReads("a/0", self.node.metadata, self.store, InlineLane())
        self.topics = MasterTopics("a/0", self.node.metadata, self.store, InlineLane(), self.node.clock, lambda: 3, nothing_under_way)


@pytest.mark.parametrize("turns", range(1, 10))
@under(run)
async def test_a_deletion_whose_caller_leaves_takes_no_message_that_it_would_lose(tmp_path: Path, turns: int) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    deletion = asyncio.create_task(master.topics.delete("orders", validate_only=False))
    for _ in range(turns):
        await asyncio.sleep(0)

    deletion.cancel()
    takes_messages = False
    for _ in range(20):
        await asyncio.sleep(0)
        takes_messages = takes_messages or "orders" in master.topics.writable()

    assert takes_messages == ("orders" in await names_on_disk(tmp_path))


async def names_on_disk(folder: Path) -> list[str]:
    again = MetadataNode.make(folder)
    await again.metadata.load()
    return again.topics


@under(run)
async def test_a_created_topic_is_on_the_disk_when_the_call_returns(tmp_path: Path) -> None:
    master = Master(tmp_path)

    assert await master.topics.create(TopicConfig("orders", 4, 4), validate_only=False) == (TopicConfig("orders", 4, 4), True)

    assert await names_on_disk(tmp_path) == ["orders"]
    version = master.node.metadata.table(TOPICS).version
    assert (version.state_version, version.counter) == (3, 1)
    assert master.node.heard.changes == [("topics", version)]


@under(run)
async def test_creating_what_exists_with_equal_settings_changes_nothing(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders"), validate_only=False)
    version = master.node.metadata.table(TOPICS).version

    assert await master.topics.create(TopicConfig("orders"), validate_only=False) == (TopicConfig("orders"), False)
    assert master.node.metadata.table(TOPICS).version == version


@pytest.mark.parametrize("validate_only", [True, False])
@under(run)
async def test_creating_what_exists_with_other_settings_names_the_field(tmp_path: Path, validate_only: bool) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 4, 4), validate_only=False)

    with pytest.raises(TopicExists, match='topic "orders" exists with write_queues 4, not 8'):
        await master.topics.create(TopicConfig("orders", 4, 8), validate_only=validate_only)


@under(run)
async def test_validate_only_checks_and_changes_nothing(tmp_path: Path) -> None:
    master = Master(tmp_path)

    assert await master.topics.create(TopicConfig("orders"), validate_only=True) == (TopicConfig("orders"), True)
    with pytest.raises(InvalidField):
        await master.topics.create(TopicConfig("../x"), validate_only=True)
    with pytest.raises(TopicNotFound):
        await master.topics.delete("orders", validate_only=True)
    await master.topics.create(TopicConfig("orders"), validate_only=False)
    await master.topics.delete("orders", validate_only=True)

    assert master.node.topics == ["orders"]
    assert master.store.hidden == {}


@under(run)
async def test_changed_topic_is_durable_on_return_and_keeps_unnamed_fields(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 4, 4), validate_only=False)
    await master.topics.create(TopicConfig("other"), validate_only=False)
    update = TopicUpdate(TopicConfig("orders", 8, 8, 4), ("read_queues", "write_queues"))

    assert await master.topics.update(update, validate_only=True) == (TopicConfig("orders", 8, 8), True)
    assert master.node.metadata.table(TOPICS).rows["orders"] == TopicConfig("orders", 4, 4)
    assert await master.topics.update(update, validate_only=False) == (TopicConfig("orders", 8, 8), True)
    version = master.node.metadata.table(TOPICS).version
    assert await master.topics.update(update, validate_only=False) == (TopicConfig("orders", 8, 8), False)

    assert master.node.metadata.table(TOPICS).version == version
    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    assert dict(again.metadata.table(TOPICS).rows) == {"orders": TopicConfig("orders", 8, 8), "other": TopicConfig("other")}


@under(run)
async def test_change_for_another_version_or_a_missing_topic_changes_nothing(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 4, 4), validate_only=False)
    seen = master.node.metadata.table(TOPICS).version
    await master.topics.create(TopicConfig("other"), validate_only=False)
    closed = TopicConfig("orders", permission=4)

    with pytest.raises(VersionConflict):
        await master.topics.update(TopicUpdate(closed, ("permission",), seen), validate_only=False)
    with pytest.raises(TopicNotFound, match="orders"):
        await master.topics.update(TopicUpdate(replace(closed, name="order"), ("permission",)), validate_only=False)
    assert master.node.metadata.table(TOPICS).rows["orders"].permission == 6
    newest = master.node.metadata.table(TOPICS).version
    assert (await master.topics.update(TopicUpdate(closed, ("permission",), newest), validate_only=False))[1]


@under(run)
async def test_a_deleted_topic_is_gone_from_table_disk_and_queues(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    await master.topics.create(TopicConfig("other"), validate_only=False)
    master.store.ranges["orders", 0] = (0, 7)

    await master.topics.delete("orders", validate_only=False)

    assert await names_on_disk(tmp_path) == ["other"]
    assert master.store.hidden == {("orders", 0): 7}
    with pytest.raises(TopicNotFound):
        await master.reads.get("orders")
    with pytest.raises(TopicNotFound):
        await master.topics.delete("orders", validate_only=False)


@under(run)
async def test_a_topic_made_again_continues_the_queue_offsets(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    master.store.ranges["orders", 0] = (0, 7)
    await master.topics.delete("orders", validate_only=False)

    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)

    assert await master.reads.get("orders") == (TopicConfig("orders", 1, 1), [QueueStatus(0, 7, 7)])


@under(run)
async def test_a_topic_is_described_with_what_each_queue_holds(tmp_path: Path) -> None:
    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 3, 2), validate_only=False)
    master.store.ranges["orders", 1] = (5, 9)

    _, queues = await master.reads.get("orders")

    assert queues == [QueueStatus(0, 0, 0), QueueStatus(1, 5, 9), QueueStatus(2, 0, 0)]


@under(run)
async def test_a_list_that_moves_on_between_two_pages_must_be_started_again(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for name in "abc":
        await master.topics.create(TopicConfig(name), validate_only=False)
    first = master.reads.list(2, "")
    assert [row.name for row in master.reads.list(2, first.next_token).rows] == ["c"]

    await master.topics.create(TopicConfig("d"), validate_only=False)

    with pytest.raises(VersionConflict):
        master.reads.list(2, first.next_token)


@pytest.mark.parametrize("name", ["", "..", "a/b", "x" * 128, "a\x00"])
def test_a_hostile_name_is_refused_by_every_call(tmp_path: Path, name: str) -> None:
    async def story() -> None:
        master = Master(tmp_path)
        with pytest.raises(InvalidField):
            await master.topics.create(TopicConfig(name), validate_only=False)
        with pytest.raises(InvalidField):
            await master.topics.delete(name, validate_only=False)
        with pytest.raises(InvalidField):
            await master.reads.get(name)

    run(story())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("validate_only", [True, False])
@under(run)
async def test_a_master_that_does_not_lead_changes_nothing(tmp_path: Path, validate_only: bool) -> None:
    def not_leading() -> int:
        raise NotReady("a/0", "recovering, waits for a/1")

    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders"), validate_only=False)
    waiting = replace(master.topics, epoch=not_leading)

    with pytest.raises(NotReady):
        await waiting.create(TopicConfig("paid"), validate_only=validate_only)
    with pytest.raises(NotReady):
        await waiting.delete("orders", validate_only=validate_only)

    assert master.node.topics == ["orders"]
    assert master.store.hidden == {}


@under(run)
async def test_deletion_that_dies_early_shows_no_message_of_a_recreated_topic(tmp_path: Path) -> None:
    """It dies before the queues are empty."""

    class DyingStore(FakeTopicStore):
        def hide(self, minimums: QueueMinimums) -> None:
            if minimums:
                raise StorageFailure("replacement", "dittomq/queue-minimums", "the process was killed")

    master = Master(tmp_path)
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    dying = DyingStore()
    dying.ranges["orders", 0] = (0, 7)
    with pytest.raises(StorageFailure):
        await replace(master.topics, store=dying).delete("orders", validate_only=False)

    again = Master(tmp_path)
    await again.node.metadata.load()
    again.store.ranges["orders", 0] = (0, 7)
    await again.topics.create(TopicConfig("orders", 1, 1), validate_only=False)

    assert await again.reads.get("orders") == (TopicConfig("orders", 1, 1), [QueueStatus(0, 7, 7)])


@under(run)
async def test_a_list_of_topics_ends_with_its_last_topic_also_when_others_were_deleted(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for name in ("orders", "paid", "sent"):
        await master.topics.create(TopicConfig(name, 1, 1), validate_only=False)
        master.store.ranges[name, 0] = (0, 7)
    await master.topics.delete("paid", validate_only=False)

    page = master.reads.list(2, "")

    assert ([row.name for row in page.rows], page.next_token) == (["orders", "sent"], "")


@under(run)
async def test_a_slave_changes_nothing_and_names_its_master() -> None:
    slave = SlaveTopics("a/1", lambda: "10.0.0.7:10911")
    with pytest.raises(NotMaster, match=r"send it to the master at 10\.0\.0\.7:10911"):
        await slave.create(TopicConfig("orders"), validate_only=False)
    with pytest.raises(NotMaster):
        await slave.delete("orders", validate_only=False)
    with pytest.raises(NotMaster):
        await slave.update(TopicUpdate(TopicConfig("orders"), ("permission",)), validate_only=False)


@under(run)
async def test_deletion_on_a_full_disk_is_noted_before_the_topic_is_recreated(
    tmp_path: Path,
) -> None:
    """It is done, though where queues begin cannot be noted."""

    class FullStore(FakeTopicStore):
        def hide(self, minimums: QueueMinimums) -> None:
            if minimums:
                raise DiskFull("a/0", 0, 65_536)

    master, full = Master(tmp_path), FullStore()
    await master.topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    full.ranges["orders", 0] = (0, 7)
    topics = replace(master.topics, store=full)

    await topics.delete("orders", validate_only=False)

    with pytest.raises(TopicNotFound):
        await master.reads.get("orders")
    with pytest.raises(DiskFull):
        await topics.create(TopicConfig("orders", 1, 1), validate_only=False)
    with pytest.raises(TopicNotFound):
        await master.reads.get("orders")
