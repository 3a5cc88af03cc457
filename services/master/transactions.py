"""Ends transactions, and asks producers about those that nobody has ended: after 6 s, then at growing distances, 15 times.

The op record that ends one is all that is written here; the delivery of delayed messages does what it says.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

import structlog

from dittomq.broker.lookups import is_of
from dittomq.delays import OP_TOPIC, OUTCOME, REAL_TOPIC
from dittomq.epoch_history import entry_at
from dittomq.errors import (
    CorruptRecord,
    InvalidField,
    MessageNotFound,
    MessageTooLarge,
    NotReady,
    PreconditionFailed,
    Refused,
)
from dittomq.message import StoredMessage
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.rpc.interceptors import taken_in_time
from dittomq.rpc.permits import check_topic
from dittomq.tokens import ConsistencyToken, encode_token, parse_id
from dittomq.transactions import EXPIRED_TOPIC, HALF_TOPIC, MAX_CHECKS, PRODUCER_GROUP, ROCKETMQ_GROUP, TransactionEnd, next_check_s, op_of
from dittomq.wire.publishing import PublishOrder
from dittomq.wire.transactions import EndOrder, TransactionCheck
from services.master.check_watchers import CheckWatchers
from services.master.delayed_delivery import DelayedDelivery
from services.master.half_messages import HalfMessages
from services.master.produce import PendingProduce
from services.master.system_queues import RepairWait
from services.master.term import Term

MAX_PENDING: Final = 100_000
_TICK_S: Final = 1.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Pending:
    """A half message whose transaction nobody has ended. `due` is on the monotonic clock. `repair`: of it, or of what may have ended it."""

    half: PhysicalOffset
    group: str
    due: float
    checks: int = 0
    repair: RepairWait = field(default_factory=RepairWait)


@dataclass(slots=True)
class Transactions:
    """The transactions of one master."""

    broker: str
    delivery: DelayedDelivery
    _halves: HalfMessages = field(init=False)
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _watchers: CheckWatchers = field(default_factory=CheckWatchers)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        parts = self.delivery.parts
        self._halves = HalfMessages(parts.node, parts.store, parts.damaged)

    async def end(self, order: EndOrder) -> bool:
        """End a transaction; whether that is confirmed. Raises MessageNotFound, InvalidField, TopicNotFound, NotReady, CorruptRecord where
        the half message or what may have ended it is damaged, and PreconditionFailed for one that has ended otherwise: nothing was ended.
        """
        token, position = parse_id(order.token)
        if not isinstance(token, ConsistencyToken):
            raise InvalidField("token", "is RocketMQ's message id; a transaction is ended by the token of its receipt")
        if not is_of(self.delivery.parts.store, self.broker, token, order.token):
            raise MessageNotFound(self.delivery.parts.node, order.token)
        async with self._turn:
            pending = await self._begin_end(position, order)
        return pending is None or await self.delivery.is_confirmed(pending)

    async def watch(self, group: str, send: Callable[[TransactionCheck], Awaitable[None]]) -> None:
        """Ask until the node stops. Raises LimitReached, NotReady, and UnreadError when a question is not taken."""
        self.delivery.term  # noqa: B018  # NotReady before there is one
        with self._watchers.watching(group) as questions:
            while not self._stopping.is_set():
                question = await _next(questions)
                if question is not None:
                    await taken_in_time(send(question))

    def stop(self) -> None:
        """The node stops: end all watches."""
        self._stopping.set()

    async def run(self, term: Term) -> NoReturn:
        """Ask about transactions that nobody has ended, until cancelled. Raises StorageFailure."""
        parts = self.delivery.parts
        await parts.dispatcher.wait_applied(term.opened.start)
        left = parts.topics.metadata.offsets.get((HALF_TOPIC, ROCKETMQ_GROUP), 0)
        find_ended = partial(self._halves.ended, left.offset if left else 0)
        ended: set[int] | None = None
        while True:
            with contextlib.suppress(NotReady):
                ended = await parts.lane.call(find_ended) if ended is None else ended
                while halves := await self._unseen(term):
                    self._take([half for half in halves if half.queue_offset not in ended])
                await self._check_due()
            await asyncio.sleep(_TICK_S)

    async def _unseen(self, term: Term) -> Sequence[StoredMessage]:
        if len(self._pending) >= MAX_PENDING:
            return ()
        parts = self.delivery.parts
        return await parts.lane.call(lambda: self._halves.unseen(term.confirm.confirmed, parts.clock.monotonic()))

    async def _begin_end(self, position: PhysicalOffset, order: EndOrder) -> PendingProduce | None:
        """The op record that is written now; None where the transaction has ended so before, which is confirmed."""
        parts, term = self.delivery.parts, self.delivery.term
        await self.delivery.know_own_records(term, "the transaction goes on")
        half, before = await parts.read(lambda: self._halves.find(position))
        if half is None:
            raise MessageNotFound(parts.node, order.token)
        check_topic(half.properties.get(REAL_TOPIC, "") if half.topic == HALF_TOPIC else half.topic)
        if half.topic != HALF_TOPIC:
            raise PreconditionFailed(f"refused: the message of this token belongs to no transaction; it lies in topic {half.topic}")
        if before is not None:
            if before.properties.get(OUTCOME) != order.end:
                raise PreconditionFailed(f"refused: the transaction has ended already: {before.properties.get(OUTCOME, 'unknown')}")
            return None
        if order.end is TransactionEnd.COMMIT:
            await self.delivery.unheard.show([half])
            find_topic(parts.topics.writable(), half.properties.get(REAL_TOPIC, ""), parts.node)
        return await self._write(half, order.end, order.timeout_s)

    async def _write(self, half: StoredMessage, end: TransactionEnd, timeout_s: float | None) -> PendingProduce:
        parts = self.delivery.parts
        for name in (OP_TOPIC, HALF_TOPIC, *((EXPIRED_TOPIC,) if end is TransactionEnd.EXPIRED else ())):
            await parts.topics.add_system(TopicConfig(name, 1, 1))
        op = op_of(half, end, parts.clock.wall_ms())
        pending = await parts.appends.begin(PublishOrder.of_broker([op], timeout_s))
        await asyncio.shield(pending.written)
        self._pending.pop(half.physical_offset, None)
        return pending

    def _take(self, halves: Sequence[StoredMessage]) -> None:
        due = self.delivery.parts.clock.monotonic() + next_check_s(0)
        for half in halves:
            self._pending[half.physical_offset] = _Pending(half.physical_offset, half.properties.get(PRODUCER_GROUP, ""), due)

    async def _check_due(self) -> None:
        parts, now = self.delivery.parts, self.delivery.parts.clock.monotonic()
        for each in [each for each in self._pending.values() if each.due <= now]:
            try:
                half, before = await parts.read(partial(self._halves.find, each.half))
            except (CorruptRecord, MessageTooLarge) as problem:
                self._meet_damage(each, problem)
                continue
            each.repair = RepairWait()
            if half is None or before is not None:
                self._pending.pop(each.half, None)
            elif each.checks >= MAX_CHECKS:
                await self._expire(half)
            else:
                each.checks += 1
                each.due = now + next_check_s(each.checks)
                self._ask(half, each)

    def _meet_damage(self, pending: _Pending, problem: CorruptRecord | MessageTooLarge) -> None:
        """Ask nobody about what cannot be read; it is looked at again until it has been waited for long enough."""
        parts, now = self.delivery.parts, self.delivery.parts.clock.monotonic()
        pending.due = now + next_check_s(0)
        if pending.repair.is_over(pending.half, problem, now):
            log.warning("transaction_passed_over", node=parts.node, half=pending.half, reason=str(problem))
            self._pending.pop(pending.half, None)

    async def _expire(self, half: StoredMessage) -> None:
        async with self._turn:
            if half.physical_offset not in self._pending:
                return
            with contextlib.suppress(Refused):
                await self._write(half, TransactionEnd.EXPIRED, None)
                log.warning("transaction_expired", node=self.delivery.parts.node, half=half.physical_offset)

    def _ask(self, half: StoredMessage, pending: _Pending) -> None:
        """Hand the question to one producer of the group; the next one is asked next time."""
        questions = self._watchers.next_of(pending.group)
        if questions is None:
            return
        entry = entry_at(self.delivery.parts.store.epoch_history, half.physical_offset)
        epoch, incarnation = (Epoch(0), None) if entry is None else (entry.epoch, entry.incarnation)
        end = PhysicalOffset(half.physical_offset + half.record_bytes)
        token = encode_token(self.broker, epoch, end, incarnation, size=half.record_bytes)
        with contextlib.suppress(asyncio.QueueFull):
            questions.put_nowait(TransactionCheck(token, half.properties.get(REAL_TOPIC, ""), half, pending.checks))


async def _next(questions: "asyncio.Queue[TransactionCheck]") -> TransactionCheck | None:
    """The next question; None when none came for a while."""
    try:
        async with asyncio.timeout(_TICK_S):
            return await questions.get()
    except TimeoutError:
        return None
