"""Messages for members without a session: leased to a caller, acknowledged by him, or tried again when the lease ends.

Leases are this master's and end with it. What outlives it is the committed offset of each queue: the lowest message that is neither
acknowledged nor tried again by a copy. After a failover messages behind it come again, and none is left out.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.dispatcher import Dispatcher
from dittomq.broker.pulse import GrowthPulse
from dittomq.commitlog.store import Store
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import AcknowledgedLeases, LeasedQueue, LeaseToken
from dittomq.consumer.retries import retry_topic
from dittomq.consumer_progress import CommittedOffset, OffsetCommit
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.epoch_history import end_of_epoch
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    GroupNotFound,
    LimitReached,
    OffsetOutOfRange,
    PermissionDenied,
    PreconditionFailed,
    QueueNotFound,
    Refused,
    SessionExpired,
    TopicNotFound,
)
from dittomq.message import StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.reads import MAX_PULL_BYTES, ReadableRange
from dittomq.routes import PERMISSION_READ
from dittomq.rpc.admission import AdmissionControl, Share
from dittomq.wire.consumer_leases import Leased, ReceiveOrder
from dittomq.wire.consumer_sessions import SendBackOrder
from services.master.group_coordinator import GroupCoordinator
from services.master.send_back import SendBack
from services.master.term import Term

_LOOK_S: Final = 0.25
_LEAST_WAIT_S: Final = 0.02
_LOOK_AGAIN_S: Final = 1.0  # whether this master leads
_MOST_QUEUES: Final = 1_024
_MOST_LEASES: Final = 100_000
_MOST_WAITING: Final = 1_024
_AT_ONCE: Final = 64
_MESSAGE_BYTES: Final = 1_024  # what a leased message takes beside its record
_NOT_TO_COMMIT: Final = (TopicNotFound, QueueNotFound, OffsetOutOfRange)  # in that queue, whenever it is tried again

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeasingParts:
    """`lane` is one for reads. `room` is for messages that nobody has read. `damaged` is told where a record is not whole."""

    store: Store
    lane: Executor
    dispatcher: Dispatcher
    clock: Clock
    offsets: ConsumerOffsets
    rules: OffsetRules
    coordinator: GroupCoordinator
    returns: SendBack
    room: AdmissionControl
    damaged: Callable[[int], None]
    leading_term: Callable[[], Term]


@dataclass(slots=True, eq=False)
class _QueueLeases:
    """One queue, and the offset that it goes on from: another reset of it ends all leases. `committed` is what is recorded."""

    leases: LeasedQueue
    resets: int
    committed: int

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is leased, and all that is done is recorded."""
        return self.leases.is_idle and self.leases.committed <= self.committed


@dataclass(slots=True, eq=False)
class _GroupLeases:
    """What one group has leased here; one call at a time hands messages out. `calls` are those that have it in hand."""

    incarnation: int
    queues: dict[TopicQueue, _QueueLeases] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0

    @contextlib.contextmanager
    def in_hand(self) -> Iterator["_GroupLeases"]:
        self.calls += 1
        try:
            yield self
        finally:
            self.calls -= 1


_Found = tuple[_QueueLeases, StoredMessage]


