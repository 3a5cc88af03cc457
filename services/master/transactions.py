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
from dittomq.commitlog.store import KeySearch
from dittomq.delays import OP_TOPIC, OUTCOME, REAL_TOPIC
from dittomq.epoch_history import entry_at
from dittomq.errors import CorruptRecord, InvalidField, LimitReached, MessageNotFound, NotReady, PreconditionFailed, Refused
from dittomq.message import StoredMessage
from dittomq.metadata.topics import TopicConfig, find_topic
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.reads import MAX_LONG, ReadableRange
from dittomq.rpc.interceptors import taken_in_time
from dittomq.tokens import ConsistencyToken, encode_token, parse_id
from dittomq.transactions import EXPIRED_TOPIC, HALF_TOPIC, MAX_CHECKS, PRODUCER_GROUP, TransactionEnd, next_check_s, op_of
from dittomq.wire.publishing import PublishOrder
from dittomq.wire.transactions import EndOrder, TransactionCheck
from services.master.delayed_delivery import DelayedDelivery
from services.master.produce import PendingProduce
from services.master.term import Term

MAX_WATCHERS: Final = 256
MAX_PENDING: Final = 100_000
_TICK_S: Final = 1.0
_WINDOW_MS: Final = 86_400_000
"""Transactions that began so long before the newest record ended long ago: the last check of one comes some 13 minutes after its begin."""
_QUEUED_CHECKS: Final = 64  # of one watcher: what does not fit is asked again later
_READ: Final = 256, 1024 * 1024

log = structlog.get_logger()


@dataclass(slots=True)
class _Pending:
    """A half message whose transaction nobody has ended. `due` is on the monotonic clock."""

    half: PhysicalOffset
    group: str
    due: float
    checks: int = 0


