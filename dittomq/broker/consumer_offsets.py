"""How far consumer groups have read: committed and asked for on the loop, on the disk a few seconds later.

A commit counts at once and is lost where the process dies within 5 s of it and no other replica has it: then messages come again, and
none is left out. An offset moves back only by a reset, or where the log ends below it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NoReturn, Protocol

import structlog

from dittomq.broker.config_files import ConfigFiles
from dittomq.broker.metadata import Metadata
from dittomq.broker.topics import nothing_is_missing
from dittomq.broker.unreturned_offsets import UnreturnedOffsets
from dittomq.consumer_progress import CommittedOffset, OffsetCommit
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, GroupNotFound, InvalidField, OffsetOutOfRange, QueueNotFound, TopicNotFound
from dittomq.metadata.formats import CONSUMER_OFFSETS, GROUPS, TOPICS
from dittomq.metadata.groups import check_group_name, find_group
from dittomq.metadata.offset_file import OffsetFile
from dittomq.metadata.offset_table import Committed, OffsetClamp, OffsetTable
from dittomq.metadata.rows import ConsumerOffset, GroupConfig
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import PhysicalOffset
from dittomq.reads import MAX_LONG

SAVE_S: Final = 5.0  # RocketMQ's flushConsumerOffsetInterval
MOST_UNHEARD_RESETS: Final = 1_000
"""A node that never heard of the last resets learns of them by a commit, so that nothing is passed over. So many it may have missed."""
_NAMES_AT_ONCE: Final = 500
_SHOWN_CLAMPS: Final = 20

log = structlog.get_logger()


class OffsetStore(Protocol):
    """The part of a store that knows queues. All calls block and run on a lane."""

    def queue_range_below(self, topic: str, queue: int, end: int) -> tuple[int, int]: ...

    def check_not_rewritten(self, topic: str, queue: int, offset: int, epoch: int) -> None: ...

    def queue_ends(self) -> dict[tuple[str, int], int]: ...


@dataclass(frozen=True, slots=True)
class OffsetRules:
    """What a role decides. `epoch` is the one in which offsets may be committed here, or it raises NotReady or NotMaster.

    `confirmed` is the end of what is confirmed, as this node knows it; `topic` finds one, or raises TopicNotFound. `check_complete` raises
    NotReady while others may have topics or groups that this node lacks. `keeps_apart`: a slave's commits are for its master to take.
    """

    node: str
    epoch: Callable[[], int]
    confirmed: Callable[[], PhysicalOffset]
    topic: Callable[[str], TopicConfig]
    check_complete: Callable[[], None] = nothing_is_missing
    keeps_apart: bool = False


class ConsumerOffsets:
    """The offsets of one node, whose `metadata` are loaded. `reads` is a lane for reads; `files` and `file_lane` write the file."""

    def __init__(
        self, metadata: Metadata, store: OffsetStore, reads: Executor, clock: Clock, *, files: ConfigFiles, file_lane: Executor
    ) -> None:
        self._metadata = metadata
        self._store = store
        self._reads = reads
        self._clock = clock
        self._files = files
        self._file_lane = file_lane
        self._file = OffsetFile()
        self.unreturned = UnreturnedOffsets(files, file_lane)
        self._turn = asyncio.Lock()
        self._saved = metadata.offsets.version
        self._is_disk_full = False
        self.clamped = 0  # offsets that were beyond their queue's end, since this service began

    @property
    def table(self) -> OffsetTable:
        """The offsets themselves."""
        return self._metadata.offsets

    async def get(self, group: str, queues: Sequence[tuple[str, int]], rules: OffsetRules) -> list[CommittedOffset]:
        """What the group has committed of each (topic, queue). Raises GroupNotFound, TopicNotFound."""
        config = self.find_group(group, rules)
        for topic in dict.fromkeys(topic for topic, _ in queues):
            self._find_topic(topic, rules)
        return [self._of_queue(config, topic, queue) for topic, queue in queues]

    async def commit(self, group: str, commits: Sequence[OffsetCommit], rules: OffsetRules) -> list[CommittedOffset]:
        """Record how far the group has read: all, or none where one is refused; tells what is recorded now.

        What is lower than recorded, or from before a reset, changes nothing. Raises GroupNotFound, TopicNotFound, QueueNotFound,
        OffsetOutOfRange for an offset beyond the end of what is confirmed, LogTruncated for one up to which a later master stored others,
        and InvalidField for a count of resets that none can have told.
        """
        config = self._check(group, commits, rules)
        rules.epoch()
        end = rules.confirmed()
        ranges = await self._reads.call(lambda: [self._range_below(each, end) for each in commits])
        for commit, (low, high) in zip(commits, ranges, strict=True):
            if commit.offset > high:
                raise OffsetOutOfRange("queue offset", commit.offset, low, high)
        if self._check(group, commits, rules).incarnation != config.incarnation:
            raise GroupNotFound(group, rules.node)  # it was deleted, and made again, while the queues were looked at
        epoch, rows = rules.epoch(), [self._row(config, commit, index) for index, commit in enumerate(commits)]
        if rules.keeps_apart:
            self.unreturned.put(rows)
        else:
            self.table.put(rows, epoch, self._clock.wall_ms())
        return [self._of_queue(config, commit.topic, commit.queue) for commit in commits]

    async def take_returned(self, rows: Sequence[ConsumerOffset], rules: OffsetRules) -> tuple[int, int]:
        """Take what a slave took while no master was there; tells how many were newer, and how many it dropped.

        One beyond what is confirmed here counts as its end. Dropped is what belongs to what was deleted. Raises InvalidField for a count of
        resets that no commit may have, and takes nothing then: who sends it is damaged.
        """
        rules.epoch()
        for index, row in enumerate(rows):
            if self._is_impossible(row):
                problem = f"{row.resets} of group {row.group} in {row.topic} {row.queue} is far above what is recorded: it is damaged"
                raise InvalidField(f"offsets[{index}].reset_count", problem)
        end = rules.confirmed()
        ranges = await self._reads.call(lambda: [self._store.queue_range_below(row.topic, row.queue, end) for row in rows])
        groups, topics = self._metadata.table(GROUPS).rows, self._metadata.table(TOPICS)
        known = [
            replace(row, offset=min(row.offset, high))
            for row, (_, high) in zip(rows, ranges, strict=True)
            if (group := groups.get(row.group)) is not None
            and group.incarnation == row.incarnation
            and row.topic in topics.rows
            and row.offset >= topics.minimums.get((row.topic, row.queue), 0)
        ]
        newer = [row for row in known if self.table.is_newer(row)]
        self.table.put(newer, rules.epoch(), self._clock.wall_ms())
        return len(newer), len(rows) - len(known)

    async def take_own(self, rules: OffsetRules) -> None:
        """A new master takes what it took itself when it was a slave, as soon as it leads."""
        await self.unreturned.load()
        if rows := self.unreturned.rows:
            possible = [row for row in rows if not self._is_impossible(row)]
            taken, dropped = await self.take_returned(possible, rules)
            log.info("consumer_offsets_returned", offsets=len(rows), taken=taken, dropped=dropped + len(rows) - len(possible))
            self.unreturned.drop(rows)
            await self.save()

    async def reset(self, group: str, topic: str, offsets: Mapping[int, int], rules: OffsetRules) -> None:
        """Move the offsets of these queues, in whichever direction, durably before returning. Raises StorageFailure."""
        config = self.find_group(group, rules)
        held = {queue: self._held(config, topic, queue) for queue in offsets}
        resets = {queue: 1 if each is None else each.resets + 1 for queue, each in held.items()}
        rows = [ConsumerOffset(topic, group, queue, offset, resets[queue], config.incarnation) for queue, offset in offsets.items()]
        self.table.put(rows, rules.epoch(), self._clock.wall_ms())
        log.info("consumer_offsets_reset", group=group, topic=topic, offsets=dict(offsets))
        await self.save()

    def find_group(self, name: str, rules: OffsetRules) -> GroupConfig:
        """The group of that name; raises GroupNotFound, and NotReady while others may know it."""
        check_group_name(name)
        rows = self._metadata.table(GROUPS).rows
        if name not in rows:
            rules.check_complete()
        return find_group(rows, name, rules.node)

    def forget_group(self, group: str, epoch: int) -> None:
        """The group is deleted, and its offsets go with it."""
        self.table.remove([name for name in self.table.names if name[1] == group], epoch, self._clock.wall_ms())

    def forget_topic(self, topic: str, epoch: int) -> None:
        """The topic is deleted, and all offsets in it go with it."""
        self.table.remove([name for name in self.table.names if name[0] == topic], epoch, self._clock.wall_ms())

    async def begin_queues(self, topic: str, queues: range, epoch: int) -> None:
        """The topic is about to get these queues: whoever has read it begins there at their first message, durably before returning.

        Else a group whose member joins only when there are messages could begin behind them. Raises StorageFailure.
        """
        firsts = await self._reads.call(lambda: {queue: self._store.queue_range_below(topic, queue, MAX_LONG)[0] for queue in queues})
        rows = [
            ConsumerOffset(topic, group.name, queue, first, incarnation=group.incarnation)
            for group in self._readers(topic)
            for queue, first in firsts.items()
            if self._held(group, topic, queue) is None
        ]
        if self.table.put(rows, epoch, self._clock.wall_ms()):
            log.info("added_queues_begin", topic=topic, queues=len(queues), groups=len({row.group for row in rows}))
            await self.save()

    async def clamp(self, epoch: int) -> None:
        """Move back, as a reset does, every offset that is beyond the end of its queue: a log was truncated below it.

        To be done before a master of that epoch takes its first message.
        """
        ends = await self._reads.call(self._store.queue_ends)
        clamps: list[OffsetClamp] = []
        names = iter(tuple(self.table.names))
        while some := tuple(islice(names, _NAMES_AT_ONCE)):
            clamps += self.table.beyond(some, ends)
            await asyncio.sleep(0)
        for row, was in [(clamp.row, clamp.was) for clamp in clamps[:_SHOWN_CLAMPS]]:
            log.warning("consumer_offset_clamped", topic=row.topic, group=row.group, queue=row.queue, offset=was, end=row.offset)
        if clamps:
            log.warning("consumer_offsets_clamped", offsets=len(clamps))
            self.clamped += len(clamps)
            self.table.put([clamp.row for clamp in clamps], epoch, self._clock.wall_ms())

    async def run(self) -> NoReturn:
        """Write what has changed every 5 s, until cancelled; raises StorageFailure."""
        while True:
            await asyncio.sleep(SAVE_S)
            await self.save()

    async def save(self) -> None:
        """Durably write the offsets, if they have changed. A full disk is logged; raises StorageFailure."""
        async with self._turn:
            await self.unreturned.save()
            table = self.table
            if table.version == self._saved:
                return
            while not self._file.take_changes(table, _NAMES_AT_ONCE):  # noqa: ASYNC110  # the loop's other work goes on
                await asyncio.sleep(0)
            snapshot = self._file.snapshot(table)
            try:
                data = await self._file_lane.call(lambda: self._file.encode(snapshot))
                await self._file_lane.run(self._files.save_bytes(CONSUMER_OFFSETS, data))
            except DiskFull as full:
                if not self._is_disk_full:
                    log.warning("consumer_offsets_not_saved", reason=str(full))
                self._is_disk_full = True
                return
            self._saved, self._is_disk_full = snapshot.version, False

    def _range_below(self, commit: OffsetCommit, end: int) -> tuple[int, int]:
        if commit.epoch is not None:
            self._store.check_not_rewritten(commit.topic, commit.queue, commit.offset, commit.epoch)
        return self._store.queue_range_below(commit.topic, commit.queue, end)

    def _check(self, group: str, commits: Sequence[OffsetCommit], rules: OffsetRules) -> GroupConfig:
        config = self.find_group(group, rules)
        for commit in commits:
            topic = self._find_topic(commit.topic, rules)
            queues = max(topic.read_queues, topic.write_queues)
            if commit.queue >= queues:
                raise QueueNotFound(commit.topic, commit.queue, queues)
        return config

    def _find_topic(self, name: str, rules: OffsetRules) -> TopicConfig:
        try:
            return rules.topic(name)
        except TopicNotFound:
            rules.check_complete()
            raise

    def _readers(self, topic: str) -> list[GroupConfig]:
        """The groups that have committed something in this topic."""
        groups = self._metadata.table(GROUPS).rows
        named = [(group, offsets) for name, offsets in self.table.of_topic(topic) if (group := groups.get(name)) is not None]
        return [group for group, offsets in named if any(self._held(group, topic, queue) is not None for queue in offsets.offsets)]

    def _row(self, group: GroupConfig, commit: OffsetCommit, index: int) -> ConsumerOffset:
        held = self._held(group, commit.topic, commit.queue)
        known = 0 if held is None else held.resets
        resets = known if commit.resets is None else commit.resets
        if resets > self._most_resets(group, commit.topic, commit.queue):
            problem = f"{resets} is far above {known}, which is recorded; send what came with the offset, or nothing"
            raise InvalidField(f"commits[{index}].reset_count", problem)
        return ConsumerOffset(commit.topic, group.name, commit.queue, commit.offset, resets, group.incarnation)

    def _is_impossible(self, row: ConsumerOffset) -> bool:
        """Whether its count of resets is one that nobody can have told."""
        group = self._metadata.table(GROUPS).rows.get(row.group)
        if group is None or group.incarnation != row.incarnation:
            return False
        held = self._in_table(group, row.topic, row.queue)
        return row.resets > MOST_UNHEARD_RESETS + (0 if held is None else held.resets)

    def _most_resets(self, group: GroupConfig, topic: str, queue: int) -> int:
        """The highest count that a commit may carry: a far higher one would void all later commits, and at last leave the field's range."""
        held = self._held(group, topic, queue)
        return MOST_UNHEARD_RESETS + (0 if held is None else held.resets)

    def _of_queue(self, group: GroupConfig, topic: str, queue: int) -> CommittedOffset:
        held = self._held(group, topic, queue)
        return CommittedOffset(topic, queue, None if held is None else held.offset, 0 if held is None else held.resets)

    def _held(self, group: GroupConfig, topic: str, queue: int) -> Committed | None:
        """What this group, and none of its name before it, has committed in this topic, and in none of its name before it."""
        in_table = self._in_table(group, topic, queue)
        apart = self.unreturned.get(topic, group.name, queue, group.incarnation)
        held = max((each for each in (in_table, apart) if each is not None), key=lambda each: each.order, default=None)
        is_old = held is not None and held.offset < self._metadata.table(TOPICS).minimums.get((topic, queue), 0)
        return None if is_old else held

    def _in_table(self, group: GroupConfig, topic: str, queue: int) -> Committed | None:
        of_name = self.table.of_name((topic, group.name))
        return None if of_name is None or of_name.incarnation != group.incarnation else of_name.get(queue)
