"""Delivers what waits in the delay queues when it is due, while this master leads.

    a queue's readable messages that are due ▶ copies for their own topics, as one batch of the queue's system producer ▶ the writer

The copies' sequences are the offsets in the queue. So the log of every replica says how far each queue is delivered, a new master goes on
there, and what a copy's batch left out cannot be delivered. Only confirmed messages are looked at.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, NoReturn, TypeVar

import structlog

from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.lane_reads import read_on
from dittomq.broker.pulse import GrowthPulse
from dittomq.broker.topics import MasterTopics
from dittomq.commitlog.store import Store
from dittomq.delays import (
    CANCEL_TOPIC,
    DELAY_QUEUES,
    OP_TOPIC,
    ORIGIN,
    OUTCOME,
    QUEUES_OF,
    REAL_QUEUE,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    WAITING_KEYS,
    WAITING_PROPERTIES,
    due_in,
    origin_of,
    timer_queue,
)
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.epoch_history import last_foreign_end
from dittomq.errors import (
    CorruptRecord,
    DiskFull,
    FencedEpoch,
    MessageTooLarge,
    NotEnoughReplicas,
    NotMaster,
    NotReady,
    OffsetOutOfRange,
    Refused,
)
from dittomq.message import Draft, StoredMessage
from dittomq.metadata.formats import DELAY_OFFSETS, TOPICS
from dittomq.metadata.rows import DelayOffset
from dittomq.metadata.tables import Table
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import PhysicalOffset, QueueOffset
from dittomq.properties import encode_properties, tags_code
from dittomq.reads import MAX_LONG, ReadableRange
from dittomq.transactions import EXPIRED_TOPIC, TransactionEnd
from dittomq.wire.publishing import PublishOrder
from services.master.cancelled_messages import still_cancelled
from services.master.delay_queues import DelayQueue, Moment, neighbours
from services.master.produce import PendingProduce, ProduceHandler
from services.master.system_queues import RepairWait, stored_from
from services.master.term import Term
from services.master.unheard_topics import UnheardTopics

_MOST_MESSAGES: Final = 1_024
_MOST_BYTES: Final = 4 * 1024 * 1024
_REST_S: Final = 0.01  # between two looks: what comes meanwhile is delivered together
_LOOK_S: Final = 1.0  # the wall clock may be set
_BACKOFF_S: Final = 1.0
_HELD_MS: Final = 20
_SAVE_S: Final = 10.0
_KNOWN_S: Final = 3.0
R = TypeVar("R")
_PASSES = NotReady, NotMaster, NotEnoughReplicas, DiskFull

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DeliveryParts:
    """`lane` is one for reads. `damaged` is told where a record is not whole."""

    node: str
    store: Store
    lane: Executor
    dispatcher: Dispatcher
    clock: Clock
    topics: MasterTopics
    appends: ProduceHandler
    damaged: Callable[[int], None]

    async def read(self, work: Callable[[], R]) -> R:
        """Read on the lane."""
        return await read_on(self.lane, work, self.damaged)


class CancelMark(Enum):
    """What is known of a waiting message that somebody has cancelled."""

    HELD = auto()  # it is being decided
    WRITING = auto()  # the cancellation is on its way into the log
    CANCELLED = auto()  # the cancellation is in the log


_STAYS: Final = frozenset({CancelMark.HELD, CancelMark.WRITING})


class _Copies(NamedTuple):
    """What one batch of a queue delivers: `drafts` of the first messages; the queue goes on at `next`. No drafts: these go nowhere."""

    drafts: list[Draft]
    next: QueueOffset


@dataclass(slots=True)
class DelayedDelivery:
    """The delivery of one term. Whoever cancels a message marks it as held first: it is left where it is until that is decided."""

    parts: DeliveryParts
    queues: list[DelayQueue] = field(init=False)
    unheard: UnheardTopics = field(init=False)
    marks: dict[int, CancelMark] = field(default_factory=dict)  # by the place of the message's first record
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # no copies are on their way
    _term: Term | None = None
    _used: list[DelayQueue] = field(default_factory=list)  # those that ever held a message
    _queue_count: int = -1
    _waits: dict[str, RepairWait] = field(default_factory=dict)  # by the queues' producers

    def __post_init__(self) -> None:
        parts = self.parts
        self.queues = [DelayQueue(*each) for each in DELAY_QUEUES]
        self.unheard = UnheardTopics(parts.topics, parts.store, parts.lane)

    @property
    def term(self) -> Term:
        """The term in which it delivers; NotReady before it knows what its log holds."""
        if self._term is None:
            raise NotReady(self.parts.node, "it does not know yet which delayed messages are delivered; ask again")
        return self._term

    async def know_own_records(self, term: Term, unchanged: str) -> None:
        """Return when all that this master has written can be found; raises NotReady, which says what is `unchanged`, after 3 s."""
        try:
            async with asyncio.timeout(_KNOWN_S):
                await self.parts.dispatcher.wait_applied(term.written)
        except TimeoutError as late:
            raise NotReady(self.parts.node, f"what it wrote last is not confirmed yet; {unchanged}, ask again") from late

    async def is_confirmed(self, pending: PendingProduce) -> bool:
        """Whether what was written is confirmed, as far as it is known when the wait for that is over."""
        try:
            stored = await self.parts.appends.finish(pending)
        except FencedEpoch:
            return False
        return stored.placed[-1].end <= self.term.confirm.confirmed

    async def run(self, term: Term) -> None:
        """Deliver until cancelled. Raises StorageFailure, in a group."""
        parts = self.parts
        await parts.dispatcher.wait_applied(term.opened.start)  # what the log holds, all of its copies too
        await self._resume()
        self.unheard.begin(term.opened.start)
        self._term = term
        self.settled.set()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._deliver(), name="delayed messages")
            tasks.create_task(self._save(), name="delay offsets")

    async def _deliver(self) -> NoReturn:
        parts = self.parts
        while True:
            pulse = parts.dispatcher.pulse()
            try:
                wait_s = await self._round()
            except _PASSES as passing:
                log.info("delayed_delivery_waits", node=parts.node, reason=str(passing))
                wait_s = _BACKOFF_S
                pulse = GrowthPulse()
            await pulse.wait(wait_s)
            await asyncio.sleep(_REST_S)

    async def _round(self) -> float | None:
        """Deliver one batch of each queue that has something due; how many seconds to wait then, None: until something new can be read."""
        parts, now = self.parts, self._now()
        readable = self.term.confirm.confirmed
        found = await parts.lane.call(lambda: self._look(now, ReadableRange(readable, readable)))
        if not found:
            waits = [wait_ms for queue in self._used if (wait_ms := queue.wait_ms(self._now())) is not None]
            return min(_LOOK_S, min(waits) / 1_000) if waits else None
        await self._show_topics({queue.topic for queue, _ in found})
        self.settled.clear()
        async with asyncio.TaskGroup() as tasks:
            stored = [tasks.create_task(self._store(queue, due), name="delivery") for queue, due in found]
        self.settled.set()
        if refused := next(filter(None, (task.result() for task in stored)), None):
            raise refused
        return 0

    def _look(self, now: Moment, readable: ReadableRange) -> list[tuple[DelayQueue, list[StoredMessage]]]:
        """What is due of each queue. On a lane: nobody else changes the queues meanwhile."""
        store, found = self.parts.store, []
        if (count := store.queue_count) != self._queue_count:
            self._queue_count, self._used = count, [each for each in self.queues if store.has_queue(each.topic, each.queue)]
        for queue in self._used:
            low, high = store.queue_range(queue.topic, queue.queue)
            if not queue.see(low, high, now):
                continue
            messages = self._read(queue, readable)
            if messages and (due := queue.take_due(messages, now)):
                found.append((queue, due))
        return found

    def _read(self, queue: DelayQueue, readable: ReadableRange) -> Sequence[StoredMessage]:
        """The next messages of a queue, the first one at least; none while that one cannot be had."""
        try:
            found = self.parts.store.read_queue(queue.topic, queue.queue, queue.next, _MOST_MESSAGES, _MOST_BYTES, readable=readable)
            messages = neighbours(found.messages) if found.messages else ()
            return self._all_committed(messages) if queue.topic == OP_TOPIC else messages
        except OffsetOutOfRange:  # dropped after the look at the queue's range
            queue.wake = _later(self._now(), _HELD_MS)
        except (CorruptRecord, MessageTooLarge) as problem:
            self._meet_damage(queue, problem)
        return ()

    def _all_committed(self, ops: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """What the leading ones of these op records deliver. Raises CorruptRecord, or MessageTooLarge, for the first one."""
        found: list[StoredMessage] = []
        size = 0
        for op in ops:
            try:
                message = self._committed(op)
            except (CorruptRecord, MessageTooLarge):
                if found:
                    break
                raise
            size += len(message.body)
            if found and size > _MOST_BYTES:
                break
            found.append(message)
        return found

    def _committed(self, op: StoredMessage) -> StoredMessage:
        """The half message that an op record delivers, in the op's place; the op itself, which goes nowhere, where it delivers none."""
        end = op.properties.get(OUTCOME, "")
        if end not in {TransactionEnd.COMMIT, TransactionEnd.EXPIRED} or not op.keys:
            return op
        found = self.parts.store.message_at(int(op.keys[0]), MAX_LONG)
        if found is None:
            log.warning("committed_message_is_gone", node=self.parts.node, half=op.keys[0])
            return op
        properties = dict(found[0].properties)
        if end == TransactionEnd.EXPIRED:
            properties |= {REAL_TOPIC: EXPIRED_TOPIC, REAL_QUEUE: "0"}
        return found[0]._replace(queue_offset=op.queue_offset, store_ms=op.store_ms, properties=properties)

    def _meet_damage(self, queue: DelayQueue, problem: CorruptRecord | MessageTooLarge) -> None:
        """Wait for the repair; what cannot be had for ten minutes is passed over, so that it does not hold up all behind it."""
        parts, wait = self.parts, self._waits.setdefault(queue.producer_id, RepairWait())
        if isinstance(problem, CorruptRecord):
            parts.damaged(problem.position)
        queue.wake = _later(self._now(), 1_000)
        if wait.is_over(queue.next, problem, parts.clock.monotonic()):
            log.warning("delayed_message_passed_over", node=parts.node, queue=queue.queue, offset=queue.next, reason=str(problem))
            queue.pass_to(QueueOffset(queue.next + 1))

    async def _show_topics(self, names: set[str]) -> None:
        """Let the table name the system's topics that are in use."""
        for name in sorted(names - self.parts.topics.metadata.table(TOPICS).rows.keys()):
            await self.parts.topics.add_system(TopicConfig(name, QUEUES_OF[name], QUEUES_OF[name]))

    async def _store(self, queue: DelayQueue, due: Sequence[StoredMessage]) -> Refused | None:
        """Hand copies of the leading messages to the writer and wait until they are written; why none are taken now, None when they are.

        A copy that no record can hold is passed over.
        """
        await self.unheard.show(message for message in due if origin_of(message) not in self.marks)
        drafts, after = self._copies(queue, due)  # no topic goes between this and the writer's queue
        if drafts:
            size = sum(len(draft.body) + len(draft.properties) for draft in drafts)
            first = due[0].queue_offset
            order = PublishOrder(drafts, size, queue.producer_id, first, ack=None, timeout_s=None, sent_since=None)
            try:
                await (await self.parts.appends.begin(order)).written
            except _PASSES as passing:
                return passing
            except Refused as refused:
                if len(drafts) > 1:
                    return await self._store(queue, due[:1])
                log.warning("delayed_message_passed_over", node=self.parts.node, queue=queue.queue, offset=first, reason=str(refused))
        if after == due[0].queue_offset:  # it is held
            queue.wake = _later(self._now(), _HELD_MS)
            return None
        if not drafts:
            for message in due[: after - due[0].queue_offset]:
                self.marks.pop(origin_of(message), None)
        queue.pass_to(after)
        return None

    def _copies(self, queue: DelayQueue, due: Sequence[StoredMessage]) -> _Copies:
        """Of the leading ones that are not held: of all that can be delivered, or none of all that go nowhere."""
        topics, now_ms = self.parts.topics.writable(), self.parts.clock.wall_ms()
        drafts: list[Draft] = []
        dropped = 0
        for message in due:
            mark = self.marks.get(origin_of(message))
            draft = _next_of(message, topics, queue.producer_id, now_ms) if mark is None else None
            if mark in _STAYS or (dropped if draft is not None else drafts):
                break
            if draft is not None:
                drafts.append(draft)
                continue
            dropped += 1
            if mark is None and queue.topic != OP_TOPIC:
                log.warning("delayed_message_has_no_topic", node=self.parts.node, queue=queue.queue, offset=message.queue_offset)
        return _Copies(drafts, QueueOffset(due[0].queue_offset + dropped + len(drafts)))

    async def _resume(self) -> None:
        """Go on where the log says; where it cannot be read now, after a while."""
        while True:
            with contextlib.suppress(NotReady):
                return await self.parts.lane.call(self._find_ends)
            await asyncio.sleep(_BACKOFF_S)

    def _find_ends(self) -> None:
        """Go on behind the last copies in the log; where RocketMQ has delivered messages of its own, behind those."""
        store = self.parts.store
        for queue in self.queues:
            queue.next = delivered_to(store, queue, self._left_by_rocketmq(queue) if queue.topic == SCHEDULE_TOPIC else 0)
        self._recall_cancellations()

    def _left_by_rocketmq(self, queue: DelayQueue) -> int:
        row = self.parts.topics.metadata.table(DELAY_OFFSETS).rows.get(queue.queue + 1)
        return row.rocketmq_offset if row else 0

    def _recall_cancellations(self) -> None:
        """Know what of that which waits was cancelled, by this master or another one."""
        ends = {(queue.topic, queue.queue): int(queue.next) for queue in self.queues}
        waiting = still_cancelled(stored_from(self.parts.store, CANCEL_TOPIC, 0), ends)
        self.marks = dict.fromkeys(waiting, CancelMark.CANCELLED)

    async def _save(self) -> NoReturn:
        """Tell RocketMQ, in its own file, what is delivered: only what no election undoes, some seconds late."""
        written, rows = PhysicalOffset(0), dict[int, DelayOffset]()
        while True:
            await asyncio.sleep(_SAVE_S)
            if rows and written <= self.term.confirm.confirmed:
                with contextlib.suppress(*_PASSES):
                    await self._change(rows)
            levels = [queue for queue in self._used if queue.topic == SCHEDULE_TOPIC and queue.next]
            rows = {queue.queue + 1: DelayOffset(queue.queue + 1, queue.next, self._left_by_rocketmq(queue)) for queue in levels}
            written = self.term.written

    async def _change(self, rows: Mapping[int, DelayOffset]) -> None:
        topics = self.parts.topics

        def saved(table: Table[DelayOffset]) -> Table[DelayOffset]:
            if all(table.rows.get(level) == row for level, row in rows.items()):
                return table
            return table.changed({**table.rows, **rows}.values(), topics.epoch(), self.parts.clock.wall_ms())

        await topics.metadata.change(DELAY_OFFSETS, saved)

    def _now(self) -> Moment:
        clock = self.parts.clock
        return Moment(clock.wall_ms(), int(clock.monotonic() * 1_000))


