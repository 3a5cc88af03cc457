"""A member's session with the master of one broker group: the stream on which it lives and is told which queues are its own.

The session lasts for some seconds from when the newest frame was sent that the master has answered. A member that hears nothing for so
long lets all its queues go by itself, because another one may have them then. Until then it keeps them, though the stream broke or another
master leads, and names them when it joins again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import grpc.aio

from dittomq._pb.ditto.messaging.v1.consumer_groups_pb2_grpc import ConsumerGroupServiceStub
from dittomq.client.partitioner import master_of
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.consumer.assignment import Strategy, TopicQueue
from dittomq.consumer.group_session import SESSION_S, ConsumeMode, JoinOrder, QueueAssignment
from dittomq.errors import (
    DittoError,
    FencedEpoch,
    LimitReached,
    NotEnoughReplicas,
    NotMaster,
    NotReady,
    SessionExpired,
    Unavailable,
)
from dittomq.errors.root import first_of
from dittomq.routes import Node
from dittomq.rpc.channel import breaking
from dittomq.rpc.headers import group_of, meant_for
from dittomq.wire import consumer_sessions as wire
from dittomq.wire.consumer_sessions import JoinAnswer, JoinFrame

_FIRST_HEARTBEAT_S: Final = 1.0
_LOOK_S: Final = 0.5
_MOST_UNANSWERED: Final = 64
_LEAVE_S: Final = 5.0

PASSES = (Unavailable, NotReady, NotMaster, NotEnoughReplicas, FencedEpoch, LimitReached, SessionExpired)
"""What another try may not meet."""

log = logging.getLogger("dittomq.consumer")


@dataclass(frozen=True, slots=True)
class MemberOrder:
    """Who joins which group, at which broker group. `tags` is an expression, "*" for all."""

    group: str
    broker: str
    member: str
    tags: str
    mode: ConsumeMode
    strategy: Strategy


class MemberQueues(Protocol):
    """What has the queues of a session."""

    @property
    def queues(self) -> tuple[TopicQueue, ...]:
        """Those that are its own now."""
        ...

    async def give_back(self, queues: Sequence[TopicQueue], *, waits: bool) -> None:
        """Others read these from now on; return when nothing more of them is handed out, and what is handled is committed.

        `waits`: for the caller to handle what it has had.
        """
        ...

    def let_go(self, queues: Sequence[TopicQueue]) -> None:
        """These are lost."""
        ...

    def begin(self, queue: TopicQueue) -> None:
        """Read this one, too."""
        ...

    def doubt_offsets(self) -> None:
        """A master has taken this member in: what is committed there may be other than what was known."""
        ...


class MemberSession:
    """One session, over as many streams as it takes."""

    def __init__(self, around: ClientContext, order: MemberOrder, topics: Sequence[str], queues: MemberQueues) -> None:
        self._around = around
        self._order = order
        self._topics = tuple(topics)
        self._queues = queues
        self._process = f"{around.chance.getrandbits(64):016x}"
        self._generation = 0  # of the newest assignment that is in effect
        self._given: QueueAssignment | None = None  # the newest one that the master told
        self._given_news = asyncio.Event()
        self._until = float("-inf")  # the session's end, by our clock
        self._answers_by = float("-inf")  # the stream's first answer
        self._is_joined = False  # it has come
        self._sent_s: dict[int, float] = {}
        self._number = 0
        self._heartbeat_s = _FIRST_HEARTBEAT_S
        self._leaves = asyncio.Event()
        self._news = asyncio.Event()  # something to say before the next heartbeat is due
        self._joins_again = False
        self._is_master_doubted = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Read these topics too from now on."""
        if set(topics) - set(self._topics):
            self._topics = tuple(sorted({*self._topics, *topics}))
            self._joins_again = True
            self._news.set()

    def leave(self) -> None:
        """Give the queues back and end `run`."""
        self._leaves.set()
        self._news.set()

    async def run(self) -> None:
        """Be a member until told to leave. Raises the DittoError that no other try can put right."""
        failures = 0
        while not self._leaves.is_set():
            before = self._until
            try:
                await self._live()
            except PASSES as problem:
                log.debug("group %s has no session at %s: %s", self._order.group, self._order.broker, problem)
                self.doubt_master()
            failures = 0 if self._until > before else failures + 1
            await self._rest(backoff_s(failures, self._around.chance))

    async def find_master(self) -> Node:
        """The broker group's master now; raises Unavailable while nobody knows one."""
        doubted, self._is_master_doubted = self._is_master_doubted, False
        for is_fresh in (True,) if doubted else (False, True):
            for topic in self._topics:
                route = await self._around.routing.route(topic, fresh=is_fresh, of_all=is_fresh)
                if (master := master_of(route, self._order.broker)) is not None:
                    return master
        self._is_master_doubted = True
        raise Unavailable(f"the master of {self._order.broker}", "no nameserver knows one now")

    def doubt_master(self) -> None:
        """Whom the last route named may be no master now: ask again."""
        self._is_master_doubted = True

    def end_when_late(self) -> bool:
        """Whether the session is over: then its queues are lost, at once."""
        if self._around.clock.monotonic() < self._until:
            return False
        if self._queues.queues:
            log.warning("the session of group %s at %s is over: its queues are lost", self._order.group, self._order.broker)
            self._queues.let_go(self._queues.queues)
        return True

    async def _rest(self, seconds: float) -> None:
        """Until told to leave; the session may end meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._leaves.wait()
        self.end_when_late()

    async def _live(self) -> None:
        """One stream, until this member leaves or the stream ends, which raises."""
        try:
            master = await self.find_master()
        finally:
            self.end_when_late()
        address = self._around.routing.address(master)
        stub: Any = self._around.channels.stub(ConsumerGroupServiceStub, address)
        stream: Any = stub.Join(metadata=meant_for(group_of(master)))
        problem: DittoError | None = None
        try:
            await self._converse(stream, f"{master.name} at {address}")
        except* DittoError as ended:
            problem = first_of(ended)
        finally:
            stream.cancel()
        if problem is not None:
            raise problem

    async def _converse(self, stream: Any, who: str) -> None:
        """In tasks of a group: what raises first ends the others."""
        self._given, self._is_joined = None, False
        self._answers_by = self._around.clock.monotonic() + SESSION_S
        async with asyncio.TaskGroup() as tasks:
            talking = tasks.create_task(self._talk(stream, who), name="heartbeats")
            obeying = tasks.create_task(self._obey(), name="assignments")
            watching = tasks.create_task(self._watch(who), name="session")
            with breaking(who):
                while (response := await stream.read()) is not grpc.aio.EOF:
                    self._take_answer(wire.join_answer(response), who)
            if not self._leaves.is_set():
                raise Unavailable(who, "it has ended the session")
            for task in (talking, obeying, watching):
                task.cancel()

    async def _talk(self, stream: Any, who: str) -> None:
        """Say that this member lives, what is in effect, and what it wants; at last that it leaves."""
        await self._send_frame(stream, who, self._join_order())
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat_s):
                    await self._news.wait()
            self._news.clear()
            if self._leaves.is_set():
                await self._send_goodbye(stream, who)
                return
            joins_again, self._joins_again = self._joins_again, False
            await self._send_frame(stream, who, self._join_order() if joins_again else None)

    async def _send_goodbye(self, stream: Any, who: str) -> None:
        """It leaves: others have its queues at once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                await self._queues.give_back(self._queues.queues, waits=False)
        await self._send_frame(stream, who, None, leaves=True)

    async def _send_frame(self, stream: Any, who: str, order: JoinOrder | None, *, leaves: bool = False) -> None:
        self._number += 1
        self._sent_s[self._number] = self._around.clock.monotonic()
        if len(self._sent_s) > _MOST_UNANSWERED:
            del self._sent_s[next(iter(self._sent_s))]
        frame = JoinFrame(self._number, self._order.group, order, self._generation, leaves)
        try:
            with breaking(who):
                await stream.write(wire.join_request(frame))
        except asyncio.InvalidStateError:
            return  # it has ended: whoever reads it hears why

    def _join_order(self) -> JoinOrder:
        order, held = self._order, frozenset(self._queues.queues)
        topics = dict.fromkeys(self._topics, order.tags)
        return JoinOrder(order.member, self._process, topics, order.mode, order.strategy, held, self._generation)

    def _take_answer(self, answer: JoinAnswer, who: str) -> None:
        """What comes when the session is over makes it no longer: its queues are lost, and only another join tells which are ours."""
        if self.end_when_late() and self._is_joined:
            raise Unavailable(who, "it answered when the session was over")
        if not self._is_joined:
            self._is_joined = True
            self._queues.doubt_offsets()
        self._heartbeat_s = answer.heartbeat_s
        if (sent_s := self._sent_s.get(answer.answered)) is not None:
            self._until = max(self._until, sent_s + answer.session_s)
        if answer.assignment is not None:
            self._given = answer.assignment
            self._given_news.set()

    async def _obey(self) -> None:
        """Put the newest assignment into effect, then say so: what is not in it is free for others from then on."""
        while True:
            await self._given_news.wait()
            self._given_news.clear()
            if (given := self._given) is None:
                continue
            gone = [queue for queue in self._queues.queues if queue not in given.queues]
            if gone:
                await self._queues.give_back(gone, waits=True)
            self._generation = given.generation
            for queue in sorted(given.queues - set(self._queues.queues)):
                self._queues.begin(queue)
            self._news.set()

    async def _watch(self, who: str) -> None:
        """A session that has ended unheard is begun anew, on another stream."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self.end_when_late() and self._around.clock.monotonic() >= self._answers_by:
                raise Unavailable(who, "it has not answered for as long as a session lasts")
