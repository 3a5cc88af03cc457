"""Messages for members without a session: leased to a caller, acknowledged by him, or tried again when the lease ends.

Leases are this master's and end with it. What outlives it is the committed offset of each queue: the lowest message that is neither
acknowledged nor tried again by a copy. After a failover messages behind it come again, and none is left out.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.dispatcher import Dispatcher
from dittomq.commitlog.store import Store
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import MAX_WINDOW, LeasedQueue, LeaseToken
from dittomq.consumer.retries import retry_topic
from dittomq.consumer_progress import CommittedOffset, OffsetCommit
from dittomq.doors.clock import Clock
from dittomq.doors.workers import Executor
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    GroupNotFound,
    LimitReached,
    OffsetOutOfRange,
    PermissionDenied,
    PreconditionFailed,
    SessionExpired,
    TopicNotFound,
)
from dittomq.message import StoredMessage
from dittomq.metadata.topics import TopicConfig
from dittomq.reads import MAX_PULL_BYTES, ReadableRange
from dittomq.routes import PERMISSION_READ
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

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LeasingParts:
    """`lane` is one for reads."""

    store: Store
    lane: Executor
    dispatcher: Dispatcher
    clock: Clock
    offsets: ConsumerOffsets
    rules: OffsetRules
    coordinator: GroupCoordinator
    returns: SendBack
    leading_term: Callable[[], Term]


@dataclass(slots=True, eq=False)
class _QueueLeases:
    """One queue, and the offset that it goes on from: another reset of it ends all leases. `committed` is what is recorded."""

    leases: LeasedQueue
    resets: int
    committed: int


@dataclass(slots=True, eq=False)
class _GroupLeases:
    """What one group has leased here; one call at a time hands messages out."""

    incarnation: int
    queues: dict[TopicQueue, _QueueLeases] = field(default_factory=dict)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Leasing:
    """The leases of one master."""

    def __init__(self, parts: LeasingParts) -> None:
        self._parts = parts
        self._groups: dict[str, _GroupLeases] = {}
        self._number = 0
        self._waiting = 0

    async def receive(self, order: ReceiveOrder) -> list[Leased]:
        """Lease messages, oldest of each queue first, as soon as there is one, at most 4 MiB; none when none came in time.

        Raises GroupNotFound, TopicNotFound, PermissionDenied, PreconditionFailed while the group has members that joined, LimitReached.
        """
        parts = self._parts
        until = parts.clock.monotonic() + order.wait_s
        if self._waiting >= _MOST_WAITING:
            raise LimitReached("the list of callers that wait for messages", _MOST_WAITING)
        self._waiting += 1
        try:
            while True:
                pulse = parts.dispatcher.pulse()
                found = await self._lease_some(order)
                left_s = until - parts.clock.monotonic()
                if found or left_s <= 0:
                    return found
                await _rest(pulse, min(left_s, _LOOK_AGAIN_S))
        finally:
            self._waiting -= 1

    async def acknowledge(self, name: str, tokens: Sequence[LeaseToken]) -> list[bool]:
        """Whether each is acknowledged now, or was before; False: its lease had ended. What is acknowledged is committed."""
        group = self._group(name)
        done: list[bool] = []
        for token in tokens:
            try:
                queue = await self._queue_of(group, name, token)
                if queue.leases.begin_settling(token, self._parts.clock.monotonic()):
                    queue.leases.settled(token)
                done.append(True)
            except (SessionExpired, TopicNotFound):
                done.append(False)
        await self._commit(name, group, {token.source for token in tokens})
        return done

    async def extend(self, name: str, token: LeaseToken, lease_s: float) -> None:
        """The lease ends so many seconds from now; raises SessionExpired when it has ended."""
        queue = self._group(name).queues.get(token.source)
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

    async def _lease_some(self, order: ReceiveOrder) -> list[Leased]:
        group = self._group(order.group)
        found: list[Leased] = []
        room = MAX_PULL_BYTES
        async with group.turn:
            for source in self._sources(order):
                try:
                    queue = await self._queue(group, order.group, source)
                    messages = await self._read(queue, order.max_messages - len(found), room)
                except CorruptRecord as problem:
                    log.warning("leased_queue_waits_for_repair", topic=source.topic, queue=source.queue, reason=str(problem))
                    continue
                until = self._parts.clock.monotonic() + order.lease_s
                for message in messages:
                    self._number += 1
                    found.append(Leased(message, queue.leases.lease(message.queue_offset, self._number, until)))
                    room -= len(message.body)
                if len(found) >= order.max_messages or room <= 0:
                    break
        if not found:
            await self._commit(order.group, group, list(group.queues))  # what is passed over
        return found

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

    async def _queue_of(self, group: _GroupLeases, name: str, token: LeaseToken) -> _QueueLeases:
        """The queue of a token that may be this master's, or an earlier one's. Raises SessionExpired for what cannot be leased."""
        topic = self._topic(token.source.topic)
        ended = SessionExpired(f"the lease of {token.source.topic} queue {token.source.queue} offset {token.offset:,}")
        if token.source.queue >= topic.read_queues or token.epoch > self._parts.rules.epoch():
            raise ended
        queue = await self._queue(group, name, token.source)
        end = self._parts.rules.confirmed()
        store = self._parts.store
        _, high = await self._parts.lane.call(lambda: store.queue_range_below(*token.source, end))
        if token.offset >= min(high, queue.leases.committed + MAX_WINDOW):
            raise ended
        return queue

    async def _queue(self, group: _GroupLeases, name: str, source: TopicQueue) -> _QueueLeases:
        """One queue, from what is committed on; anew where somebody has reset that."""
        [told] = await self._parts.offsets.get(name, [source], self._parts.rules)
        queue = group.queues.get(source)
        if queue is not None and queue.resets == told.resets:
            return queue
        if queue is None and sum(len(each.queues) for each in self._groups.values()) >= _MOST_QUEUES:
            raise LimitReached("the number of queues with leases", _MOST_QUEUES)
        end, store = self._parts.rules.confirmed(), self._parts.store
        low, _ = await self._parts.lane.call(lambda: store.queue_range_below(*source, end))
        start = low if told.offset is None else told.offset
        leases = LeasedQueue(source, start, (), self._parts.rules.epoch())
        current = group.queues.get(source)
        if current is None or current.resets != told.resets:  # nobody was quicker
            current = group.queues[source] = _QueueLeases(leases, told.resets, start)
        return current

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
            if start >= high:
                return []
            return store.read_queue(topic, number, start, most, room, readable=ReadableRange(end, end)).messages

        try:
            messages = await self._parts.lane.call(read)
        except OffsetOutOfRange:
            return []
        wanted = [
            message for message in messages if message.queue_offset >= leases.next_offset and not leases.is_done(message.queue_offset)
        ]
        if messages and not wanted:
            leases.pass_over(messages[-1].queue_offset + 1)
        return wanted

    @property
    def _leased(self) -> int:
        return sum(queue.leases.leased for group in self._groups.values() for queue in group.queues.values())

    async def _commit(self, name: str, group: _GroupLeases, sources: Iterable[TopicQueue]) -> None:
        """Record how far each queue is done; what is refused is recorded the next time."""
        moved = [queue for source in sources if (queue := group.queues.get(source)) and queue.leases.committed > queue.committed]
        if not moved or self._groups.get(name) is not group:
            return
        commits = [OffsetCommit(*queue.leases.source, queue.leases.committed, queue.resets) for queue in moved]
        recorded: Sequence[CommittedOffset] = await self._parts.offsets.commit(name, commits, self._parts.rules)
        for queue, row in zip(moved, recorded, strict=True):
            queue.committed = max(queue.committed, row.offset or 0)

    async def _look_at(self, name: str) -> None:
        try:
            group = self._group(name)
        except (GroupNotFound, PermissionDenied):
            self._groups.pop(name, None)
            return
        now = self._parts.clock.monotonic()
        ended = [(queue, token) for queue in group.queues.values() for token in queue.leases.take_ended(now)]
        for at in range(0, len(ended), _AT_ONCE):
            async with asyncio.TaskGroup() as tasks:
                for queue, token in ended[at : at + _AT_ONCE]:
                    tasks.create_task(self._try_again(name, queue.leases, token), name="another try")
        await self._commit(name, group, list(group.queues))
        for source, queue in list(group.queues.items()):
            if not group.turn.locked() and queue.committed == queue.leases.committed == queue.leases.next_offset:
                del group.queues[source]
        if not group.queues and not group.turn.locked():
            self._groups.pop(name, None)

    async def _try_again(self, name: str, leases: LeasedQueue, token: LeaseToken) -> None:
        """A copy for another try, at once: the lease was the time to wait. Where none can be stored now, later."""
        try:
            await self._parts.returns.send_back(SendBackOrder(name, token.source, token.offset, 0))
        except (OffsetOutOfRange, TopicNotFound):
            leases.settled(token, acknowledged=False)  # the message is gone
        except DittoError as problem:
            log.debug("lease_stays", group=name, topic=token.source.topic, queue=token.source.queue, reason=str(problem))
            leases.not_settled(token)
        except BaseException:
            leases.not_settled(token)
            raise
        else:
            leases.settled(token, acknowledged=False)


async def _rest(pulse: asyncio.Event, most_s: float) -> None:
    """Return when more can be read, but not at once, or after `most_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(most_s):
            await pulse.wait()
            await asyncio.sleep(_LEAST_WAIT_S)