def delivered_to(store: Store, queue: DelayQueue, rocketmq_offset: int) -> QueueOffset:
    """Up to where the queue is delivered: by the copies in the log, and by RocketMQ, whose copies do not say of what they are.

    RocketMQ is believed of what waited when it wrote last, so far as this log holds that. Raises NotReady.
    """
    low, _ = store.queue_range(queue.topic, queue.queue)
    last = store.last_delivered(queue.producer_id)
    known = max(low, 0 if last is None else last + 1)
    if rocketmq_offset <= known:
        return QueueOffset(known)
    _, believed_end = store.queue_range_below(queue.topic, queue.queue, last_foreign_end(store.epoch_history, store.end))
    return QueueOffset(max(known, min(rocketmq_offset, believed_end)))


def _later(now: Moment, ms: int) -> Moment:
    return Moment(now.wall_ms + ms, now.running_ms + ms)


def _next_of(message: StoredMessage, topics: Mapping[str, TopicConfig], producer_id: str, now_ms: int) -> Draft | None:
    """What is stored of a message that has waited in its queue: for another queue as long as it is not due, else what is delivered."""
    identity = f"PID\x01{producer_id}\x02SEQ\x01{message.queue_offset}\x02".encode()
    remaining_ms = due_in(message.properties) - now_ms
    return _hop_of(message, identity, remaining_ms) if remaining_ms > 0 else _copy_of(message, topics, identity)


