"""Topics of one broker group, as its nodes answer for them. A master changes them, a slave names the master."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn, Protocol

from dittomq.broker.metadata import Metadata
from dittomq.delays import SYSTEM_TOPICS
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import DiskFull, NotMaster, PermissionDenied, TopicExists, VersionConflict
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.tables import Ask, QueueMinimums, Table, TablePage, answer
from dittomq.metadata.topics import QueueStatus, TopicConfig, TopicUpdate, check_new_topic, check_topic_name, find_topic, updated

# What a caller may ask of a topic; the other fields stay as they are.
_ASKED_FIELDS = ("read_queues", "write_queues", "permission")


class TopicStore(Protocol):
    """The part of a store that knows queues. All calls block and run on a lane."""

    def queue_range(self, topic: str, queue: int) -> tuple[int, int]: ...

    def next_offsets(self, topic: str) -> QueueMinimums: ...

    def hide(self, minimums: QueueMinimums) -> None: ...

    def minimums(self) -> QueueMinimums: ...


class TopicChanges(Protocol):
    """Creates, changes and deletes topics, or says who does."""

    async def create(self, topic: TopicConfig, validate_only: bool) -> tuple[TopicConfig, bool]: ...

    async def update(self, update: TopicUpdate, validate_only: bool) -> tuple[TopicConfig, bool]: ...

    async def delete(self, name: str, validate_only: bool) -> None: ...


def nothing_is_missing() -> None:
    """Of a node of which others need not be asked: what is not here is not there."""


def nothing_follows(name: str, epoch: int) -> None:
    """Of a deletion."""


async def nobody_reads(topic: str, queues: range, epoch: int) -> None:
    """Of queues that are added."""


class TopicReads:
    """Answers what topics there are, from this node's table and store. `lane` is one for reads.

    `check_complete` raises NotReady while others may have topics that this node lacks.
    """

    def __init__(
        self, node: str, metadata: Metadata, store: TopicStore, lane: Executor, *, check_complete: Callable[[], None] = nothing_is_missing
    ) -> None:
        self._node = node
        self._metadata = metadata
        self._store = store
        self._lane = lane
        self._check_complete = check_complete

    async def get(self, name: str) -> tuple[TopicConfig, list[QueueStatus]]:
        """The topic and what each of its queues holds here."""
        check_topic_name(name, "name")
        rows = self._metadata.table(TOPICS).rows
        if name not in rows:
            self._check_complete()
        topic = find_topic(rows, name, self._node)
        queues = range(max(topic.read_queues, topic.write_queues))
        return topic, await self._lane.call(lambda: [QueueStatus(queue, *self._store.queue_range(name, queue)) for queue in queues])

    def list(self, page_size: int, page_token: str) -> TablePage[TopicConfig]:
        """A page of topics, by name, the system's own left out; VersionConflict when the table moved on since the page before."""
        table = self._metadata.table(TOPICS)
        if not table.rows:
            self._check_complete()
        rows = {name: row for name, row in table.rows.items() if name not in SYSTEM_TOPICS}
        return answer(TOPICS.name, Table(table.version, rows), Ask(page_size=page_size, page_token=page_token))


