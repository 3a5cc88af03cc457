"""The topics that messages wait for and this master never heard of: the one before it made them seconds before it was gone.

A message was taken in for a topic that was there. If the topic is not in the table now, it was deleted since, or it was made later than
the tables that this node had when it began to lead. Then it is made again, with the queues that messages wait for. A topic that was deleted
stays deleted.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from dittomq.broker.topics import MasterTopics
from dittomq.commitlog.store import Store
from dittomq.consumer.retries import RETRY_PREFIX
from dittomq.delays import REAL_QUEUE, REAL_TOPIC, origin_of
from dittomq.doors.workers import Executor
from dittomq.epoch_history import entry_at
from dittomq.errors import CorruptRecord, InvalidField, MessageTooLarge, TopicNotFound
from dittomq.message import StoredMessage
from dittomq.metadata.formats import GROUPS, TOPICS
from dittomq.metadata.tables import QueueMinimums, Table
from dittomq.metadata.topics import MAX_QUEUES, TopicConfig, TopicUpdate, check_topic_name, is_reserved
from dittomq.offsets import PhysicalOffset
from dittomq.reads import MAX_LONG
from dittomq.routes import DataVersion
from dittomq.transactions import EXPIRED_TOPIC

log = structlog.get_logger()


@dataclass(slots=True)
class UnheardTopics:
    """Of one term, which begins with `begin`. `lane` is one for reads."""

    topics: MasterTopics
    store: Store
    lane: Executor
    _began: Table[TopicConfig] = field(default_factory=Table)
    _made: set[str] = field(default_factory=set)
    _start: PhysicalOffset = PhysicalOffset(0)

    def begin(self, start: PhysicalOffset) -> None:
        """The term begins there in the log, and the topics that this node knows by now are all that it inherits."""
        self._start, self._began = start, self.topics.metadata.table(TOPICS)

    async def show(self, waiting: Iterable[StoredMessage]) -> None:
        """Let the table name those that these messages wait for, durably before returning.

        Raises NotReady while this master does not lead, DiskFull.
        """
        wanted: dict[str, list[StoredMessage]] = {}
        rows = self.topics.metadata.table(TOPICS).rows
        for message in waiting:
            name = message.properties.get(REAL_TOPIC, "")
            if name not in rows or name in self._made:
                wanted.setdefault(name, []).append(message)
        for name, messages in wanted.items():
            if name in rows:
                await self._widen(rows[name], 1 + max(map(_queue_of, messages)))
            elif (topic := await self._topic(name, messages)) is not None:
                await self.topics.add_system(topic)
                log.info("unheard_topic_made", node=self.topics.node, topic=name, queues=topic.write_queues)

    async def _widen(self, topic: TopicConfig, queues: int) -> None:
        """A later message may wait for a higher queue than the first one."""
        if max(topic.read_queues, topic.write_queues) >= queues:
            return
        with contextlib.suppress(TopicNotFound):  # it is being deleted
            await self.topics.update(
                TopicUpdate(TopicConfig(topic.name, queues, queues), ("read_queues", "write_queues")), validate_only=False
            )

    async def _topic(self, name: str, messages: Sequence[StoredMessage]) -> TopicConfig | None:
        """The topic to make; None for one that was deleted, or that no topic can be."""
        if name == EXPIRED_TOPIC:
            return TopicConfig(name, 1, 1)
        if name.startswith(RETRY_PREFIX):
            group = self.topics.metadata.table(GROUPS).rows.get(name.removeprefix(RETRY_PREFIX))
            queues = 1 if group is None else group.retry_queues
            return TopicConfig(name, queues, queues)
        if not _may_be_made(name) or self._is_known(name):
            return None
        if not await self.lane.call(lambda: any(map(self._is_unheard, messages))):
            return None
        self._made.add(name)
        queues = 1 + max(map(_queue_of, messages))
        return TopicConfig(name, queues, queues)

    def _is_known(self, name: str) -> bool:
        """Whether the topic was there when the term began, or was deleted since: then its absence is a deletion."""
        now = self.topics.metadata.table(TOPICS)
        return name in self._began.rows or _minimums_of(now.minimums, name) != _minimums_of(self._began.minimums, name)

    def _is_unheard(self, message: StoredMessage) -> bool:
        """Whether a master before took it in, later than the topics changed that this node had when it began to lead."""
        if (at := PhysicalOffset(origin_of(message))) >= self._start:
            return False
        entry = entry_at(self.store.epoch_history, at)
        return is_later(self.topics.metadata.topics_before, 0 if entry is None else entry.epoch, self._stored_ms(message))

    def _stored_ms(self, message: StoredMessage) -> int:
        """When its first record was stored; that of this one, which is later, where the first is not there any more."""
        try:
            found = self.store.message_at(origin_of(message), MAX_LONG)
        except (CorruptRecord, MessageTooLarge):
            return message.store_ms
        return message.store_ms if found is None else found[0].store_ms


def is_later(version: DataVersion, epoch: int, stored_ms: int) -> bool:
    """Whether what was stored then, in that epoch, came when a table had another version than this one, or may have."""
    return (epoch, stored_ms) >= (version.state_version, version.timestamp_ms)


def _may_be_made(name: str) -> bool:
    try:
        check_topic_name(name)
    except InvalidField:
        return False
    return not is_reserved(name)


def _minimums_of(minimums: QueueMinimums, name: str) -> Mapping[tuple[str, int], int]:
    return {key: low for key, low in minimums.items() if key[0] == name}


def _queue_of(message: StoredMessage) -> int:
    text = message.properties.get(REAL_QUEUE, "")
    return min(int(text), MAX_QUEUES - 1) if text.isascii() and text.isdigit() and len(text) <= 10 else 0