def _hop_of(message: StoredMessage, identity: bytes, remaining_ms: int) -> Draft:
    """The draft that waits in another queue. Its key is the place of the first record, by which a cancellation finds it."""
    own, keys = dict(message.properties), " ".join(message.keys)
    if ORIGIN not in own and keys:
        own[WAITING_KEYS] = keys
    origin = own[ORIGIN] = str(origin_of(message))
    encoded = identity + encode_properties((origin,), message.tag, own)
    return Draft(TIMER_TOPIC, timer_queue(remaining_ms), message.flag, message.born_ms, message.body, encoded, tags_code(message.tag))


def _copy_of(message: StoredMessage, topics: Mapping[str, TopicConfig], identity: bytes) -> Draft | None:
    """The draft that delivers a message; None when its topic is not there. A queue that was taken away has another one's place."""
    properties = message.properties
    name, queue = properties.get(REAL_TOPIC, ""), properties.get(REAL_QUEUE, "")
    topic = topics.get(name)
    if topic is None or not (queue.isascii() and queue.isdigit() and len(queue) <= 10):
        return None
    number = int(queue) if int(queue) < max(topic.write_queues, topic.read_queues) else int(queue) % topic.write_queues
    keys = tuple(properties.get(WAITING_KEYS, "").split()) if ORIGIN in properties else message.keys
    own = {key: value for key, value in properties.items() if key not in WAITING_PROPERTIES}
    encoded = identity + encode_properties(keys, message.tag, own)
    return Draft(name, number, message.flag, message.born_ms, message.body, encoded, tags_code(message.tag))
