"""A member of a consumer group: `async for message in consumer`, each message at least once, those of a queue in order.

    Join ▶ the queues that are this member's ▶ pages of each ▶ one bounded queue ▶ the caller ▶ ack() ▶ offsets, once a second

Each broker group that has the topics is a session of its own (`group_member`). A queue that another member is to read is let go first:
what the caller has acknowledged of it is committed, and what it has not had yet is thrown away.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from dittomq.client.group_member import GroupMember, OwnQueue, StartFrom
from dittomq.client.member_session import MemberOrder
from dittomq.client.message_buffer import MessageBuffer
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.consumer.assignment import Strategy
from dittomq.consumer.group_session import ConsumeMode
from dittomq.consumer.retries import RECONSUME_TIME, RETRY_TOPIC
from dittomq.consumer.tag_filter import TagFilter, parse_tags
from dittomq.delays import LEVEL_DELAYS_S
from dittomq.doors.traces import OpenSpan
from dittomq.errors import DittoError, InvalidField, NotReady, TopicNotFound, Unavailable
from dittomq.errors.root import first_of
from dittomq.message import StoredMessage
from dittomq.metadata.groups import check_group_name
from dittomq.metadata.topics import check_topic_name

_ROUTES_S: Final = 10.0  # how often new broker groups of the topics are looked for
DEFAULT_PREFETCH: Final = 256
_TURN_S: Final = 0.005  # a caller that never waits lets the session's tasks run as often as that
_BLOCKED_S: Final = 0.5  # one that has blocked for so long lets them catch up: a heartbeat takes several turns
_CATCH_UP_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """`topics`, all of them with `tag`, "a || b" or "*". `member`: its name in the group, which no other process has.

    `prefetch`: so many messages at most wait for the caller. `broadcast`: each member gets all; where each of them is, nobody keeps.
    """

    group: str
    topics: tuple[str, ...]
    member: str
    tag: str = ""
    start: StartFrom = "earliest"
    broadcast: bool = False
    strategy: Strategy = Strategy.AVERAGE
    prefetch: int = DEFAULT_PREFETCH


@dataclass(frozen=True, slots=True)
class ConsumedMessage:
    """A message of the group. `retries`: how often it was handed out before and sent back. `topic` is the one it was published to."""

    topic: str
    retries: int
    stored: StoredMessage
    _run: OwnQueue = field(repr=False)
    _span: OpenSpan | None = field(default=None, repr=False)

    @property
    def body(self) -> bytes:
        """What was published."""
        return self.stored.body

    @property
    def keys(self) -> tuple[str, ...]:
        """Its keys."""
        return self.stored.keys

    @property
    def tag(self) -> str:
        """Its tag, "" for none."""
        return self.stored.tag

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""
        return self.stored.properties

    @property
    def broker(self) -> str:
        """The broker group that it lies in."""
        return self._run.broker

    @property
    def queue(self) -> int:
        """The queue that it was read from: of the group's retry topic, when it was sent back before."""
        return self.stored.queue

    @property
    def queue_offset(self) -> int:
        """Its place in that queue."""
        return self.stored.queue_offset

    async def ack(self) -> None:
        """It is handled; the group's offset follows within a second or two. Another member may get it where this one is gone by then."""
        self._run.handle(self.stored.queue_offset)
        if self._span is not None:
            self._span.end()

    async def retry(self, after_s: float | None = None) -> bool:
        """Let the group try it again, after at least `after_s`, by one of RocketMQ's delays; None: after a time that grows with the tries.

        False: it was tried as often as the group's `retry_max_times` allows, and lies with the dead letters now. Raises InvalidField for
        more than two hours, Unavailable when no master takes it: then it is not handled, and comes again when this member has left.
        """
        tries = await self._run.send_back(self.stored.queue_offset, None if after_s is None else _level_of(after_s))
        self._run.handle(self.stored.queue_offset)
        if self._span is not None:
            self._span.end("sent back")
        return not tries.dead_letter