@dataclass(frozen=True, slots=True)
class MasterTopics:
    """Creates, changes and deletes the group's topics.

    `store_lane` is the one on which the store is written; `epoch` tells the one in which this master leads, or raises NotReady.
    `caught_up` returns when all messages that were taken in before are written or refused. `deleted` is told of a deletion, when it is
    durable, and of its epoch. `grows` is told of queues before a topic gets them, and of the epoch.
    """

    node: str
    metadata: Metadata
    store: TopicStore
    store_lane: Executor
    clock: Clock
    epoch: Callable[[], int]
    caught_up: Callable[[], Awaitable[None]]
    deleted: Callable[[str, int], None] = nothing_follows
    grows: Callable[[str, range, int], Awaitable[None]] = nobody_reads
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change after the other
    _going: set[str] = field(default_factory=set)  # the topic that is being deleted

    def writable(self) -> Mapping[str, TopicConfig]:
        """The topics that messages are taken in for, by name: one that is being deleted is not among them any more."""
        rows = self.metadata.table(TOPICS).rows
        return {name: row for name, row in rows.items() if name not in self._going} if self._going else rows

    async def create(self, topic: TopicConfig, validate_only: bool) -> tuple[TopicConfig, bool]:
        """Create the topic, durably before returning; tells the topic as it is and whether it is new.

        A topic that exists with equal settings is left alone, one with others raises TopicExists.
        """
        check_new_topic(topic)
        self.epoch()
        if validate_only:
            existing = _existing(self.metadata.table(TOPICS), topic)
            return existing or topic, existing is None
        async with self._turn:
            await self.store_lane.call(lambda: self.store.hide(self._minimums(topic.name)))  # a deletion may have been cut short
            hidden = await self.store_lane.call(self.store.minimums)  # a master that lost its tables has them here only
            after = await self.metadata.change(TOPICS, lambda table: self._with(table, topic, hidden))
        stored = after.rows[topic.name]
        return stored, stored is topic  # a topic that was there is another object

    async def update(self, update: TopicUpdate, validate_only: bool) -> tuple[TopicConfig, bool]:
        """Change settings of the topic, durably before returning; tells the topic as it is and whether something changed.

        Raises TopicNotFound, InvalidField, and VersionConflict when the change is for another version of the topics.
        """
        name = update.topic.name
        check_topic_name(name, "topic.name")
        self.epoch()
        async with self._turn:
            table = self.metadata.table(TOPICS)
            after = self._with_update(table, update)
            if not validate_only:
                if added := range(_count(table.rows[name]), _count(after.rows[name])):
                    await self.grows(name, added, self.epoch())
                after = await self.metadata.change(TOPICS, lambda newest: self._with_update(newest, update))
        return after.rows[name], after.rows[name] is not table.rows[name]

    async def delete(self, name: str, validate_only: bool) -> None:
        """Delete the topic, durably before returning: its queues hold nothing any more, its records stay in the log.

        The table says from where on a topic of that name is another one; the store follows it, here and on every copy, now or at the
        latest before the topic is there again. Made anew, it continues the queue offsets. What was taken in for it is written before
        and goes with it: a message behind that place would bring the topic back when a master next looks what its log holds.
        """
        check_topic_name(name, "name")
        if name in SYSTEM_TOPICS:
            raise PermissionDenied(f'topic "{name}" is the system\'s own, and messages may wait in it; it cannot be deleted')
        find_topic(self.metadata.table(TOPICS).rows, name, self.node)
        self.epoch()
        if validate_only:
            return
        async with self._turn:
            self._going.add(name)
            try:
                await self.caught_up()
                ends = await self.store_lane.call(lambda: self.store.next_offsets(name))
                await self.metadata.change(TOPICS, lambda table: self._without(table, name, ends))
            finally:
                try:
                    await self.metadata.settled()  # a caller that leaves does not stop the change
                finally:
                    self._went(name)
            with contextlib.suppress(DiskFull):
                await self.store_lane.call(lambda: self.store.hide(self._minimums(name)))

    def _went(self, name: str) -> None:
        """The deletion has ended, well or not."""
        self._going.discard(name)
        table = self.metadata.table(TOPICS)
        if name not in table.rows:
            self.deleted(name, table.version.state_version)

    async def add_system(self, topic: TopicConfig) -> None:
        """Let the table name a topic of the system's, durably before returning; one that it names stays as it is.

        Raises NotReady while this master does not lead.
        """
        if topic.name in self.metadata.table(TOPICS).rows:
            return
        self.epoch()

        def known(table: Table[TopicConfig]) -> Table[TopicConfig]:
            if topic.name in table.rows:
                return table
            return table.with_row(topic, self.epoch(), self.clock.wall_ms())

        async with self._turn:
            await self.metadata.change(TOPICS, known)

    def _with(self, table: Table[TopicConfig], topic: TopicConfig, hidden: QueueMinimums) -> Table[TopicConfig]:
        if _existing(table, topic) is not None:
            return table
        return table.with_row(topic, self.epoch(), self.clock.wall_ms()).hiding(hidden)

    def _with_update(self, table: Table[TopicConfig], update: TopicUpdate) -> Table[TopicConfig]:
        before = find_topic(table.rows, update.topic.name, self.node)
        if update.known is not None and update.known != table.version:
            raise VersionConflict(TOPICS.name)
        after = updated(before, update)
        if after is before:
            return table
        return table.with_row(after, self.epoch(), self.clock.wall_ms())

    def _without(self, table: Table[TopicConfig], name: str, ends: QueueMinimums) -> Table[TopicConfig]:
        if name not in table.rows:
            return table
        return table.without(name, self.epoch(), self.clock.wall_ms()).hiding(ends)

    def _minimums(self, name: str) -> QueueMinimums:
        return {key: low for key, low in self.metadata.table(TOPICS).minimums.items() if key[0] == name}


@dataclass(frozen=True, slots=True)
class SlaveTopics:
    """Changes nothing and names the master; `master` tells its client address, empty while unknown."""

    node: str
    master: Callable[[], str]

    async def create(self, topic: TopicConfig, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())

    async def update(self, update: TopicUpdate, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())

    async def delete(self, name: str, validate_only: bool) -> NoReturn:
        """Raise NotMaster."""
        raise NotMaster(self.node, self.master())


def _count(topic: TopicConfig) -> int:
    return max(topic.read_queues, topic.write_queues)


def _existing(table: Table[TopicConfig], asked: TopicConfig) -> TopicConfig | None:
    """The topic of that name when it has the settings asked for, None when there is none; TopicExists otherwise."""
    existing = table.rows.get(asked.name)
    if existing is None:
        return None
    for asked_field in _ASKED_FIELDS:
        has, wants = getattr(existing, asked_field), getattr(asked, asked_field)
        if has != wants:
            raise TopicExists(asked.name, asked_field, str(has), str(wants))
    return existing
