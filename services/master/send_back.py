"""Another try of a message that a member could not handle: a copy, in the group's retry topic after a delay, or with its dead letters.

The copy is confirmed before the member hears of it: only then it may commit past the message. A repeated order finds the copy of the
first one as long as this master leads; after a failover there may be two, of which none is missing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from dittomq.broker.topics import MasterTopics
from dittomq.commitlog.store import Store
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.retries import (
    ORIGIN_MESSAGE_ID,
    RECONSUME_TIME,
    RETRY_TOPIC,
    DeadLetter,
    RetryAfter,
    dead_letter_topic,
    decide_retry,
    retry_topic,
    tries_before,
)
from dittomq.delays import LEVELS, schedule
from dittomq.doors.workers import Executor
from dittomq.errors import FencedEpoch, LimitReached, OffsetOutOfRange
from dittomq.message import Draft, StoredMessage
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.offsets import PhysicalOffset
from dittomq.places import AppendResult
from dittomq.properties import encode_properties, tags_code
from dittomq.reads import MAX_PULL_BYTES, ReadableRange
from dittomq.wire.consumer_sessions import SendBackOrder, SentBack
from dittomq.wire.publishing import PublishOrder
from services.master.produce import ProduceHandler
from services.master.term import Term

_REMEMBERED: Final = 100_000
_AT_ONCE: Final = 1_024

log = structlog.get_logger()

_Key = tuple[str, TopicQueue, int]


@dataclass(frozen=True, slots=True)
class SendBackParts:
    """`lane` is one for reads. `find` tells a group that may consume, or raises why not; `message_id` is RocketMQ's, of a record there."""

    node: str
    store: Store
    lane: Executor
    topics: MasterTopics
    appends: ProduceHandler
    leading_term: Callable[[], Term]
    find: Callable[[str], GroupConfig]
    message_id: Callable[[PhysicalOffset], str]


@dataclass(slots=True)
class SendBack:
    """Sends back, for one master."""

    parts: SendBackParts
    _done: "OrderedDict[_Key, SentBack]" = field(default_factory=OrderedDict)
    _going: "dict[_Key, asyncio.Future[SentBack]]" = field(default_factory=dict)

    async def send_back(self, order: SendBackOrder) -> SentBack:
        """Return when the copy is confirmed.

        Raises GroupNotFound, TopicNotFound, OffsetOutOfRange where there is no such message, and FencedEpoch when nobody knows whether
        the copy is stored: the order is to be repeated then.
        """
        self.parts.leading_term()
        key = order.group, order.source, order.offset
        while (before := self._going.get(key)) is not None:
            await asyncio.wait([before])
        if (known := self._done.get(key)) is not None:
            return known
        if len(self._going) >= _AT_ONCE:
            raise LimitReached("the list of messages that are sent back", _AT_ONCE)
        going = self._going[key] = asyncio.get_running_loop().create_future()
        try:
            found = await self._store_copy(order)
            self._remember(key, found)
            return found
        finally:
            del self._going[key]
            going.cancel()

    def _remember(self, key: _Key, found: SentBack) -> None:
        self._done[key] = found
        if len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)

    async def _store_copy(self, order: SendBackOrder) -> SentBack:
        parts = self.parts
        group = parts.find(order.group)
        message = await self._read(order)
        decided = decide_retry(tries_before(message.properties), group.retry_max_times, LEVELS, level=order.level)
        draft = self._copy(message, group, decided)
        await self._show_topic(draft.topic, group)
        if isinstance(decided, RetryAfter) and decided.level:
            draft = schedule(draft, decided.level)
        await store_confirmed([draft], parts.appends, parts.leading_term)
        if isinstance(decided, DeadLetter):
            log.warning("message_given_up", group=group.name, topic=message.topic, queue=message.queue, offset=message.queue_offset)
        return SentBack(isinstance(decided, DeadLetter), decided.times)

    async def _read(self, order: SendBackOrder) -> StoredMessage:
        store, (topic, queue) = self.parts.store, order.source
        find_topic(self.parts.topics.metadata.table(TOPICS).rows, topic, self.parts.node)
        end = self.parts.leading_term().confirm.confirmed
        readable = ReadableRange(end, end)
        found = await self.parts.lane.call(
            lambda: store.read_queue(topic, queue, order.offset, 1, MAX_PULL_BYTES, readable=readable)
        )
        if not found.messages or found.messages[0].queue_offset != order.offset:
            raise OffsetOutOfRange("queue offset", order.offset, found.min, found.max)
        return found.messages[0]

    def _copy(self, message: StoredMessage, group: GroupConfig, decided: RetryAfter | DeadLetter) -> Draft:
        extra = dict(message.properties)
        extra.setdefault(RETRY_TOPIC, message.topic)
        extra.setdefault(ORIGIN_MESSAGE_ID, self.parts.message_id(message.physical_offset))
        extra[RECONSUME_TIME] = str(decided.times)
        retries = isinstance(decided, RetryAfter)
        return Draft(
            topic=retry_topic(group.name) if retries else dead_letter_topic(group.name),
            queue=int(message.queue_offset) % group.retry_queues if retries else 0,
            flag=message.flag,
            born_ms=message.born_ms,
            body=message.body,
            properties=encode_properties(message.keys, message.tag, extra),
            tags_code=tags_code(message.tag) if message.tag else 0,
        )

    async def _show_topic(self, name: str, group: GroupConfig) -> None:
        """The group's own topics are made when they are first used."""
        if name not in self.parts.topics.metadata.table(TOPICS).rows:
            queues = group.retry_queues if name == retry_topic(group.name) else 1
            await self.parts.topics.add_system(TopicConfig(name, queues, queues))


async def store_confirmed(drafts: list[Draft], appends: ProduceHandler, leading_term: Callable[[], Term]) -> list[AppendResult]:
    """Append and wait until all of it is confirmed. A Refused means that nothing is stored, FencedEpoch that nobody knows."""
    size = sum(len(draft.body) + len(draft.properties) for draft in drafts)
    order = PublishOrder(drafts, size, "", -1, ack=None, timeout_s=None, sent_since=None)
    ticket = await appends.begin(order)
    placed = list(await ticket.written)
    end = max(run.end for run in placed)
    term, moved = ticket.term, asyncio.Event()
    unlisten = term.listen(moved.set)
    try:
        while term.confirm.confirmed < end and not term.is_over:
            moved.clear()
            await moved.wait()
    finally:
        unlisten()
    if term.confirm.confirmed < end:
        raise FencedEpoch(f"the master of epoch {term.opened.epoch}", term.why_over)
    return placed
