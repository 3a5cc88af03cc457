"""How far a group is behind, and resets: refused with members, all or nothing, in either direction."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from dittomq.broker.group_progress import MasterResets, ProgressReads
from dittomq.commitlog.reading import QueueSlice
from dittomq.consumer_progress import GroupProgress, QueueProgress, QueueReset, ResetOrder, ResetTarget
from dittomq.errors import DittoError, GroupNotFound, OffsetOutOfRange, PreconditionFailed, QueueNotFound, TopicNotFound
from dittomq.offsets import QueueOffset
from tests.support.inline_lane import InlineLane
from tests.support.metadata_node import FakeTopicStore, run
from tests.support.offsets_of_master import OffsetsOfMaster
from tests.support.virtual_time import under


class TimedQueues(FakeTopicStore):
    """Queues in memory; message N was stored N s after the beginning of time."""

    def offset_at(self, topic: str, queue: int, time_ms: int, end: int) -> int | None:
        low, high = self.queue_range(topic, queue)
        return None if low == high else min(high, max(low, -(-time_ms // 1_000)))

    def read_queue(self, topic: str, queue: int, offset: int, max_messages: int, max_bytes: int) -> QueueSlice:  # noqa: PLR0917
        low, high = (QueueOffset(each) for each in self.queue_range(topic, queue))
        return QueueSlice([], QueueOffset(offset), low, high)


class Activity:
    """A coordinator that knows these members, by the queue that each reads."""

    def __init__(self) -> None:
        self.reading: dict[tuple[str, int], str] = {}
        self.unsettled_s = 0.0

    def members(self, group: str) -> Sequence[str]:
        return sorted(set(self.reading.values()))

    def holders(self, group: str) -> Mapping[tuple[str, int], str]:
        return self.reading

    def settles_in_s(self) -> float:
        return self.unsettled_s


class Progress:
    """The master of OffsetsOfMaster, with a coordinator."""

    def __init__(self, folder: Path) -> None:
        self.master, self.activity, self.queues = OffsetsOfMaster(folder), Activity(), TimedQueues()
        self.queues.ranges = self.master.store.ranges
        offsets, rules, clock = self.master.offsets, self.master.rules, self.master.node.clock
        self.reads = ProgressReads(offsets, self.queues, InlineLane(), clock, rules=rules, activity=self.activity)
        self.resets = MasterResets(offsets, self.queues, InlineLane(), rules, self.activity)

    async def reset(self, target: ResetTarget, value: int = 0, *queues: int, topic: str = "orders") -> list[QueueReset]:
        return await self.resets.reset(ResetOrder("billing", topic, target, value, queues))


@under(run)
async def test_progress_names_lag_and_member_of_each_queue(tmp_path: Path) -> None:
    node = Progress(tmp_path)
    await node.master.fill()
    node.master.store.ranges["orders", 1] = (4, 10)
    await node.master.commit(7)
    node.activity.reading["orders", 1] = "m1"

    progress = await node.reads.get("billing", "")

    queues = (QueueProgress("orders", 0, 7, 10, 3), QueueProgress("orders", 1, None, 10, 6, member="m1"))
    assert progress == GroupProgress(queues, ("m1",))
    with pytest.raises(TopicNotFound):
        await node.reads.get("billing", "bills")
    with pytest.raises(GroupNotFound):
        await node.reads.get("biling", "")


@pytest.mark.parametrize(
    ("target", "value", "moved"),
    [
        (ResetTarget.EARLIEST, 0, 2),
        (ResetTarget.LATEST, 0, 10),
        (ResetTarget.TIME, 4_500, 5),
        (ResetTarget.TIME, 99_000, 10),
        (ResetTarget.OFFSET, 3, 3),
    ],
)
@under(run)
async def test_reset_moves_every_queue_and_outlives_later_commits(tmp_path: Path, target: ResetTarget, value: int, moved: int) -> None:
    node = Progress(tmp_path)
    master = await node.master.fill()
    master.store.ranges |= {("orders", 0): (2, 10), ("orders", 1): (2, 10)}
    await master.commit(6)

    assert await node.reset(target, value) == [QueueReset(0, 6, moved), QueueReset(1, None, moved)]

    assert await master.commit(9, 9, resets=0) == [moved, moved]
    saved = [row.offset for row in master.offsets.table.rows()]
    await master.node.metadata.load()
    assert [row.offset for row in master.offsets.table.rows()] == saved == [moved, moved]


@pytest.mark.parametrize(
    ("order", "refusal"),
    [
        (ResetOrder("billing", "orders", ResetTarget.OFFSET, 11), OffsetOutOfRange),
        (ResetOrder("billing", "orders", ResetTarget.EARLIEST, queues=(0, 2)), QueueNotFound),
        (ResetOrder("billing", "bills", ResetTarget.EARLIEST), TopicNotFound),
        (ResetOrder("biling", "orders", ResetTarget.EARLIEST), GroupNotFound),
    ],
    ids=["beyond the end", "unknown queue", "unknown topic", "unknown group"],
)
@under(run)
async def test_refused_reset_moves_nothing(tmp_path: Path, order: ResetOrder, refusal: type[DittoError]) -> None:
    node = Progress(tmp_path)
    master = await node.master.fill()
    await master.commit(5, 5)

    with pytest.raises(refusal):
        await node.resets.reset(order)

    assert await master.committed() == [5, 5]


@pytest.mark.parametrize("validate_only", [True, False])
@under(run)
async def test_reset_with_active_members_is_refused_and_names_them(tmp_path: Path, validate_only: bool) -> None:
    node = Progress(tmp_path)
    master = await node.master.fill()
    await master.commit(5)
    node.activity.reading["orders", 0] = "billing-7c9"

    with pytest.raises(PreconditionFailed, match="has active members: billing-7c9"):
        await node.resets.reset(ResetOrder("billing", "orders", ResetTarget.EARLIEST, validate_only=validate_only))

    assert await master.committed() == [5, None]


@under(run)
async def test_reset_is_refused_until_members_can_have_found_a_new_master(tmp_path: Path) -> None:
    node = Progress(tmp_path)
    master = await node.master.fill()
    await master.commit(5)
    node.activity.unsettled_s = 6.2

    with pytest.raises(PreconditionFailed, match="may not have found the new master yet; ask again in 7 s"):
        await node.reset(ResetTarget.EARLIEST)
    assert await master.committed() == [5, None]
    node.activity.unsettled_s = 0.0
    assert (await node.reset(ResetTarget.EARLIEST))[0] == QueueReset(0, 5, 0)


@under(run)
async def test_reset_that_is_only_validated_moves_nothing(tmp_path: Path) -> None:
    node = Progress(tmp_path)
    master = await node.master.fill()
    await master.commit(5)

    order = ResetOrder("billing", "orders", ResetTarget.LATEST, queues=(0,), validate_only=True)

    assert await node.resets.reset(order) == [QueueReset(0, 5, 10)]
    assert await master.committed() == [5, None]
