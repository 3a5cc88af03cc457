"""Offsets of consumer groups at a master: what is taken and refused, what survives, and what goes with its group or topic."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dittomq.broker.consumer_offsets import MOST_UNHEARD_RESETS, SAVE_S, ConsumerOffsets
from dittomq.commitlog.disk.storage import OsStorage
from dittomq.consumer_progress import CommittedOffset, OffsetCommit
from dittomq.errors import DittoError, GroupNotFound, InvalidField, LogTruncated, NotReady, OffsetOutOfRange, QueueNotFound, TopicNotFound
from dittomq.metadata.rows import ConsumerOffset, GroupConfig
from dittomq.metadata.topics import TopicConfig, TopicUpdate
from tests.support.failing_storage import CrashingStorage
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import MetadataNode, run
from tests.support.offsets_of_master import OffsetsOfMaster
from tests.support.virtual_time import under


@under(run)
async def test_group_has_no_offset_before_it_commits_one(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()

    assert await master.offsets.get("billing", [("orders", 1)], master.rules) == [CommittedOffset("orders", 1, None)]


@under(run)
async def test_commit_of_several_queues_never_goes_back(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()

    assert await master.commit(5, 7) == [5, 7]
    assert await master.commit(3, 8) == [5, 8]
    assert await master.committed() == [5, 8]


@pytest.mark.parametrize(
    ("group", "commit", "refusal"),
    [
        ("billing", OffsetCommit("orders", 1, 11), OffsetOutOfRange),
        ("billing", OffsetCommit("bills", 0, 1), TopicNotFound),
        ("billing", OffsetCommit("orders", 2, 0), QueueNotFound),
        ("biling", OffsetCommit("orders", 1, 1), GroupNotFound),
    ],
    ids=["beyond the end", "unknown topic", "unknown queue", "unknown group"],
)
@under(run)
async def test_refused_commit_changes_no_queue(tmp_path: Path, group: str, commit: OffsetCommit, refusal: type[DittoError]) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5, 5)
    version = master.offsets.table.version

    with pytest.raises(refusal):
        await master.offsets.commit(group, [OffsetCommit("orders", 0, 6), commit], master.rules)

    assert await master.committed() == [5, 5]
    assert master.offsets.table.version == version


@under(run)
async def test_commit_beyond_the_end_names_the_queues_bounds(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()

    with pytest.raises(OffsetOutOfRange) as refused:
        await master.commit(10, 11)

    assert (refused.value.asked, refused.value.start, refused.value.end) == (11, 0, 10)


@under(run)
async def test_commit_of_what_a_later_master_rewrote_is_refused(tmp_path: Path) -> None:
    """Where the commit says in which epoch the last message was read."""
    master = await OffsetsOfMaster(tmp_path).fill()
    master.store.rewritten_from = 6

    with pytest.raises(LogTruncated) as refused:
        await master.offsets.commit("billing", [OffsetCommit("orders", 0, 3, epoch=2), OffsetCommit("orders", 1, 7, epoch=2)], master.rules)
    assert (refused.value.queue, refused.value.asked, refused.value.end) == (1, 7, 6)
    assert await master.committed() == [None, None]

    await master.offsets.commit("billing", [OffsetCommit("orders", 0, 6, epoch=2), OffsetCommit("orders", 1, 7, epoch=3)], master.rules)
    assert await master.committed() == [6, 7]


@under(run)
async def test_commit_to_who_does_not_lead_is_refused(tmp_path: Path) -> None:
    def waits() -> int:
        raise NotReady("a/0", "it waits for its epoch to be opened")

    master = await OffsetsOfMaster(tmp_path).fill()
    master.epoch = waits

    with pytest.raises(NotReady):
        await master.commit(5)
    assert await master.committed() == [None, None]


@under(run)
async def test_commit_under_way_when_its_topic_is_deleted_is_refused(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    async with master.lane.busy:  # the lane is at other work
        committing = asyncio.create_task(master.commit(5))
        await asyncio.sleep(0)
        await master.topics.delete("orders", validate_only=False)

    with pytest.raises(TopicNotFound):
        await committing
    assert list(master.offsets.table.rows()) == []


@under(run)
async def test_commit_under_way_when_its_group_is_made_again_is_refused(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    async with master.lane.busy:
        committing = asyncio.create_task(master.commit(5))
        await asyncio.sleep(0)
        await master.groups.delete("billing", validate_only=False)
        await master.groups.create(GroupConfig("billing"), validate_only=False)

    with pytest.raises(GroupNotFound):
        await committing
    assert await master.committed() == [None, None]


@under(run)
async def test_offsets_go_with_their_group_and_with_their_topic(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5, 5)
    await master.groups.delete("billing", validate_only=False)
    await master.groups.create(GroupConfig("billing"), validate_only=False)
    after_group = await master.committed()
    await master.commit(4, 4)
    await master.topics.delete("orders", validate_only=False)
    await master.topics.create(TopicConfig("orders", 2, 2), validate_only=False)

    assert after_group == [None, None]
    assert await master.committed() == [None, None]
    assert list(master.offsets.table.rows()) == []


async def grow(master: OffsetsOfMaster, queues: int, *, validate_only: bool = False) -> None:
    """Let the topic have so many queues."""
    update = TopicUpdate(TopicConfig("orders", queues, queues), ("read_queues", "write_queues"))
    await master.topics.update(update, validate_only)


@under(run)
async def test_group_that_reads_a_topic_begins_added_queues_at_their_first_message(tmp_path: Path) -> None:
    """Whatever comes there before one of its members does; durable before the topic has them."""
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.groups.create(GroupConfig("audit"), validate_only=False)
    await master.commit(5)
    master.store.ranges["orders", 3] = (4, 8)
    await grow(master, 4, validate_only=True)
    before = await master.committed(4)
    await grow(master, 4)
    saved = OffsetsOfMaster(tmp_path)
    await saved.node.metadata.load()

    assert before == [5, None, None, None]
    assert await master.committed(4) == await saved.committed(4) == [5, None, 0, 4]
    assert [each.offset for each in await master.offsets.get("audit", [("orders", 2)], master.rules)] == [None]


@under(run)
async def test_queue_that_a_group_has_read_before_it_is_added_stays_where_it_is(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await grow(master, 3)
    master.store.ranges["orders", 2] = (0, 10)
    await master.commit(5, 5, 5)
    narrow = TopicUpdate(TopicConfig("orders", 2, 2), ("write_queues",))
    await master.topics.update(narrow, validate_only=False)
    await grow(master, 4)

    assert await master.committed(4) == [5, 5, 5, 0]


@under(run)
async def test_offsets_that_outlived_a_crash_do_not_count_for_what_was_made_again(tmp_path: Path) -> None:
    """The file that was last written still has them."""
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5, 5)
    old = list(master.offsets.table.rows())
    await master.topics.delete("orders", validate_only=False)
    await master.topics.create(TopicConfig("orders", 2, 2), validate_only=False)
    master.offsets.table.put(old, 3, 1_000)
    of_topic = await master.committed()
    await master.groups.delete("billing", validate_only=False)
    await master.groups.create(GroupConfig("billing"), validate_only=False)
    master.offsets.table.put([ConsumerOffset("orders", "billing", 0, 12, 0, old[0].incarnation)], 3, 1_000)

    assert of_topic == [None, None]
    assert await master.committed() == [None, None]


@under(run)
async def test_offsets_are_on_the_disk_after_5_s_and_not_written_without_a_change(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    saving = asyncio.create_task(master.offsets.run())
    await master.commit(5, 7)
    await asyncio.sleep(SAVE_S + 0.5)
    file = tmp_path / "config" / "consumerOffset.json"
    written = file.stat().st_mtime_ns
    await asyncio.sleep(3 * SAVE_S)
    saving.cancel()

    again = MetadataNode.make(tmp_path)
    assert await again.metadata.load() == []
    assert [row.offset for row in again.metadata.offsets.rows()] == [5, 7]
    assert file.stat().st_mtime_ns == written


@under(run)
async def test_each_save_leaves_what_was_saved_before_as_bak(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5)
    await master.offsets.save()
    await master.commit(6)
    await master.offsets.save()
    (tmp_path / "config" / "consumerOffset.json").write_bytes(b"{")

    again = MetadataNode.make(tmp_path)
    assert len(await again.metadata.load()) == 1
    assert [row.offset for row in again.metadata.offsets.rows()] == [5]


@under(run)
async def test_full_disk_keeps_offsets_in_memory_until_there_is_room(tmp_path: Path) -> None:
    storage = CrashingStorage(OsStorage(tmp_path))
    master = await OffsetsOfMaster(tmp_path, storage).fill()
    await master.commit(5)
    storage.free = 0
    await master.offsets.save()
    committed = await master.committed()
    storage.free = None
    await master.offsets.save()

    again = MetadataNode.make(tmp_path)
    await again.metadata.load()
    assert committed == [5, None]
    assert [row.offset for row in again.metadata.offsets.rows()] == [5]


@under(run)
async def test_new_master_clamps_offsets_beyond_its_log_as_a_reset_does(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5, 9)
    master.store.ranges["orders", 1] = (0, 8)

    await master.offsets.clamp(4)

    assert await master.committed() == [5, 8]
    assert await master.commit(5, 8, resets=0) == [5, 8]
    found = await master.offsets.get("billing", [("orders", 1)], master.rules)
    assert (found[0].resets, master.offsets.clamped) == (1, 1)


@under(run)
async def test_offsets_that_a_slave_took_come_home_and_those_of_what_was_deleted_do_not(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5)
    [row] = master.offsets.table.rows()
    returned = [
        replace(row, offset=7),
        replace(row, queue=1, offset=99),
        replace(row, topic="gone", offset=1),
        replace(row, group="gone", offset=1),
        replace(row, queue=1, incarnation=row.incarnation - 1, offset=9),
    ]

    assert await master.offsets.take_returned(returned, master.rules) == (2, 3)
    assert await master.committed() == [7, 10]
    assert await master.offsets.take_returned([replace(row, offset=6)], master.rules) == (0, 0)
    assert await master.committed() == [7, 10]


@under(run)
async def test_commit_with_a_reset_count_that_none_can_have_told_is_refused(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(9)
    await master.offsets.reset("billing", "orders", {0: 9}, master.rules)

    with pytest.raises(InvalidField, match=r"commits\[0\].reset_count"):
        await master.commit(5, resets=1 + MOST_UNHEARD_RESETS + 1)

    assert await master.commit(10, resets=1) == [10]


@under(run)
async def test_commit_tells_a_master_of_resets_that_it_never_heard_of(tmp_path: Path) -> None:
    """The group was moved back, and the master that did it died before others knew: what it has not read since comes."""
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(9)

    assert await master.commit(5, resets=2) == [5]


@under(run)
async def test_returned_reset_count_that_none_can_have_told_is_refused(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(9, 3)
    damaged, sound = master.offsets.table.rows()
    version = master.offsets.table.version

    with pytest.raises(InvalidField, match=r"offsets\[1\].reset_count"):
        await master.offsets.take_returned([replace(sound, offset=8), replace(damaged, offset=5, resets=2**63 - 1)], master.rules)

    assert await master.committed() == [9, 3]
    assert master.offsets.table.version == version


@under(run)
async def test_slave_returns_the_others_when_a_master_refuses_one(tmp_path: Path) -> None:
    """The one is damaged: no master will ever take it."""
    for name in ("master", "slave"):
        (tmp_path / name).mkdir()
    master = await OffsetsOfMaster(tmp_path / "master").fill()
    await master.commit(3, 3)
    first, second = master.offsets.table.rows()
    slave = OffsetsOfMaster(tmp_path / "slave").offsets.unreturned
    slave.put([replace(first, offset=9, resets=2**63 - 1), replace(second, offset=8)])

    async def give(rows: Sequence[ConsumerOffset]) -> tuple[int, int]:
        return await master.offsets.take_returned(rows, master.rules)

    returning = asyncio.create_task(slave.return_them(lambda: False, give))
    await asyncio.sleep(5)
    returning.cancel()

    assert await master.committed() == [3, 8]
    assert slave.rows == ()


@under(run)
async def test_new_master_drops_its_own_reset_count_that_none_can_have_told(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(3, 3)
    first, second = master.offsets.table.rows()
    master.offsets.unreturned.put([replace(first, offset=9, resets=2**63 - 1), replace(second, offset=8)])
    await master.offsets.save()
    await master.offsets.take_own(master.rules)

    assert await master.committed() == [3, 8]
    assert master.offsets.unreturned.rows == ()


@under(run)
async def test_what_a_slave_took_before_a_reset_changes_nothing(tmp_path: Path) -> None:
    master = await OffsetsOfMaster(tmp_path).fill()
    await master.commit(5)
    [row] = master.offsets.table.rows()
    await master.offsets.reset("billing", "orders", {0: 1}, master.rules)

    assert await master.offsets.take_returned([replace(row, offset=7)], master.rules) == (0, 0)
    assert await master.committed() == [1, None]


@under(run)
async def test_slave_keeps_its_commits_apart_from_its_masters_table_and_on_its_disk(tmp_path: Path) -> None:
    slave = await OffsetsOfMaster(tmp_path).fill()
    await slave.commit(5)
    version = slave.offsets.table.version
    slave.rules = replace(slave.rules, keeps_apart=True)

    assert await slave.commit(7, 2) == [7, 2]
    await slave.offsets.save()

    assert slave.offsets.table.version == version
    again = ConsumerOffsets(slave.node.metadata, slave.store, slave.lane, slave.node.clock, files=slave.node.files, file_lane=InlineLane())
    await again.take_own(replace(slave.rules, keeps_apart=False))
    assert [row.offset for row in again.table.rows()] == [7, 2]
    assert again.unreturned.rows == ()
