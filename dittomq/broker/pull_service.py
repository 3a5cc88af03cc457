"""⑧ Reading a queue, on masters and slaves alike: what is readable now, or what comes within the wait."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace

from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.lane_reads import read_on
from dittomq.broker.topics import nothing_is_missing
from dittomq.commitlog.store import QueueSlice, Store
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.epoch_history import entry_at, epoch_at
from dittomq.errors import (
    InvalidField,
    LimitReached,
    NotReady,
    OffsetOutOfRange,
    PermissionDenied,
    QueueNotFound,
    StaleCopy,
    TopicNotFound,
)
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import TopicConfig
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.reads import PullRequest, PullResult, PullStatus, PullStreamOrder, ReadableRange
from dittomq.routes import PERMISSION_READ
from dittomq.rpc.admission import AdmissionControl, Share
from dittomq.tokens import ConsistencyToken

MAX_WAITING_PULLS = 10_000  # and streams of pulls
_MESSAGE_BYTES = 512  # what a message takes beside its record
_ENDING = (PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE)


_NEW_GROUP = GroupConfig("")  # its settings are those of readers without a group, and of groups that this node does not know


def _ignore(_: int) -> None:
    """Nobody repairs."""


def _no_group(_: str) -> None:
    """No group is known."""


def _of_any_age(_: PhysicalOffset) -> None:
    """Nobody tells how old the copy is."""


@dataclass(frozen=True, slots=True)
class PullRules:
    """What a role decides: the readable end now, the topic of a name (TopicNotFound when there is none), and whether an offset
    beyond the end is refused (a master knows the end) or waited for (a slave may be behind).

    `room`: for what readers have not taken yet. `in_memory_bytes`: whoever reads farther back from the log's end had better ask a slave.

    `newer_topics` fetches topics and queues that this node may not know yet and returns in a bounded time, however that went; None on a
    node that knows them all. `damaged` is told where a record is not whole. `check_complete` raises NotReady while others may hold what
    this node lacks, so that it cannot say that a topic is not there, or that nothing follows.

    `group` tells a consumer group's settings, None for one that this node does not know. `staleness_s` tells how long ago, at most, all
    that was confirmed ended at or below a position: seconds, None while the node `node` cannot tell.
    """

    broker: str
    readable: Callable[[], ReadableRange]
    topic: Callable[[str], TopicConfig]
    refuses_beyond_end: bool
    room: AdmissionControl
    in_memory_bytes: int
    newer_topics: Callable[[], Awaitable[None]] | None = None
    damaged: Callable[[int], None] = _ignore
    check_complete: Callable[[], None] = nothing_is_missing
    node: str = ""
    group: Callable[[str], GroupConfig | None] = _no_group
    staleness_s: Callable[[PhysicalOffset], float | None] = _of_any_age


class PullService:
    """Answers pulls and streams of them.

    A pull that waits, and a stream for as long as it lasts, is one of a bounded number; others get LimitReached.
    """

    def __init__(self, store: Store, lane: Executor, dispatcher: Dispatcher, clock: Clock, *, rules: PullRules) -> None:
        self._store = store
        self._lane = lane
        self._dispatcher = dispatcher
        self._clock = clock
        self._room = rules.room
        self._rules = rules
        self._waiting = 0

    def pull(self, order: PullRequest, connection: str) -> "HeldAnswer":
        """Messages from the offset on, waiting for the first one as long as the order allows.

        They count as unread by this connection's client until the block ends: it ends when the answer is sent. Raises what is wrong with
        the order, LimitReached, and NotReady where it waits at a node that stops.
        """
        return HeldAnswer(self, order, connection, has_seat=False)

    async def stream(self, order: PullStreamOrder, connection: str) -> AsyncGenerator[PullResult, None]:
        """Answers without end, or as many as were ordered: each is made when the caller asks for it, so one at a time is unread.

        Raises what `pull` raises; NotReady as soon as the node stops, whatever there is to read.
        """
        pull, most, given = order.pull, order.max_responses, 0
        del order
        self._take_seat()
        try:
            while True:
                async with HeldAnswer(self, pull, connection, has_seat=True) as answer:
                    yield answer
                given += 1
                if given == most:
                    return
                pull = replace(pull, offset=answer.next_offset, epoch=answer.epoch)
                del answer  # it may be large, and the next one far away
                self._check_serves()
        finally:
            self._waiting -= 1

    async def answer(self, order: PullRequest, connection: str, *, has_seat: bool) -> tuple[PullResult, Share]:
        """The answer, and its room, which is to be given back."""
        deadline = self._clock.monotonic() + order.wait_s
        try:
            topic = self._rules.topic(order.topic)
        except TopicNotFound:
            topic = await self._find_topic(order.topic)
        if not topic.permission & PERMISSION_READ:
            topic = await self._find_topic(order.topic)
        self._check(order, topic)
        if order.queue >= topic.read_queues:
            await self._find_queue(order, topic)
        del topic
        while True:
            moved, grown = self._dispatcher.pulse(), self._dispatcher.pulse_of(order.topic, order.queue)
            share = await self._room.take(connection, order.max_bytes)
            try:
                answer = await self._look(order)
            except BaseException:
                share.give_back()
                raise
            left_s = deadline - self._clock.monotonic()
            if answer.status in _ENDING or left_s <= 0:
                share.settle(_size_of(answer))
                return answer, share
            share.give_back()
            pulse = moved if answer.status is PullStatus.BEHIND else grown  # a token's message may be in any queue
            del share, answer, moved, grown  # thousands may wait
            if not has_seat:
                self._take_seat()
            try:
                self._check_serves()
                await pulse.wait(left_s)
                self._check_serves()
            finally:
                self._waiting -= not has_seat

    async def _find_topic(self, name: str) -> TopicConfig:
        """The topic that may have been made a moment ago; TopicNotFound."""
        if self._rules.newer_topics is not None:
            self._take_seat()
            try:
                await self._rules.newer_topics()
            finally:
                self._waiting -= 1
        try:
            return self._rules.topic(name)
        except TopicNotFound:
            self._rules.check_complete()
            raise

    def _check(self, order: PullRequest, topic: TopicConfig) -> None:
        if not topic.permission & PERMISSION_READ:
            raise PermissionDenied(f'topic "{order.topic}" cannot be read: its permission is {topic.permission}, reading needs bit 4')
        if order.at_least is not None and order.at_least.broker != self._rules.broker:
            raise InvalidField("at_least", f'is of broker group "{order.at_least.broker}", this is "{self._rules.broker}"')
        if not self._settings(order.group).consume_enable:
            raise PermissionDenied(f"group {order.group} may not consume; let it: dittomq group update {order.group} --enable")

    async def _find_queue(self, order: PullRequest, topic: TopicConfig) -> None:
        """A queue that the table does not know yet is there when the log holds messages of it, or when it was added a moment ago."""
        if order.queue >= topic.write_queues:
            low, high = await self._lane.call(lambda: self._store.queue_range(order.topic, order.queue))
            if low < high:
                return
            topic = await self._find_topic(order.topic)
        if order.queue >= topic.read_queues:
            self._rules.check_complete()
            raise QueueNotFound(order.topic, order.queue, topic.read_queues)

    def _check_serves(self) -> None:
        if self._dispatcher.waits_are_over:
            raise NotReady(self._rules.node, "it stops, or changes its role; ask another node of its group, or this one in a moment")

    def _take_seat(self) -> None:
        if self._waiting >= MAX_WAITING_PULLS:
            raise LimitReached("the number of waiting pulls", MAX_WAITING_PULLS)
        self._waiting += 1

    async def _look(self, order: PullRequest) -> PullResult:
        readable, history = self._rules.readable(), self._store.epoch_history
        if order.max_staleness_s is not None:
            self._check_fresh(order.max_staleness_s, PhysicalOffset(min(readable.end, self._dispatcher.applied)))
        if order.at_least is not None and not self._contains(order.at_least, readable):
            low, high = await self._lane.call(lambda: self._store.queue_range(order.topic, order.queue))
            return PullResult(PullStatus.BEHIND, (), order.offset, low, high, readable.confirmed, None, epoch=order.epoch)
        try:
            found = await read_on(self._lane, lambda: self._read(order, readable), self._rules.damaged)
        except OffsetOutOfRange as outside:
            if outside.asked > outside.end:
                self._rules.check_complete()
            raise
        epoch = order.epoch if found.read_to is None else epoch_at(history, PhysicalOffset(found.read_to - 1))
        answer = _answer(order, found, readable.confirmed, suggested=self._suggested(found, order.group), epoch=epoch)
        if answer.status is PullStatus.NO_NEW_MESSAGE:
            self._rules.check_complete()
        return answer

    def _check_fresh(self, allowed_s: float, end: PhysicalOffset) -> None:
        age_s = self._rules.staleness_s(end)
        if age_s is None or age_s > allowed_s:
            raise StaleCopy(self._rules.node, -1 if age_s is None else int(age_s * 1_000), int(allowed_s * 1_000))

    def _settings(self, group: str) -> GroupConfig:
        return (self._rules.group(group) if group else None) or _NEW_GROUP

    def _suggested(self, found: QueueSlice, group: str) -> int:
        """The node that had better be asked next. Source: suggestPullingFromSlave in RocketMQ's DefaultMessageStore."""
        is_far_back = found.read_to is not None and self._store.end - found.read_to > self._rules.in_memory_bytes
        settings = self._settings(group)
        return settings.which_broker_when_consume_slowly if is_far_back else settings.broker_id

    def _contains(self, token: ConsistencyToken, readable: ReadableRange) -> bool:
        """Whether its message can be read here: what lies in its place may have been written by another master."""
        if min(readable.end, self._dispatcher.applied) < token.end:
            return False
        entry = entry_at(self._store.epoch_history, PhysicalOffset(token.end - 1))
        if entry is None:
            return token.epoch == 0
        return entry.epoch == token.epoch and token.incarnation in {None, entry.incarnation}

    def _read(self, order: PullRequest, readable: ReadableRange) -> QueueSlice:
        if order.epoch is not None:
            self._store.check_not_rewritten(order.topic, order.queue, order.offset, order.epoch)
        low, high = self._store.queue_range(order.topic, order.queue)
        if order.offset > high and not self._rules.refuses_beyond_end:
            return QueueSlice([], order.offset, low, high)
        limits = (order.max_messages, order.max_bytes)
        return self._store.read_queue(order.topic, order.queue, order.offset, *limits, order.tags, readable, as_records=order.as_records)


