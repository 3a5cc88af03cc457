"""Cancels delayed messages while they wait. A cancellation is a record too: so it survives whatever a confirmed message survives.

held: no copy of it is handed to the writer ▶ does it wait? ▶ the record ▶ written: cancelled ▶ confirmed: answered
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from dittomq.broker.lookups import LookupService
from dittomq.broker.writer import WrittenBatch
from dittomq.delays import CANCEL_TOPIC, DELAY_QUEUES, OP_TOPIC, QUEUES_OF, REAL_TOPIC, TIMER_TOPIC
from dittomq.errors import InvalidField, LimitReached, MessageNotFound, PreconditionFailed
from dittomq.message import StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import PhysicalOffset
from dittomq.reads import MAX_LONG
from dittomq.rpc.permits import check_topic
from dittomq.tokens import ConsistencyToken, parse_id
from dittomq.wire.lookups import CancelOrder, CancelOutcome
from dittomq.wire.publishing import PublishOrder
from services.master.cancelled_messages import cancellation_of
from services.master.delayed_delivery import CancelMark, DelayedDelivery
from services.master.produce import PendingProduce
from services.master.system_queues import newest_about

MAX_CANCELLED: Final = 1_000_000
_WAITING_TOPICS: Final = frozenset(topic for topic, _, _ in DELAY_QUEUES) - {OP_TOPIC}


class Cancellation:
    """Decides about one message after the other; waits for confirmations of many."""

    def __init__(self, delivery: DelayedDelivery, lookups: LookupService) -> None:
        self._delivery = delivery
        self._lookups = lookups
        self._turn = asyncio.Lock()

    async def cancel(self, order: CancelOrder) -> CancelOutcome:
        """Let the message of that token never be delivered. Raises MessageNotFound, InvalidField, PreconditionFailed, NotReady, and
        CorruptRecord where the message or what may be its cancellation is damaged: nothing was cancelled.
        """
        token, origin = parse_id(order.token)
        if not isinstance(token, ConsistencyToken):
            raise InvalidField("token", "is RocketMQ's message id; a message is cancelled by the token of its receipt")
        parts = self._delivery.parts
        if not self._lookups.is_of(token, order.token):
            raise MessageNotFound(parts.node, order.token)
        async with self._turn:
            found = await self._decide(origin, order)
        if isinstance(found, CancelOutcome):
            return found
        return CancelOutcome.CANCELLED if await self._delivery.is_confirmed(found) else CancelOutcome.UNKNOWN

    async def _decide(self, origin: PhysicalOffset, order: CancelOrder) -> CancelOutcome | PendingProduce:
        """What has become of the message, or the cancellation that is written now."""
        delivery = self._delivery
        term = delivery.term
        if len(delivery.marks) >= MAX_CANCELLED:
            raise LimitReached("the number of cancelled messages that still wait", MAX_CANCELLED)
        known = delivery.marks.get(origin)
        async with self._held(origin):
            await delivery.settled.wait()
            await delivery.know_own_records(term, "nothing was cancelled")
            cancelled, place = await delivery.parts.read(lambda: self._look(origin, order.token))
            check_topic(place.properties.get(REAL_TOPIC, "") if place.topic in _WAITING_TOPICS else place.topic)
            if place.topic not in _WAITING_TOPICS:
                raise PreconditionFailed(f"refused: the message of this token was not delayed; it lies in topic {place.topic}")
            if cancelled is not None:
                return CancelOutcome.CANCELLED
            if known is CancelMark.CANCELLED:
                return CancelOutcome.UNKNOWN
            if not self._waits(place):
                return CancelOutcome.ALREADY_DELIVERED
            return await self._write(origin, place, order)

    @contextlib.asynccontextmanager
    async def _held(self, origin: PhysicalOffset) -> AsyncIterator[None]:
        """Inside it the message stays where it is; a cancellation that is written lets it stay there for good."""
        marks = self._delivery.marks
        marks.setdefault(origin, CancelMark.HELD)
        try:
            yield
        except BaseException:
            if marks.get(origin) is CancelMark.HELD:
                del marks[origin]
            raise
        if marks.get(origin) is CancelMark.HELD:
            del marks[origin]

    def _look(self, origin: PhysicalOffset, token: str) -> tuple[StoredMessage | None, StoredMessage]:
        """The cancellation of a message, if there is one, and the newest record of the message itself. Blocks."""
        store = self._delivery.parts.store
        first = store.message_at(origin, MAX_LONG)
        place = newest_about(store, TIMER_TOPIC, origin) or (None if first is None else first[0])
        if place is None:
            raise MessageNotFound(self._delivery.parts.node, token)
        return newest_about(store, CANCEL_TOPIC, origin), place

    def _waits(self, place: StoredMessage) -> bool:
        key = place.topic, place.queue
        return any((each.topic, each.queue) == key and place.queue_offset >= each.next for each in self._delivery.queues)

    async def _write(self, origin: PhysicalOffset, place: StoredMessage, order: CancelOrder) -> PendingProduce:
        """The cancellation, when it is written."""
        parts, marks = self._delivery.parts, self._delivery.marks
        await parts.topics.add_system(TopicConfig(CANCEL_TOPIC, QUEUES_OF[CANCEL_TOPIC], QUEUES_OF[CANCEL_TOPIC]))
        record = cancellation_of(origin, place, parts.clock.wall_ms())
        pending = await parts.appends.begin(PublishOrder.of_broker([record], order.timeout_s))
        marks[origin] = CancelMark.WRITING

        def settle(written: "asyncio.Future[WrittenBatch]") -> None:
            if written.cancelled() or written.exception() is not None:
                del marks[origin]
            else:
                marks[origin] = CancelMark.CANCELLED

        pending.written.add_done_callback(settle)  # also if whoever asked has left
        await asyncio.shield(pending.written)
        return pending