class Consumer:
    """A member of a group, for use inside `async with`, by one task at a time. See ConsumerOptions.

    It rides out restarts, failovers and silent nameservers. `async for` raises what only a person can put right: GroupNotFound,
    TopicNotFound, PermissionDenied, and PreconditionFailed where the member does not fit the others.
    """

    def __init__(self, around: ClientContext, options: ConsumerOptions) -> None:
        self._around = around
        self._options = options
        self._filter = _checked(options)
        self._buffer = MessageBuffer[tuple[OwnQueue, StoredMessage]](options.prefetch)
        self._members: dict[str, GroupMember] = {}
        self._tasks = asyncio.TaskGroup()
        self._running: asyncio.Task[None] | None = None
        self._leaves = asyncio.Event()
        self._problem: DittoError | None = None
        self._turn_s = float("-inf")  # when other tasks last had their turn, as far as it is known

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._running = self._tasks.create_task(self._run(), name=f"consumer of {self._options.group}")
        self._running.add_done_callback(lambda _: self._buffer.wake())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Commit what is handled and leave the group. What cannot be committed now comes again."""
        self._leaves.set()
        self._buffer.wake()
        await self._tasks.__aexit__(None, None, None)  # also when this task is cancelled: leaving takes seconds at most

    def __aiter__(self) -> AsyncIterator[ConsumedMessage]:
        return self

    async def __anext__(self) -> ConsumedMessage:
        if self._running is None:
            raise InvalidField("consumer", "is not open; use it inside `async with`")
        while True:
            if self._problem is not None:
                raise self._problem
            if self._running.done() or self._leaves.is_set():
                raise StopAsyncIteration
            found = await self._next()
            if found is not None and not found[0].is_lost():
                found[0].hand_out(found[1].queue_offset)
                return self._consumed(*found)

    @property
    def assignment(self) -> tuple[tuple[str, str, int], ...]:
        """The queues that are this member's now, as (broker, topic, queue), in order."""
        return tuple(sorted((name, *queue) for name, member in self._members.items() for queue in member.queues))

    async def _next(self) -> tuple[OwnQueue, StoredMessage] | None:
        """The next message, None after a wake-up.

        A buffer that is not empty makes nobody wait: a caller that blocks would keep heartbeats from being sent and answers from coming in.
        """
        clock = self._around.clock
        if not self._buffer:
            await self._buffer.wait()
            self._turn_s = clock.monotonic()
            return self._buffer.take()
        blocked_s = clock.monotonic() - self._turn_s
        if blocked_s >= _TURN_S:
            await asyncio.sleep(0 if blocked_s < _BLOCKED_S else _CATCH_UP_S)
            self._turn_s = clock.monotonic()
        return self._buffer.take()

    def _consumed(self, run: OwnQueue, message: StoredMessage) -> ConsumedMessage:
        if not message.properties:
            return ConsumedMessage(message.topic, 0, message, run)
        times = message.properties.get(RECONSUME_TIME, "")
        retries = int(times) if times.isascii() and times.isdigit() and len(times) < 10 else 0
        topic, traces = message.properties.get(RETRY_TOPIC, message.topic), self._around.traces
        span = traces.processing(message, topic, self._options.group) if traces is not None else None
        return ConsumedMessage(topic, retries, message, run, span)

    async def _run(self) -> None:
        """Be a member of the group on each broker group that has one of the topics, until told to leave."""
        try:
            async with asyncio.TaskGroup() as tasks:
                looking = tasks.create_task(self._find_brokers(tasks), name="broker groups of the topics")
                await self._leaves.wait()
                looking.cancel()
                for member in self._members.values():
                    member.session.leave()
        except* DittoError as failed:
            self._problem = first_of(failed)

    async def _find_brokers(self, tasks: asyncio.TaskGroup) -> None:
        failures = 0
        while True:
            wait_s = _ROUTES_S
            try:
                for broker, topics in (await self._brokers()).items():
                    self._enter(tasks, broker, topics)
                failures = 0
            except (Unavailable, NotReady):
                failures += 1
                wait_s = backoff_s(failures, self._around.chance)
            await asyncio.sleep(wait_s)

    async def _brokers(self) -> Mapping[str, tuple[str, ...]]:
        """The broker groups that have some of the topics, and which; raises TopicNotFound when none has one of them."""
        found: dict[str, list[str]] = {}
        for topic in self._options.topics:
            route = await self._around.routing.route(topic, max_age_s=_ROUTES_S)
            if not route.queues:
                raise TopicNotFound(topic, "any broker group")
            for group in route.queues:
                found.setdefault(group.broker, []).append(topic)
        return {broker: tuple(topics) for broker, topics in found.items()}

    def _enter(self, tasks: asyncio.TaskGroup, broker: str, topics: Sequence[str]) -> None:
        member = self._members.get(broker)
        if member is not None:
            member.session.subscribe(topics)
            return
        options = self._options
        mode = ConsumeMode.BROADCASTING if options.broadcast else ConsumeMode.CLUSTERING
        order = MemberOrder(options.group, broker, options.member, self._filter.expression, mode, options.strategy)
        around, buffer = self._around, self._buffer
        member = self._members[broker] = GroupMember(around, order, topics, buffer, wanted=self._filter, start=options.start)
        tasks.create_task(member.run(), name=f"member of {options.group} at {broker}")


def _checked(options: ConsumerOptions) -> TagFilter:
    """The filter; raises InvalidField for what cannot be."""
    check_group_name(options.group)
    if not options.topics:
        raise InvalidField("topics", "is empty; name at least one")
    for topic in options.topics:
        check_topic_name(topic)
    if not 1 <= options.prefetch <= 100_000:
        raise InvalidField("prefetch", f"{options.prefetch:,} is outside 1 to 100,000")
    return parse_tags(options.tag)


def _level_of(after_s: float) -> int:
    """The shortest delay that is no shorter; 0 for none."""
    if after_s <= 0:
        return 0
    for level, seconds in enumerate(LEVEL_DELAYS_S, 1):
        if after_s <= seconds:
            return level
    raise InvalidField("after_s", f"{after_s:g} s is more than {LEVEL_DELAYS_S[-1]:,} s, the longest delay")
