"""Members of consumer groups, as the master of their queues coordinates them: who is there, and who reads what, told over streams.

What it knows lasts as long as this master leads. After a failover members join the next master and name what they hold.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from dittomq.broker.groups import MasterGroups
from dittomq.broker.metadata import Metadata
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.group_session import HEARTBEAT_S, SESSION_S, ConsumeMode, GroupSession, JoinOrder
from dittomq.consumer.order_locks import LOCK_S, OrderLocks
from dittomq.consumer.retries import retry_topic
from dittomq.consumer.tag_filter import ALL_TAGS
from dittomq.doors.clock import Clock
from dittomq.errors import DittoError, InvalidField, NotReady, PermissionDenied, SessionExpired
from dittomq.metadata.formats import GROUPS, TOPICS
from dittomq.metadata.groups import check_group_name, find_group
from dittomq.metadata.rows import GroupConfig
from dittomq.metadata.topics import find_topic
from dittomq.routes import PERMISSION_READ
from dittomq.rpc.interceptors import taken_in_time
from dittomq.wire.consumer_sessions import JoinAnswer, JoinFrame, LockOrder
from services.master.term import Term

_LOOK_S: Final = 1.0
_SHORTEST_CHANGE_S: Final = 1.0

log = structlog.get_logger()

SendAnswer = Callable[[JoinAnswer], Awaitable[object]]


@dataclass(slots=True, eq=False)
class _MemberStream:
    """One member's stream: what it said, and what was sent to it."""

    group: "_LiveGroup"
    member: str
    process: str
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    answered: int = 0
    sent: int = -1
    is_over: bool = False  # the member tells nothing more
    has_left: bool = False
    changed_at: float = float("-inf")


@dataclass(slots=True)
class _LiveGroup:
    """A group that has members here. Of two streams of one member the newer one is its stream."""

    name: str
    session: GroupSession
    streams: dict[str, _MemberStream] = field(default_factory=dict)

    def wake(self, members: frozenset[str]) -> None:
        for member in sorted(members & self.streams.keys()):
            self.streams[member].wake.set()

    def wake_all(self) -> None:
        for stream in self.streams.values():
            stream.wake.set()


