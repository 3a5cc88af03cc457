"""Another try of a message that a member could not handle: a copy, in the group's retry topic after a delay, or with its dead letters.

The copy is confirmed before the member hears of it: only then it may commit past the message. A repeated order finds the copy of the
first one as long as this master leads; after a failover there may be two, of which none is missing.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.lane_reads import read_on
from dittomq.broker.topics import MasterTopics
from dittomq.commitlog.records.format import Host
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
from dittomq.delays import LEVELS, MAX_WAITING_PROPERTIES_BYTES, schedule
from dittomq.doors.workers import Executor
from dittomq.errors import FencedEpoch, LimitReached, OffsetOutOfRange, Refused
from dittomq.message import Draft, StoredMessage
from dittomq.metadata.formats import TOPICS
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.offsets import PhysicalOffset
from dittomq.properties import encode_properties, tags_code
from dittomq.reads import MAX_PULL_BYTES, ReadableRange
from dittomq.wire.consumer_sessions import SendBackOrder, SentBack
from dittomq.wire.publishing import PublishOrder
from services.master.produce import PendingProduce, ProduceHandler
from services.master.term import Term

_REMEMBERED: Final = 100_000
_AT_ONCE: Final = 1_024

log = structlog.get_logger()

_Key = tuple[str, int, int, TopicQueue, int]


@dataclass(frozen=True, slots=True)
class SendBackParts:
    """`lane` is one for reads. `find` tells a group that may consume, or raises why not. `damaged` is told where a record is not whole."""

    node: str
    store: Store
    lane: Executor
    topics: MasterTopics
    offsets: ConsumerOffsets
    rules: OffsetRules
    appends: ProduceHandler
    leading_term: Callable[[], Term]
    find: Callable[[str], GroupConfig]
    damaged: Callable[[int], None]


@dataclass(slots=True)
class _RetryCopy:
    """A copy that the writer has. `ticket` None: it is confirmed."""

    answer: SentBack
    ticket: PendingProduce | None


@dataclass(slots=True)
class SendBack:
    """Sends back, for one master."""

    parts: SendBackParts
    _copies: "OrderedDict[_Key, _RetryCopy]" = field(default_factory=OrderedDict)
    _going: "dict[_Key, asyncio.Future[None]]" = field(default_factory=dict)

    async def send_back(self, order: SendBackOrder) -> SentBack:
        """Return when the copy is confirmed.

        Raises GroupNotFound, TopicNotFound, OffsetOutOfRange where there is no such message, and FencedEpoch when nobody knows whether
        the copy is stored: the order is to be repeated then.
        """
        self.parts.leading_term()
        group = self.parts.find(order.group)
        [committed] = await self.parts.offsets.get(group.name, [order.source], self.parts.rules)
        key = group.name, group.incarnation, committed.resets, order.source, order.offset
        while (before := self._going.get(key)) is not None:
            await asyncio.wait([before])
        if len(self._going) >= _AT_ONCE:
            raise LimitReached("the list of messages that are sent back", _AT_ONCE)
        going = self._going[key] = asyncio.get_running_loop().create_future()
        try:
            copy = self._copies.get(key)
            if copy is None:
                copy = await self._store_copy(order, group)
                self._remember(key, copy)
            await self._confirmed(key, copy)
            return copy.answer
        finally:
            del self._going[key]
            going.cancel()

    def _remember(self, key: _Key, copy: _RetryCopy) -> None:
        self._copies[key] = copy
        if len(self._copies) > _REMEMBERED:
            self._copies.popitem(last=False)

    async def _confirmed(self, key: _Key, copy: _RetryCopy) -> None:
        """Wait for it, also where another call has stored it and has left."""
        if copy.ticket is None:
            return
        try:
            await confirmed(copy.ticket)
        except (Refused, FencedEpoch):
            self._copies.pop(key, None)
            raise
        copy.ticket = None

    async def _store_copy(self, order: SendBackOrder, group: GroupConfig) -> _RetryCopy:
        message, host = await self._read(order)
        decided = decide_retry(tries_before(message.properties), group.retry_max_times, LEVELS, level=order.level)
        draft = _copy_of(message, group, decided, _message_id(host, message.physical_offset))
        if len(draft.properties) > MAX_WAITING_PROPERTIES_BYTES:  # no room for what another try needs
            decided = DeadLetter(decided.times)
            draft = copied_to(message, dead_letter_topic(group.name), 0, message.properties)
        draft = draft._replace(queue=draft.queue % await self._show_topic(draft.topic, group))
        if isinstance(decided, RetryAfter) and decided.level:
            draft = schedule(draft, decided.level)
        ticket = await self.parts.appends.begin(PublishOrder.of_broker([draft]))
        if isinstance(decided, DeadLetter):
            log.warning("message_given_up", group=group.name, topic=message.topic, queue=message.queue, offset=message.queue_offset)
        return _RetryCopy(SentBack(isinstance(decided, DeadLetter), decided.times), ticket)

    async def _read(self, order: SendBackOrder) -> tuple[StoredMessage, Host | None]:
        """The message, and the host that stored it."""
        store, (topic, queue) = self.parts.store, order.source
        find_topic(self.parts.topics.metadata.table(TOPICS).rows, topic, self.parts.node)
        end = self.parts.leading_term().confirm.confirmed

        def read() -> tuple[StoredMessage, Host | None]:
            found = store.read_queue(topic, queue, order.offset, 1, MAX_PULL_BYTES, readable=ReadableRange(end, end))
            if not found.messages or found.messages[0].queue_offset != order.offset:
                raise OffsetOutOfRange("queue offset", order.offset, *store.queue_range_below(topic, queue, end))
            message = found.messages[0]
            at = store.message_at(message.physical_offset, end)
            return message, None if at is None else at[1]

        return await read_on(self.parts.lane, read, self.parts.damaged)

    async def _show_topic(self, name: str, group: GroupConfig) -> int:
        """The group's own topics are made when they are first used; the queues that members read, as many as the group asked for then."""
        queues = group.retry_queues if name == retry_topic(group.name) else 1
        await self.parts.topics.add_system(TopicConfig(name, queues, queues))
        return read_queues_of(self.parts.topics, name, queues)


