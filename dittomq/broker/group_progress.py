"""How far consumer groups are behind, and offsets that an operator moves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn, Protocol

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.commitlog.reading import QueueSlice
from dittomq.consumer_progress import CommittedOffset, GroupProgress, QueueProgress, QueueReset, ResetOrder, ResetTarget
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import InvalidField, NotMaster, OffsetOutOfRange, PreconditionFailed, QueueNotFound, Refused, TopicNotFound

MAX_PROGRESS_QUEUES: Final = 10_000
_SHOWN_MEMBERS: Final = 5


class ReadableQueues(Protocol):
    """The part of a store that reads queues. All calls block and run on a lane."""

    def queue_range_below(self, topic: str, queue: int, end: int) -> tuple[int, int]: ...

    def offset_at(self, topic: str, queue: int, time_ms: int, end: int) -> int | None: ...

    def read_queue(self, topic: str, queue: int, offset: int, max_messages: int, max_bytes: int) -> QueueSlice: ...  # noqa: PLR0917


class GroupActivity(Protocol):
    """Who is active: what a group's coordinator knows."""

    def members(self, group: str) -> Sequence[str]:
        """Members that are there now."""
        ...

    def holders(self, group: str) -> Mapping[tuple[str, int], str]:
        """The member that reads each (topic, queue)."""
        ...

    def settles_in_s(self) -> float:
        """Seconds until every member that the master before knew has come, or is none any more."""
        ...


class NoMembers:
    """Of a node that knows of no members."""

    def members(self, group: str) -> Sequence[str]:
        """None."""
        return ()

    def holders(self, group: str) -> Mapping[tuple[str, int], str]:
        """None."""
        return {}

    def settles_in_s(self) -> float:
        """At once."""
        return 0.0


@dataclass(frozen=True, slots=True)
class ProgressReads:
    """Answers how far a group is, from this node's offsets and log. `lane` is one for reads."""

    offsets: ConsumerOffsets
    store: ReadableQueues
    lane: Executor
    clock: Clock
    rules: OffsetRules
    activity: GroupActivity

    async def get(self, group: str, topic: str) -> GroupProgress:
        """Of one topic, or, where `topic` is empty, of all in which the group has offsets or members.

        Raises GroupNotFound, TopicNotFound, and InvalidField for more than 10,000 queues.
        """
        self.offsets.find_group(group, self.rules)
        holders = self.activity.holders(group)
        queues = self._queues(group, topic, holders)
        if len(queues) > MAX_PROGRESS_QUEUES:
            raise InvalidField("topic", f"must be named: the group has {len(queues):,} queues, {MAX_PROGRESS_QUEUES:,} are told at once")
        committed = await self.offsets.get(group, queues, self.rules)
        end = self.rules.confirmed()
        found = [await self.lane.call(partial(self._of_queue, each, end)) for each in committed]
        rows = [
            QueueProgress(
                each.topic, each.queue, each.committed, each.end, each.lag, each.oldest_unread_ms, holders.get(key, ""), each.resets
            )
            for each in found
            for key in [(each.topic, each.queue)]
        ]
        return GroupProgress(tuple(rows), tuple(self.activity.members(group)))

    def _queues(self, group: str, topic: str, holders: Mapping[tuple[str, int], str]) -> list[tuple[str, int]]:
        if topic:
            topics = [topic]
        else:
            of_offsets = (name[0] for name in self.offsets.table.names if name[1] == group)
            topics = sorted({*of_offsets, *(of_member for of_member, _ in holders)})
        return [(name, queue) for name in topics for queue in range(self._count(name, is_asked=bool(topic)))]

    def _count(self, topic: str, *, is_asked: bool) -> int:
        """Its queues; a topic that was not asked for and is gone has none."""
        try:
            config = self.rules.topic(topic)
        except TopicNotFound:
            if is_asked:
                raise
            return 0
        return max(config.read_queues, config.write_queues)

    def _of_queue(self, of: CommittedOffset, end: int) -> QueueProgress:
        low, high = self.store.queue_range_below(of.topic, of.queue, end)
        begin = max(low, low if of.offset is None else of.offset)
        lag = max(0, high - begin)
        age_ms = None
        if lag:
            try:
                messages = self.store.read_queue(of.topic, of.queue, begin, 1, 1).messages
            except Refused:  # damaged, or dropped a moment ago
                messages = []
            age_ms = max(0, self.clock.wall_ms() - messages[0].store_ms) if messages else None
        return QueueProgress(of.topic, of.queue, of.offset, high, lag, age_ms, resets=of.resets)


class OffsetResets(Protocol):
    """Moves offsets, or says who does."""

    async def reset(self, order: ResetOrder) -> list[QueueReset]: ...


@dataclass(frozen=True, slots=True)
class MasterResets:
    """Moves offsets of groups that have no members."""

    offsets: ConsumerOffsets
    store: ReadableQueues
    lane: Executor
    rules: OffsetRules
    activity: GroupActivity

    async def reset(self, order: ResetOrder) -> list[QueueReset]:
        """Move the offsets, durably before returning: all, or none where one is refused; tells what was and is.

        Raises GroupNotFound, TopicNotFound, QueueNotFound, OffsetOutOfRange, and PreconditionFailed while the group has members,
        or may have some that have not found this master yet.
        """
        queues = self._check(order)
        end = self.rules.confirmed()
        targets = await self.lane.call(lambda: [self._target(order, queue, end) for queue in queues])
        before = await self.offsets.get(order.group, [(order.topic, queue) for queue in queues], self.rules)
        self._check(order)
        if not order.validate_only:
            await self.offsets.reset(order.group, order.topic, dict(zip(queues, targets, strict=True)), self.rules)
        return [QueueReset(each.queue, each.offset, target) for each, target in zip(before, targets, strict=True)]

    def _check(self, order: ResetOrder) -> Sequence[int]:
        """The queues to be moved."""
        self.rules.epoch()
        self.offsets.find_group(order.group, self.rules)
        topic = self.rules.topic(order.topic)
        count = max(topic.read_queues, topic.write_queues)
        for queue in order.queues:
            if queue >= count:
                raise QueueNotFound(order.topic, queue, count)
        members = self.activity.members(order.group)
        if members:
            names = ", ".join(members[:_SHOWN_MEMBERS]) + (" and others" if len(members) > _SHOWN_MEMBERS else "")
            raise PreconditionFailed(f'refused: group "{order.group}" has active members: {names}; stop them, then reset')
        if (wait_s := self.activity.settles_in_s()) > 0:
            raise PreconditionFailed(
                f'refused: members of group "{order.group}" may not have found the new master yet; ask again in {math.ceil(wait_s)} s'
            )
        return order.queues or range(count)

    def _target(self, order: ResetOrder, queue: int, end: int) -> int:
        low, high = self.store.queue_range_below(order.topic, queue, end)
        match order.target:
            case ResetTarget.EARLIEST:
                return low
            case ResetTarget.LATEST:
                return high
            case ResetTarget.TIME:
                found = self.store.offset_at(order.topic, queue, order.value, end)
                return low if found is None else min(high, found)
            case ResetTarget.OFFSET:
                if not low <= order.value <= high:
                    raise OffsetOutOfRange(f"queue {queue}: queue offset", order.value, low, high)
                return order.value


@dataclass(frozen=True, slots=True)
class SlaveResets:
    """Moves nothing and names the master; `master` tells its client address, empty while unknown."""

    node: str
    master: Callable[[], str]

    async def reset(self, order: ResetOrder) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())