class GroupCoordinator:
    """The members of all groups at one master. `leading_term` raises while this master does not lead."""

    def __init__(
        self,
        node: str,
        metadata: Metadata,
        clock: Clock,
        leading_term: Callable[[], Term],
        *,
        check_complete: Callable[[], None],
        groups: MasterGroups,
    ) -> None:
        """`check_complete` raises NotReady while others may have topics or groups that this node lacks."""
        self._node = node
        self._metadata = metadata
        self._clock = clock
        self._leading_term = leading_term
        self._check_complete = check_complete
        self._changes = groups
        self._inherited: Collection[str] | None = None  # the groups that this node knew when its term began
        self._groups: dict[str, _LiveGroup] = {}
        self._is_stopped = False
        self._locks = OrderLocks(clock.monotonic() + LOCK_S)
        self._settled_at = clock.monotonic() + SESSION_S

    def members(self, group: str) -> tuple[str, ...]:
        """Who of the group is there now."""
        live = self._groups.get(group)
        return () if live is None else live.session.members

    def holders(self, group: str) -> Mapping[tuple[str, int], str]:
        """Which member may read each (topic, queue) now."""
        live = self._groups.get(group)
        return {} if live is None else dict(live.session.holders.items())

    def settles_in_s(self) -> float:
        """Seconds until every member of the master before has joined, or is none any more; 0 where that had no message to read."""
        if self._leading_term().opened.start == 0:
            return 0.0
        return SESSION_S if self._inherited is None else max(0.0, self._settled_at - self._clock.monotonic())

    def find(self, name: str) -> GroupConfig:
        """The group; raises GroupNotFound, and PermissionDenied where it must not consume."""
        check_group_name(name)
        rows = self._metadata.table(GROUPS).rows
        if name not in rows:
            self._check_complete()
        group = find_group(rows, name, self._node)
        if not group.consume_enable:
            raise PermissionDenied(f'consumer group "{name}" may not consume: its consume_enable is false')
        return group

    async def run(self) -> None:
        """From the start of the term until cancelled: members go silent, topics get queues, groups are deleted."""
        now = self._clock.monotonic()
        self._locks, self._settled_at = OrderLocks(now + LOCK_S), now + SESSION_S
        self._inherited = frozenset(self._metadata.table(GROUPS).rows)
        while True:
            await asyncio.sleep(_LOOK_S)
            self._look()

    def stop(self) -> None:
        """The node stops: each stream says so to its member."""
        self._is_stopped = True
        for live in self._groups.values():
            live.wake_all()

    async def join(self, frames: AsyncIterator[JoinFrame], send: SendAnswer) -> None:
        """Serve one stream of a member until it ends. Raises the Refused that says why it is no member, or no longer."""
        self._check_leads()
        first = await anext(frames, None)
        if first is None:
            return
        await self._recall(first)
        stream = self._enter(first)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._obey(stream, frames), name="member")
                await self._send_assignments(stream, send)
        finally:
            self._end(stream)

    def lock(self, order: LockOrder) -> frozenset[TopicQueue]:
        """Those of the queues that the member holds now, for LOCK_S. A queue that is not there is locked by nobody."""
        self._leading_term()
        self.find(order.group)
        there = self._queues_of(frozenset(queue.topic for queue in order.queues))
        return self._locks.lock(order.group, order.member, there.intersection(order.queues), self._clock.monotonic())

    def unlock(self, order: LockOrder) -> None:
        """Free those of the queues that the member holds."""
        self._leading_term()
        self._locks.unlock(order.group, order.member, order.queues)

    async def _recall(self, frame: JoinFrame) -> None:
        """Make a group again that this master never heard of, and that a member brings along: a master before made it, and died.

        A member that comes later than all others can, or was told in this term, shows nothing: the group was deleted.
        """
        order, name, rows = frame.order, frame.group, self._metadata.table(GROUPS).rows
        if order is None or name in rows or not 0 < order.epoch < self._leading_term().opened.epoch:
            return
        if self._inherited is None:
            raise NotReady(self._node, "its term begins; ask again")
        if name not in self._inherited and self._clock.monotonic() < self._settled_at:
            await self._changes.create(GroupConfig(name), validate_only=False)
            log.info("unheard_group_made", node=self._node, group=name, member=order.member)

    def _enter(self, frame: JoinFrame) -> _MemberStream:
        order = frame.order
        if order is None:
            raise InvalidField("frame", "a heartbeat comes first; send join")
        live = self._groups.get(frame.group)
        is_new = live is None
        if live is None:
            epoch = self._leading_term().opened.epoch
            live = _LiveGroup(frame.group, GroupSession(frame.group, epoch=epoch, settled_at=self._settled_at))
        self._take_in(live, order)
        if is_new:
            self._groups[frame.group] = live
        stream = _MemberStream(live, order.member, order.process, seen=frame.number)
        if (before := live.streams.get(order.member)) is not None:
            before.wake.set()
        live.streams[order.member] = stream
        log.info("member_joined", group=live.name, member=order.member, members=len(live.session.members))
        return stream

    def _take_in(self, live: _LiveGroup, order: JoinOrder) -> None:
        """Let the member in, or let it read other topics."""
        group = self.find(live.name)
        if order.mode is ConsumeMode.BROADCASTING and not group.consume_broadcast_enable:
            raise PermissionDenied(f'consumer group "{live.name}" may not broadcast: its consume_broadcast_enable is false')
        for topic in order.subscriptions:
            self._check_topic(topic)
        whole = _whole(live, order)
        queues = self._queues_of(live.session.topics | whole.subscriptions.keys())
        live.wake(live.session.join(whole, queues, self._clock.monotonic()))

    async def _take_in_again(self, stream: _MemberStream, order: JoinOrder) -> None:
        """A member joins again on its stream. What changes nothing is a heartbeat; anything else shares all queues out: once a second."""
        live = stream.group
        if live.session.repeats(_whole(live, order)):
            live.wake(live.session.heartbeat(stream.member, stream.process, 0, self._clock.monotonic()))
            return
        await asyncio.sleep(max(0.0, stream.changed_at + _SHORTEST_CHANGE_S - self._clock.monotonic()))
        stream.changed_at = self._clock.monotonic()
        if live.streams.get(stream.member) is stream:
            self._take_in(live, order)

    def _check_topic(self, name: str) -> None:
        rows = self._metadata.table(TOPICS).rows
        if name not in rows:
            self._check_complete()
        if not find_topic(rows, name, self._node).permission & PERMISSION_READ:
            raise PermissionDenied(f'topic "{name}" cannot be read: its permission lacks bit {PERMISSION_READ}')

    def _queues_of(self, topics: frozenset[str]) -> frozenset[TopicQueue]:
        rows = self._metadata.table(TOPICS).rows
        readable = (row for topic in topics if (row := rows.get(topic)) is not None and row.permission & PERMISSION_READ)
        return frozenset(TopicQueue(row.name, queue) for row in readable for queue in range(row.read_queues))

    async def _obey(self, stream: _MemberStream, frames: AsyncIterator[JoinFrame]) -> None:
        """Take what the member tells, until it leaves or the stream ends."""
        live = stream.group
        async for frame in frames:
            if live.streams.get(stream.member) is not stream:
                break
            if frame.leaves:
                stream.has_left = True
                break
            if frame.order is None:
                now = self._clock.monotonic()
                live.wake(live.session.heartbeat(stream.member, stream.process, frame.generation, now))
            elif (frame.order.member, frame.order.process, frame.group) != (stream.member, stream.process, live.name):
                raise InvalidField("member", "is another one than this stream's; open a stream for each member")
            else:
                await self._take_in_again(stream, frame.order)
            stream.seen = max(stream.seen, frame.number)
            stream.wake.set()
        stream.is_over = True
        stream.wake.set()

    async def _send_assignments(self, stream: _MemberStream, send: SendAnswer) -> None:
        live = stream.group
        while True:
            stream.wake.clear()
            self._check_leads()
            self.find(live.name)
            if live.streams.get(stream.member) is not stream:
                raise SessionExpired(f"this stream of {stream.member} in group {live.name}")
            given, seen = live.session.assignment(stream.member), stream.seen
            if given.generation != stream.sent or seen != stream.answered:
                news = given if given.generation != stream.sent else None
                await taken_in_time(send(JoinAnswer(seen, news, SESSION_S, HEARTBEAT_S)))
                stream.sent, stream.answered = given.generation, seen
            if stream.is_over:
                return
            await stream.wake.wait()

    def _check_leads(self) -> None:
        self._leading_term()
        if self._is_stopped:
            raise NotReady(self._node, "it is shutting down")

    def _end(self, stream: _MemberStream) -> None:
        """The stream is over; the member stays until it is silent for too long, unless it has left."""
        live = stream.group
        if live.streams.get(stream.member) is not stream:
            return
        del live.streams[stream.member]
        if stream.has_left:
            live.wake(live.session.leave(stream.member, stream.process, self._clock.monotonic()))
            log.info("member_left", group=live.name, member=stream.member, members=len(live.session.members))

    def _look(self) -> None:
        for name, live in list(self._groups.items()):
            before = live.session.members
            live.wake(live.session.look(self._queues_of(live.session.topics), self._clock.monotonic()))
            gone = frozenset(before) - frozenset(live.session.members)
            if gone:
                log.info("members_expired", group=name, members=sorted(gone))
                live.wake(gone)
            try:
                self._check_leads()
                self.find(name)
            except DittoError:
                live.wake_all()
            if not live.session.members and not live.streams:
                del self._groups[name]


def _whole(live: _LiveGroup, order: JoinOrder) -> JoinOrder:
    """With the topic of the group's retries, which each member of a clustering group reads."""
    if order.mode is not ConsumeMode.CLUSTERING:
        return order
    return replace(order, subscriptions={**order.subscriptions, retry_topic(live.name): ALL_TAGS})