class Leasing:
    """The leases of one master."""

    def __init__(self, parts: LeasingParts) -> None:
        self._parts = parts
        self._groups: dict[str, _GroupLeases] = {}
        self._acknowledged = AcknowledgedLeases()
        self._damage: dict[TopicQueue, int] = {}  # what was logged
        self._number = 0
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def receive(self, order: ReceiveOrder, connection: str) -> AsyncIterator[Sequence[Leased]]:
        """Lease messages, oldest of each queue first, as soon as there is one, at most 4 MiB; none when none came in time.

        They count as unread by this connection's client until the block ends; who waits takes no room. A refusal leases nothing. Raises
        GroupNotFound, TopicNotFound, PermissionDenied, PreconditionFailed while the group has members that joined, LimitReached.
        """
        with self._seat():
            async with self._found_in_time(order, connection) as found:
                yield found

    @contextlib.asynccontextmanager
    async def _found_in_time(self, order: ReceiveOrder, connection: str) -> AsyncIterator[Sequence[Leased]]:
        until = self._parts.clock.monotonic() + order.wait_s
        while True:
            pulse = self._parts.dispatcher.pulse()
            async with self._look(order, connection) as found:
                left_s = until - self._parts.clock.monotonic()
                if found or left_s <= 0:
                    yield found
                    return
            await _rest(pulse, min(left_s, _LOOK_AGAIN_S))

    async def acknowledge(self, name: str, tokens: Sequence[LeaseToken]) -> list[bool]:
        """Whether each is acknowledged now, or was before; False: its lease had ended. What is acknowledged is committed.

        A refusal before the first one is settled changes nothing; a later one is of the commit, which is made up for.
        """
        with self._group(name).in_hand() as group:
            queues = [await self._queue_of(group, name, token) for token in tokens]
            done = [self._acknowledge(name, group, token, queue) for token, queue in zip(tokens, queues, strict=True)]
            await self._commit(name, group, {token.source for token in tokens})
        return done

    async def extend(self, name: str, token: LeaseToken, lease_s: float) -> None:
        """The lease ends so many seconds from now; raises SessionExpired when it has ended."""
        queue = await self._queue_of(self._group(name), name, token)
        if queue is None:
            raise SessionExpired(f"the lease of {token.source.topic} queue {token.source.queue} offset {token.offset:,}")
        now = self._parts.clock.monotonic()
        queue.leases.extend(token, now + lease_s, now)

    async def run(self) -> None:
        """While this master leads: let leases end, and forget what nobody uses."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for name in list(self._groups):
                with contextlib.suppress(DittoError):
                    await self._look_at(name)

    def _group(self, name: str) -> _GroupLeases:
        """What the group has leased here: it leads, the group may consume, and none of its members has joined."""
        self._parts.leading_term()
        config = self._parts.coordinator.find(name)
        members = self._parts.coordinator.members(name)
        if members:
            self._groups.pop(name, None)
            raise PreconditionFailed(f'consumer group "{name}" has members that joined, {members[0]} for one; receive in another group')
        group = self._groups.get(name)
        if group is None or group.incarnation != config.incarnation:
            group = self._groups[name] = _GroupLeases(config.incarnation)
        return group

    @contextlib.contextmanager
    def _seat(self) -> Iterator[None]:
        if self._waiting >= _MOST_WAITING:
            raise LimitReached("the list of callers that wait for messages", _MOST_WAITING)
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    @contextlib.asynccontextmanager
    async def _look(self, order: ReceiveOrder, connection: str) -> AsyncIterator[Sequence[Leased]]:
        """Lease what there is. Room for it is taken when it is the caller's turn: of callers of one group only one looks."""
        share: Share | None = None
        try:
            with self._group(order.group).in_hand() as group:
                async with group.turn:
                    share = await self._parts.room.take(connection, MAX_PULL_BYTES)
                    messages, refused = await self._read_some(group, order)
                    found = self._lease(group, order, messages)
            if not found and refused is not None:
                raise refused
            share.settle(sum(_size_of(each.message) for each in found))
            yield found
        finally:
            if share is not None:
                share.give_back()

    async def _read_some(self, group: _GroupLeases, order: ReceiveOrder) -> tuple[list[_Found], Refused | None]:
        """Messages that nobody has, and why a queue was left out. None of them is leased yet: whoever leaves now leaves no lease."""
        found: list[_Found] = []
        refused: Refused | None = None
        room = MAX_PULL_BYTES
        for source in self._sources(order):
            try:
                queue = await self._queue(group, order.group, source)
                messages = await self._read(queue, order.max_messages - len(found), room)
                if messages and source not in group.queues and self._is_full:
                    raise LimitReached("the number of queues with leases", _MOST_QUEUES)
            except CorruptRecord as problem:
                self._meet_damage(source, problem)
                continue
            except Refused as problem:
                refused = problem
                continue
            for message in messages:
                room -= _size_of(message)
                if found and room < 0:
                    return found, None
                found.append((queue, message))
            if len(found) >= order.max_messages or room <= 0:
                break
        return found, refused

    def _lease(self, group: _GroupLeases, order: ReceiveOrder, found: Sequence[_Found]) -> list[Leased]:
        """Lease them all, but what somebody else has dealt with since they were read."""
        if not found or self._group(order.group) is not group:
            return []
        until = self._parts.clock.monotonic() + order.lease_s
        leased: list[Leased] = []
        for queue, message in found[: max(0, _MOST_LEASES - self._leased)]:
            leases, offset = queue.leases, message.queue_offset
            if offset < leases.next_offset or leases.is_done(offset) or not leases.fits(offset):
                continue
            if self._keep(group, queue) is queue:
                self._number += 1
                leased.append(Leased(message, leases.lease(offset, self._number, until)))
        return leased

    def _acknowledge(self, name: str, group: _GroupLeases, token: LeaseToken, queue: _QueueLeases | None) -> bool:
        if self._acknowledged.has(name, token):
            return True
        is_own = token.epoch == self._parts.rules.epoch()
        if queue is None or (is_own and group.queues.get(token.source) is not queue):
            return False
        held = self._keep(group, queue)
        if held is None:
            return False  # nobody can note it, and it comes again
        try:
            is_new = held.leases.acknowledge(token, self._parts.clock.monotonic())
        except SessionExpired:
            return False
        if is_new and is_own:
            self._acknowledged.add(name, token)
        return True

    def _keep(self, group: _GroupLeases, queue: _QueueLeases) -> _QueueLeases | None:
        """Keep what is known of a queue, or what somebody else keeps of it already; None where as many are kept as may be."""
        source = queue.leases.source
        held = group.queues.get(source)
        if held is not None and held.resets == queue.resets:
            return held
        if held is None and self._is_full:
            return None
        group.queues[source] = queue
        return queue

    def _meet_damage(self, source: TopicQueue, problem: CorruptRecord) -> None:
        """The queue waits for the repair, which this asks for; it is logged once for each place."""
        self._parts.damaged(problem.position)
        if self._damage.get(source) != problem.position:
            if len(self._damage) >= _MOST_QUEUES:
                self._damage.clear()
            self._damage[source] = problem.position
            log.warning("leased_queue_waits_for_repair", topic=source.topic, queue=source.queue, reason=str(problem))

    @property
    def _is_full(self) -> bool:
        return sum(len(each.queues) for each in self._groups.values()) >= _MOST_QUEUES

    def _sources(self, order: ReceiveOrder) -> Iterable[TopicQueue]:
        """Queues in the order in which they are looked at: what is tried again comes first, and no queue of the others always."""
        topic = self._topic(order.topic)
        with contextlib.suppress(TopicNotFound):
            again = self._topic(retry_topic(order.group))
            yield from (TopicQueue(again.name, queue) for queue in range(again.read_queues))
        if topic.name == retry_topic(order.group):
            return
        first = self._number % topic.read_queues
        yield from (TopicQueue(topic.name, (first + queue) % topic.read_queues) for queue in range(topic.read_queues))

    def _topic(self, name: str) -> TopicConfig:
        try:
            topic = self._parts.rules.topic(name)
        except TopicNotFound:
            self._parts.rules.check_complete()
            raise
        if not topic.permission & PERMISSION_READ:
            raise PermissionDenied(f'topic "{name}" cannot be read: its permission lacks bit {PERMISSION_READ}')
        return topic

    async def _queue_of(self, group: _GroupLeases, name: str, token: LeaseToken) -> _QueueLeases | None:
        """The queue of a token, this master's or an earlier one's; None for one that no master can have given, or whose topic is gone.

        An earlier master can have leased what lay in the log when the next one began.
        """
        with contextlib.suppress(TopicNotFound):
            if token.epoch == self._parts.rules.epoch():
                return await self._queue(group, name, token.source)
            epoch_end = end_of_epoch(self._parts.store.epoch_history, token.epoch)
            if epoch_end is None:
                return None
            queue = await self._queue(group, name, token.source)
            end, store = min(epoch_end, self._parts.rules.confirmed()), self._parts.store
            _, high = await self._parts.lane.call(lambda: store.queue_range_below(*token.source, end))
            return queue if token.offset < high else None
        return None

    async def _queue(self, group: _GroupLeases, name: str, source: TopicQueue) -> _QueueLeases:
        """One queue, from what is committed on; anew where somebody has reset that. It is kept when it has something to keep."""
        [told] = await self._parts.offsets.get(name, [source], self._parts.rules)
        queue = group.queues.get(source)
        if queue is not None and queue.resets == told.resets:
            return queue
        end, store = self._parts.rules.confirmed(), self._parts.store
        low, _ = await self._parts.lane.call(lambda: store.queue_range_below(*source, end))
        start = low if told.offset is None else told.offset
        return _QueueLeases(LeasedQueue(source, start, (), self._parts.rules.epoch()), told.resets, start)

    async def _read(self, queue: _QueueLeases, most: int, room: int) -> list[StoredMessage]:
        """Messages that nobody has, of a queue that has room for their leases; what retention has removed is passed over."""
        leases, (topic, number) = queue.leases, queue.leases.source
        most = min(most, leases.room, _MOST_LEASES - self._leased)
        if most <= 0:
            return []
        end, store = self._parts.rules.confirmed(), self._parts.store

        def read() -> list[StoredMessage]:
            low, high = store.queue_range_below(topic, number, end)
            start = max(low, leases.next_offset)
            if start >= high or not leases.fits(start):
                return []
            return store.read_queue(topic, number, start, most, room, readable=ReadableRange(end, end)).messages

        try:
            messages = await self._parts.lane.call(read)
        except OffsetOutOfRange:
            return []
        wanted = [message for message in messages if not leases.is_done(message.queue_offset)]
        if messages and not wanted:
            leases.pass_over(messages[-1].queue_offset + 1)
        return wanted

    @property
    def _leased(self) -> int:
        return sum(queue.leases.leased for group in self._groups.values() for queue in group.queues.values())

    async def _commit(self, name: str, group: _GroupLeases, sources: Iterable[TopicQueue]) -> None:
        """Record how far each queue is done; what is refused now is recorded the next time."""
        moved = [queue for source in sources if (queue := group.queues.get(source)) and queue.leases.committed > queue.committed]
        if not moved or self._parts.offsets.find_group(name, self._parts.rules).incarnation != group.incarnation:
            return
        try:
            await self._record(name, group, moved)
        except _NOT_TO_COMMIT:
            for queue in moved:
                await self._record_or_drop(name, group, queue)

    async def _record_or_drop(self, name: str, group: _GroupLeases, queue: _QueueLeases) -> None:
        """A queue that is gone keeps no other one back."""
        try:
            await self._record(name, group, [queue])
        except _NOT_TO_COMMIT as problem:
            source = queue.leases.source
            log.info("leases_dropped", group=name, topic=source.topic, queue=source.queue, reason=str(problem))
            _drop(group, queue)

    async def _record(self, name: str, group: _GroupLeases, queues: Sequence[_QueueLeases]) -> None:
        commits = [OffsetCommit(*queue.leases.source, queue.leases.committed, queue.resets) for queue in queues]
        recorded: Sequence[CommittedOffset] = await self._parts.offsets.commit(name, commits, self._parts.rules)
        for queue, row in zip(queues, recorded, strict=True):
            queue.committed = max(queue.committed, row.offset or 0)
            if row.resets != queue.resets:
                _drop(group, queue)

    async def _look_at(self, name: str) -> None:
        try:
            group = self._group(name)
        except (GroupNotFound, PermissionDenied):
            self._groups.pop(name, None)
            return
        with group.in_hand():
            await self._end_leases(name, group)
            await self._commit(name, group, list(group.queues))
        for queue in [queue for queue in group.queues.values() if queue.is_idle]:
            _drop(group, queue)
        if not group.queues and not group.calls and self._groups.get(name) is group:
            del self._groups[name]

    async def _end_leases(self, name: str, group: _GroupLeases) -> None:
        now = self._parts.clock.monotonic()
        ended = [(queue, token) for queue in group.queues.values() for token in queue.leases.take_ended(now)]
        for at in range(0, len(ended), _AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for queue, token in ended[at : at + _AT_ONCE]:
                    tasks.create_task(self._try_again(name, queue.leases, token), name="another try")

    async def _try_again(self, name: str, leases: LeasedQueue, token: LeaseToken) -> None:
        """A copy for another try, at once: the lease was the time to wait. Where none can be stored now, later."""
        try:
            await self._parts.returns.send_back(SendBackOrder(name, token.source, token.offset, 0))
        except (OffsetOutOfRange, TopicNotFound):
            leases.settled(token)  # the message is gone
        except DittoError as problem:
            log.debug("lease_stays", group=name, topic=token.source.topic, queue=token.source.queue, reason=str(problem))
            leases.not_settled(token)
        except BaseException:
            leases.not_settled(token)
            raise
        else:
            leases.settled(token)


def _size_of(message: StoredMessage) -> int:
    """About as many bytes as it takes of an answer."""
    return max(message.record_bytes, len(message.body)) + _MESSAGE_BYTES


def _drop(group: _GroupLeases, queue: _QueueLeases) -> None:
    if group.queues.get(queue.leases.source) is queue:
        del group.queues[queue.leases.source]


async def _rest(pulse: GrowthPulse, most_s: float) -> None:
    """Return when more can be read, but not at once, or after `most_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await pulse.wait()
            await asyncio.sleep(_LEAST_WAIT_S)