class HeldAnswer:
    """An answer to a pull inside `async with`, and its room. Plain, because a pull that waits has little else."""

    __slots__ = ("_connection", "_has_seat", "_order", "_service", "_share")

    def __init__(self, service: PullService, order: PullRequest, connection: str, *, has_seat: bool) -> None:
        self._service = service
        self._order = order
        self._connection = connection
        self._has_seat = has_seat
        self._share: Share | None = None

    async def __aenter__(self) -> PullResult:
        answer, self._share = await self._service.answer(self._order, self._connection, has_seat=self._has_seat)
        return answer

    async def __aexit__(self, *_: object) -> None:
        if self._share is not None:
            self._share.give_back()


def _size_of(answer: PullResult) -> int:
    """About as much memory as its messages take."""
    return len(answer.records) + sum(max(message.record_bytes, len(message.body)) + _MESSAGE_BYTES for message in answer.messages)


def _answer(order: PullRequest, found: QueueSlice, confirmed: PhysicalOffset, *, suggested: int, epoch: Epoch | None) -> PullResult:
    if found.messages or found.records:
        status = PullStatus.FOUND
    elif found.next_offset > order.offset:
        status = PullStatus.NO_MATCHED_MESSAGE
    else:
        status = PullStatus.NO_NEW_MESSAGE
    bounds = (found.next_offset, found.min, found.max)
    return PullResult(status, tuple(found.messages), *bounds, confirmed, found.unconfirmed_from, suggested, found.records, epoch)