async def confirmed(ticket: PendingProduce) -> None:
    """Wait until all of it is confirmed. A Refused means that nothing is stored, FencedEpoch that nobody knows.

    Whoever leaves meanwhile stops nothing, and others may wait for the same.
    """
    end = max(run.end for run in await asyncio.shield(ticket.written))
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


def _copy_of(message: StoredMessage, group: GroupConfig, decided: RetryAfter | DeadLetter, message_id: str) -> Draft:
    extra = dict(message.properties)
    extra.setdefault(RETRY_TOPIC, message.topic)
    extra.setdefault(ORIGIN_MESSAGE_ID, message_id)
    extra[RECONSUME_TIME] = str(decided.times)
    properties = {name: value for name, value in extra.items() if value}
    if isinstance(decided, DeadLetter):
        return copied_to(message, dead_letter_topic(group.name), 0, properties)
    return copied_to(message, retry_topic(group.name), int(message.queue_offset) % group.retry_queues, properties)


def read_queues_of(topics: MasterTopics, name: str, wanted: int) -> int:
    """Queues that members read of a topic of the group's own; of one that is not there yet as many as the group wants."""
    known = topics.metadata.table(TOPICS).rows.get(name)
    return wanted if known is None else known.read_queues


def copied_to(message: StoredMessage, topic: str, queue: int, properties: Mapping[str, str]) -> Draft:
    """The same message for that queue of another topic, with these properties of its own."""
    encoded = encode_properties(message.keys, message.tag, properties)
    return Draft(topic, queue, message.flag, message.born_ms, message.body, encoded, tags_code(message.tag))


def _message_id(host: Host | None, position: PhysicalOffset) -> str:
    """RocketMQ's, of a record there; "" where nobody knows the host."""
    if host is None:
        return ""
    return (host.address + (host.port & 0xFFFF_FFFF).to_bytes(4, "big") + position.to_bytes(8, "big")).hex().upper()