@dataclass(slots=True)
class Transactions:
    """The transactions of one master."""

    broker: str
    delivery: DelayedDelivery
    _pending: dict[int, _Pending] = field(default_factory=dict)
    _scanned: QueueOffset = QueueOffset(0)
    _watchers: dict[str, list[asyncio.Queue[TransactionCheck]]] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def end(self, order: EndOrder) -> bool:
        """End a transaction; whether that is confirmed. Raises MessageNotFound, InvalidField, TopicNotFound, NotReady, and
        PreconditionFailed for one that has ended otherwise: nothing was ended.
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
        if sum(map(len, self._watchers.values())) >= MAX_WATCHERS:
            raise LimitReached("the list of producers that answer checks", MAX_WATCHERS)
        questions: asyncio.Queue[TransactionCheck] = asyncio.Queue(_QUEUED_CHECKS)
        self._watchers.setdefault(group, []).append(questions)
        try:
            while not self._stopping.is_set():
                question = await _next(questions)
                if question is not None:
                    await taken_in_time(send(question))
        finally:
            self._watchers[group].remove(questions)

    def stop(self) -> None:
        """The node stops: end all watches."""
        self._stopping.set()

    async def run(self, term: Term) -> NoReturn:
        """Ask about transactions that nobody has ended, until cancelled. Raises StorageFailure."""
        parts = self.delivery.parts
        await parts.dispatcher.wait_applied(term.opened.start)
        ended = await parts.lane.call(self._ended)
        while True:
            with contextlib.suppress(NotReady, CorruptRecord):
                while halves := await parts.lane.call(lambda: self._scan(term)):
                    self._take([half for half in halves if half.queue_offset not in ended])
                await self._check_due()
            await asyncio.sleep(_TICK_S)

    async def _begin_end(self, position: PhysicalOffset, order: EndOrder) -> PendingProduce | None:
        """The op record that is written now; None where the transaction has ended so before, which is confirmed."""
        parts, term = self.delivery.parts, self.delivery.term
        await self.delivery.know_own_records(term, "the transaction goes on")
        half, before = await parts.lane.call(lambda: self._look(position))
        if half is None:
            raise MessageNotFound(parts.node, order.token)
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

    def _look(self, position: PhysicalOffset) -> tuple[StoredMessage | None, StoredMessage | None]:
        """The half message, and the op record that has ended it. Blocks."""
        store = self.delivery.parts.store
        found = store.message_at(position, MAX_LONG)
        search = KeySearch(OP_TOPIC, str(position), 0, MAX_LONG, MAX_LONG, most=1, most_bytes=1)
        return None if found is None else found[0], next(iter(store.find_by_key(search, MAX_LONG).messages), None)

    def _ended(self) -> set[int]:
        """Queue offsets of half messages of the last day that have ended, by RocketMQ too. Blocks."""
        store = self.delivery.parts.store
        _, high = store.queue_range(OP_TOPIC, 0)
        _, half_high = store.queue_range(HALF_TOPIC, 0)
        newest = store.read_queue(HALF_TOPIC, 0, half_high - 1, 1, 1).messages if half_high else []
        since_ms = newest[0].store_ms - _WINDOW_MS if newest else 0
        self._scanned = store.offset_at(HALF_TOPIC, 0, since_ms, MAX_LONG) or QueueOffset(0)
        at, ended = store.offset_at(OP_TOPIC, 0, since_ms, MAX_LONG) or QueueOffset(0), set[int]()
        while at < high:
            found = store.read_queue(OP_TOPIC, 0, at, *_READ)
            for message in found.messages:
                ended.update(int(offset) for offset in message.body.split(b",") if offset.isdigit())
            at = QueueOffset(max(found.next_offset, at + 1))
        return ended

    def _scan(self, term: Term) -> list[StoredMessage]:
        """Half messages that were not seen yet. Blocks."""
        store, confirmed = self.delivery.parts.store, term.confirm.confirmed
        low, high = store.queue_range(HALF_TOPIC, 0)
        self._scanned = max(self._scanned, low)
        if self._scanned >= high or len(self._pending) >= MAX_PENDING:
            return []
        found = store.read_queue(HALF_TOPIC, 0, self._scanned, *_READ, readable=ReadableRange(confirmed, confirmed))
        self._scanned = found.next_offset
        return found.messages

    def _take(self, halves: Sequence[StoredMessage]) -> None:
        due = self.delivery.parts.clock.monotonic() + next_check_s(0)
        for half in halves:
            self._pending[half.physical_offset] = _Pending(half.physical_offset, half.properties.get(PRODUCER_GROUP, ""), due)

    async def _check_due(self) -> None:
        parts, now = self.delivery.parts, self.delivery.parts.clock.monotonic()
        for each in [each for each in self._pending.values() if each.due <= now]:
            half, before = await parts.lane.call(partial(self._look, each.half))
            if half is None or before is not None:
                self._pending.pop(each.half, None)
            elif each.checks >= MAX_CHECKS:
                await self._expire(half)
            else:
                each.checks += 1
                each.due = now + next_check_s(each.checks)
                self._ask(half, each)

    async def _expire(self, half: StoredMessage) -> None:
        async with self._turn:
            if half.physical_offset not in self._pending:
                return
            with contextlib.suppress(Refused):
                await self._write(half, TransactionEnd.EXPIRED, None)
                log.warning("transaction_expired", node=self.delivery.parts.node, half=half.physical_offset)

    def _ask(self, half: StoredMessage, pending: _Pending) -> None:
        """Hand the question to one producer of the group; the next one is asked next time."""
        watchers = self._watchers.get(pending.group)
        if not watchers:
            return
        watchers.append(watchers.pop(0))
        entry = entry_at(self.delivery.parts.store.epoch_history, half.physical_offset)
        epoch, incarnation = (Epoch(0), None) if entry is None else (entry.epoch, entry.incarnation)
        end = PhysicalOffset(half.physical_offset + half.record_bytes)
        token = encode_token(self.broker, epoch, end, incarnation, size=half.record_bytes)
        with contextlib.suppress(asyncio.QueueFull):
            watchers[-1].put_nowait(TransactionCheck(token, half.properties.get(REAL_TOPIC, ""), half, pending.checks))


async def _next(questions: "asyncio.Queue[TransactionCheck]") -> TransactionCheck | None:
    """The next question; None when none came for a while."""
    try:
        async with asyncio.timeout(_TICK_S):
            return await questions.get()
    except TimeoutError:
        return None
