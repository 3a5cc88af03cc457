"""⑧ Reading one queue: from the master or the node that it suggests, from another when that is silent, from one when the caller insists."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client.read_ahead import Answer, ReadAhead
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.client.validation import check_number, encoded, epoch_ms
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    InvalidField,
    LimitReached,
    NotReady,
    OffsetOutOfRange,
    QueueNotFound,
    StaleCopy,
    TopicNotFound,
    Unavailable,
)
from dittomq.message import StoredMessage
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.reads import DEFAULT_PULL_BYTES, MAX_STALENESS_S, PullRequest, PullResult, PullStatus
from dittomq.routes import Node, Route
from dittomq.rpc.channel import breaking, call
from dittomq.rpc.headers import check_answerer, meant_for
from dittomq.tokens import decode_token
from dittomq.wire import messaging as wire
from dittomq.wire.lookups import find_offset_request

_ANSWER_DEADLINE_S = 3.0  # beyond the wait that was asked for
_MOST_WAIT_S = 1e9  # beyond what any broker takes
_AVOID_S = 5.0  # for so long a node that ends before the offset is asked behind the others, and one that did not answer last
_QUICK_S = 5.0  # whoever takes longer for a page is not read ahead for: a node lets go who takes no answer for half a minute
_ROUNDS = 3
_TRY_ANOTHER = (Unavailable, NotReady, LimitReached, CorruptRecord, StaleCopy)
_UNHEARD_OF = (TopicNotFound, QueueNotFound)  # what a slave says of whose topics are older than another one's
_SPECIFIC = (CorruptRecord, OffsetOutOfRange, *_UNHEARD_OF)  # what a copy says of the offset, which another one's silence does not hide


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """`broker` None: the only group that has the topic. `node` "broker/id": no other may answer. `tag` "a || b": only these.

    `group`: the consumer group that reads, whose settings say which node is to be asked; "": none.

    Limits of one pull: at most `max_messages` and `max_bytes`, but always one message.
    """

    broker: str | None = None
    node: str | None = None
    tag: str = ""
    max_messages: int = 256
    max_bytes: int = DEFAULT_PULL_BYTES
    group: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """Messages of one queue, in its order, and the node that had them. The queue holds [min_offset, max_offset) there.

    `epoch`: that of its last message, to be given with the pull behind the page; None: it has none, and none was given. `confirmed`: its
    confirmed end of the log, bytes. `unconfirmed_from`: from this queue offset on a new master may undo what was returned; None: nothing.
    """

    messages: tuple[StoredMessage, ...]
    next_offset: QueueOffset
    min_offset: QueueOffset
    max_offset: QueueOffset
    confirmed: PhysicalOffset
    unconfirmed_from: QueueOffset | None
    node: str
    epoch: Epoch | None


@dataclass(slots=True)
class _RoundResult:
    """What copies said in one round that had nothing behind the offset; `idle` are slaves: others may hold more."""

    problem: DittoError | None = None
    behind: list[Node] = field(default_factory=list)
    idle: list[tuple[Node, PullResult]] = field(default_factory=list)


class Reader:
    """Reads one queue of one topic. Holds no position: the caller does."""

    def __init__(self, topic: str, queue: int, around: ClientContext, options: ReaderOptions) -> None:
        self._topic = topic
        self._queue = queue
        self._around = around
        self._options = options
        encoded("tag", options.tag)
        self._tags = wire.tags_of(options.tag)
        self._avoided: dict[str, tuple[float, bool]] = {}  # node → until when it is asked behind the others, and whether it answers
        self._lots: dict[str, float] = {}  # node → its place among slaves: readers spread over them
        self._last_slave = ""  # the one that answered last
        self._suggested_id = 0  # the node that the last answer said to ask next; 0 is the master
        self._answered: Node | None = None  # the node that did last
        self._ahead: ReadAhead | None = None
        self._took_s = float("-inf")  # when the last page was

    async def pull(
        self,
        offset: int,
        *,
        wait_s: float = 0.0,
        at_least: str | None = None,
        max_staleness_s: float | None = None,
        epoch: int | None = None,
    ) -> Page:
        """A page from `offset` on, empty when nothing came within `wait_s`. With `at_least`, a receipt's token, from a copy that holds it.

        With `max_staleness_s`, from a copy that lacks nothing which was confirmed longer ago: a node that cannot say so is passed over.

        `epoch`: that of the page in which the message before `offset` was read. LogTruncated where another one was stored there since.

        All waits together are no longer than `wait_s`; a silent node costs 3 s more.
        Raises OffsetOutOfRange when no copy that answers holds the offset, TopicNotFound, Unavailable when none answers, NotReady when none
        holds what the token names, StaleCopy when no copy that answers is fresh enough.
        """
        self._check(offset, wait_s, max_staleness_s)
        order = self._order(offset, wait_s, at_least, max_staleness_s, epoch=epoch)
        found = await self._rounds(order, self._around.clock.monotonic() + wait_s)
        if isinstance(found, NotReady):
            raise found
        return found

    async def bounds(self, offset: int = 0) -> tuple[int, int]:
        """The first offset that the queue holds, and one past its last; the message at `offset`, if there is one, must be whole.

        Raises what `pull` raises but OffsetOutOfRange.
        """
        try:
            page = await self.pull(offset)
        except OffsetOutOfRange as outside:
            return outside.start, outside.end
        return page.min_offset, page.max_offset

    async def offset_at(self, time: datetime) -> int:
        """The first message of the queue that was stored at or after that time, one past the last where there is none yet.

        Raises TopicNotFound, QueueNotFound, InvalidField for a time without a zone, Unavailable when no copy answers.
        """
        check_number("queue", self._queue, 32)
        request = find_offset_request(self._topic, self._queue, epoch_ms("time", time))
        problem: DittoError = Unavailable(self._who(), "no node of it is registered")
        for node in self._in_order(await self._around.routing.route(self._topic)):
            address = self._around.routing.address(node)
            stub: Any = self._around.channels.stub(MessagingServiceStub, address)
            try:
                found = await call(stub.FindOffset, request, who=f"{node.name} at {address}", deadline_s=_ANSWER_DEADLINE_S, node=node)
            except (Unavailable, NotReady) as silent:
                problem = silent
            else:
                return int(found.offset)
        raise problem

    def _order(
        self, offset: int, wait_s: float, at_least: str | None = None, max_staleness_s: float | None = None, *, epoch: int | None
    ) -> PullRequest:
        return PullRequest(
            topic=self._topic,
            queue=self._queue,
            offset=QueueOffset(offset),
            max_messages=self._options.max_messages,
            max_bytes=self._options.max_bytes,
            wait_s=wait_s,
            tags=self._tags,
            at_least=decode_token(at_least) if at_least else None,
            group=self._options.group,
            max_staleness_s=max_staleness_s,
            as_records=True,
            epoch=None if epoch is None else Epoch(epoch),
        )

    def _check(self, offset: int, wait_s: float, max_staleness_s: float | None) -> None:
        """What brokers refuse is theirs to say; this is what the wire cannot carry."""
        check_number("queue", self._queue, 32)
        check_number("offset", offset, 64)
        check_number("max_messages", self._options.max_messages, 32)
        check_number("max_bytes", self._options.max_bytes, 32)
        if not abs(wait_s) < _MOST_WAIT_S:
            raise InvalidField("wait_s", f"{wait_s:g} s is outside 0 to 60 s")
        if max_staleness_s is not None and not 0 < max_staleness_s <= MAX_STALENESS_S:
            raise InvalidField("max_staleness_s", f"{max_staleness_s:g} s is outside (0, {MAX_STALENESS_S:,g}] s; None: of any age")

    async def messages(self, from_offset: int = 0, *, until_end: bool = False, wait_s: float = 15.0) -> AsyncIterator[StoredMessage]:
        """Every message from an offset on, for ever, or up to what was the end when the reading began to find nothing.

        While the caller has the messages of one page the next one is made, and comes where it fits a stream's window.
        """
        async with contextlib.aclosing(self.pages(from_offset, until_end=until_end, wait_s=wait_s)) as pages:
            async for page in pages:
                for message in page.messages:
                    yield message

    async def pages(self, from_offset: int = 0, *, until_end: bool = False, wait_s: float = 15.0) -> AsyncGenerator[Page, None]:
        """The same page by page; with `until_end` the last one is empty, otherwise one that waited in vain is."""
        offset, epoch = from_offset, None
        try:
            while True:
                page = await self.pull(offset, wait_s=0.0 if until_end else wait_s, epoch=epoch)
                self.read_ahead(page)
                yield page
                if until_end and page.next_offset == offset:
                    return
                offset, epoch = page.next_offset, page.epoch
        finally:
            self.stop_reading_ahead()

    def read_ahead(self, page: Page) -> None:
        """Let what follows that page, the last one pulled, come before it is pulled, where there is more and pages are taken quickly.

        `stop_reading_ahead` at the end.
        """
        now = self._around.clock.monotonic()
        is_quick, self._took_s = now - self._took_s < _QUICK_S, now
        node, order = self._answered, self._order(page.next_offset, 0.0, epoch=page.epoch)
        if node is None or node.name != page.node or page.next_offset >= page.max_offset or not is_quick:
            self.stop_reading_ahead()
        elif self._ahead is None or not self._ahead.has(node, order):
            self.stop_reading_ahead()
            request = wire.pull_stream_request(order)
            self._ahead = ReadAhead(node, order, self._stub(node).PullStream(request, metadata=meant_for(node)))

    def stop_reading_ahead(self) -> None:
        """Nothing more is wanted."""
        if self._ahead is not None:
            self._ahead.leave()
            self._ahead = None

    async def _rounds(self, order: PullRequest, until: float) -> Page | NotReady:
        rounds = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, NotReady, StaleCopy)),
            stop=stop_after_attempt(_ROUNDS),
            wait=self._backoff_s,
            sleep=asyncio.sleep,
            reraise=True,
        )
        async for attempt in rounds:
            with attempt:
                return await self._round(order, until, fresh=attempt.retry_state.attempt_number > 1)
        raise AssertionError("the last round returns or raises")

    def _backoff_s(self, state: RetryCallState) -> float:
        return backoff_s(state.attempt_number, self._around.chance)

    async def _round(self, order: PullRequest, until: float, *, fresh: bool) -> Page | NotReady:
        """Ask the copies one after the other, each without waiting for what another one may have; then wait at one of them.

        NotReady is returned when all answered and none of them holds it: another round would find no more.
        """
        copies = self._in_order(await self._around.routing.route(self._topic, fresh=fresh))
        if not copies and self._options.node is not None:
            copies = await self._around.routing.nodes_named(self._options.node)
        looks_first = order.at_least is not None and len(copies) > 1
        round_result = _RoundResult()
        for place, node in enumerate(copies, start=1):
            if round_result.idle and self._is_silent(node):
                continue
            has_others = round_result.idle or not all(map(self._is_silent, copies[place:]))
            at_once = looks_first or _is_elsewhere(round_result.problem) or (node.broker_id and has_others)
            try:
                answer = await self._ask(node, replace(order, wait_s=0.0) if at_once else self._rest_of(order, until))
            except (*_TRY_ANOTHER, *_SPECIFIC) as raised:
                round_result.problem = self._went_wrong(node, raised, round_result.problem)
                continue
            self._avoided.pop(node.name, None)
            if answer.status is PullStatus.BEHIND:
                round_result.behind.append(node)
            elif not _is_more_specific(answer, round_result.problem, order.offset):
                continue
            elif answer.next_offset > order.offset or not node.broker_id or not at_once:
                return self._taken(node, answer, order.offset)
            else:
                round_result.idle.append((node, answer))
        return await self._wait(round_result, order, until, looks_first=looks_first)

    async def _wait(self, round_result: "_RoundResult", order: PullRequest, until: float, *, looks_first: bool) -> Page | NotReady:
        """All that answer were asked, and none has more now: wait at one that has all there is, or for what a token names.

        Where one says that there is more, which it cannot give, those that have nothing behind the offset are only behind.
        """
        rest = self._rest_of(order, until)
        idle = [] if _is_elsewhere(round_result.problem) else sorted(round_result.idle, key=lambda each: -each[1].max_offset)
        for node, answer in idle:
            try:
                last = await self._ask(node, rest) if rest.wait_s > 0 else answer
            except (LimitReached, CorruptRecord, StaleCopy) as problem:
                round_result.problem = self._went_wrong(node, problem, round_result.problem)
                if isinstance(problem, CorruptRecord):
                    break
            else:
                return self._taken(node, last, order.offset)
        if not round_result.behind:
            raise round_result.problem or Unavailable(self._who(), "no nameserver knows it now; list those it knows: dittomq cluster")
        first = round_result.behind[0]
        if looks_first and rest.wait_s > 0:
            answer = await self._ask(first, rest)
            if answer.status is not PullStatus.BEHIND:
                return _page(answer, first)
        late = NotReady(first.name, "it does not hold yet what the token names; pull with a longer wait_s")
        if round_result.problem is not None:
            raise late
        return late

    def _taken(self, node: Node, answer: PullResult, offset: int) -> Page:
        self._answered = node
        self._remember(node, answer, offset)
        return _page(answer, node)

    def _is_silent(self, node: Node) -> bool:
        """Whether it did not answer a moment ago."""
        until, answers = self._avoided.get(node.name, (0.0, True))
        return not answers and until > self._around.clock.monotonic()

    def _went_wrong(self, node: Node, raised: DittoError, before: DittoError | None) -> DittoError:
        """What to say if no other copy has more; `before`: what those said that were asked before. Raises what nobody knows better."""
        if isinstance(raised, OffsetOutOfRange):
            if _is_dropped(raised):  # each copy drops by itself what is old: another one may hold it
                self._avoid(node, answers=True)
            return _outside(raised, before)
        if isinstance(raised, _UNHEARD_OF):
            if not node.broker_id:  # a master knows all
                raise raised
            self._avoid(node, answers=True)
            return before if isinstance(before, _SPECIFIC) else raised
        self._avoid(node, answers=isinstance(raised, StaleCopy))
        return raised if isinstance(raised, CorruptRecord) or not isinstance(before, _SPECIFIC) else before

    def _rest_of(self, order: PullRequest, until: float) -> PullRequest:
        """The order with what is left of its wait."""
        return replace(order, wait_s=min(order.wait_s, max(0.0, until - self._around.clock.monotonic())))

    async def _ask(self, node: Node, order: PullRequest) -> PullResult:
        who = f"{node.name} at {self._around.routing.address(node)}"
        with breaking(who, node):
            ahead = self._ahead if self._ahead is not None and self._ahead.has(node, order) else None
            if ahead is None or (found := await ahead.next(who)) is None:
                self.stop_reading_ahead()
                found = await self._call(node, order)
            response, headers = found
            check_answerer(headers.items(), node, who)
        return wire.pull_answer(response, order, node.name)

    async def _call(self, node: Node, order: PullRequest) -> Answer:
        deadline_s = order.wait_s + _ANSWER_DEADLINE_S
        pulled = self._stub(node).Pull(wire.pull_request(order), timeout=deadline_s, metadata=meant_for(node))
        response: pb.PullResponse = await pulled
        return response, dict(await pulled.initial_metadata() or ())

    def _stub(self, node: Node) -> Any:
        return self._around.channels.stub(MessagingServiceStub, self._around.routing.address(node))

    def _remember(self, node: Node, answer: PullResult, offset: int) -> None:
        """Ask next whom the answer suggests, and stay with a slave that answers, unless it ends before what others had."""
        self._suggested_id = answer.suggested_broker_id
        if answer.max_offset < offset:
            self._avoid(node, answers=True)
        elif node.broker_id:
            self._last_slave = node.name

    def _avoid(self, node: Node, *, answers: bool) -> None:
        self._avoided[node.name] = self._around.clock.monotonic() + _AVOID_S, answers

    def _in_order(self, route: Route) -> list[Node]:
        """The node that was suggested, the master, the slave that answered last, then the others in this reader's own order.

        Whoever is avoided comes behind. Where the route lacks a slave that was suggested, the next id stands for it, as in RocketMQ.
        """
        nodes = [node for node in route.nodes if node.broker == self._group(route)]
        if self._options.node is not None:
            nodes = [node for node in nodes if node.name == self._options.node]
        now, wanted_id = self._around.clock.monotonic(), self._suggested_id
        if wanted_id and all(node.broker_id != wanted_id for node in nodes):
            wanted_id += 1
        for node in nodes:
            if node.broker_id and node.name not in self._lots:
                self._lots[node.name] = self._around.chance.random()

        def place(node: Node) -> tuple[bool, bool, bool, bool, bool, float]:
            until, answers = self._avoided.get(node.name, (now, True))
            is_avoided = until > now
            return (
                is_avoided,
                is_avoided and not answers,
                node.broker_id != wanted_id,
                node.broker_id != 0,
                node.name != self._last_slave,
                self._lots.get(node.name, 0.0),
            )

        return sorted(nodes, key=place)

    def _group(self, route: Route) -> str:
        if self._options.broker is not None:
            return self._options.broker
        if self._options.node is not None:
            return self._options.node.partition("/")[0]
        groups = sorted(group.broker for group in route.queues)
        if len(groups) > 1:
            raise InvalidField("broker", f'topic "{self._topic}" has queues in {", ".join(groups)}; name one of them')
        return groups[0] if groups else ""

    def _who(self) -> str:
        return self._options.node or f'any node with queue {self._queue} of topic "{self._topic}"'


def _is_more_specific(answer: PullResult, problem: DittoError | None, offset: int) -> bool:
    """Whether it does not only wait for what another copy says is damaged, or not there."""
    if isinstance(problem, CorruptRecord):
        return answer.next_offset > offset
    return not isinstance(problem, OffsetOutOfRange) or answer.max_offset >= offset


def _is_elsewhere(problem: DittoError | None) -> bool:
    """Whether a copy says that there is a message, which it cannot give."""
    return isinstance(problem, CorruptRecord) or _is_dropped(problem)


def _is_dropped(problem: DittoError | None) -> bool:
    """Whether a copy says that its queue begins behind the offset."""
    return isinstance(problem, OffsetOutOfRange) and problem.asked < problem.start


def _outside(outside: OffsetOutOfRange, problem: DittoError | None) -> DittoError:
    """What to say of an offset that is outside of what a copy holds, and that copies before had this problem with."""
    if not _is_dropped(outside):
        return outside  # this copy may be behind the others
    if isinstance(problem, CorruptRecord):
        return problem  # it is not gone
    if isinstance(problem, OffsetOutOfRange) and _is_dropped(problem) and problem.start < outside.start:
        return problem
    return outside


def _page(answer: PullResult, node: Node) -> Page:
    return Page(
        messages=answer.messages,
        next_offset=answer.next_offset,
        min_offset=answer.min_offset,
        max_offset=answer.max_offset,
        confirmed=answer.confirmed,
        unconfirmed_from=answer.unconfirmed_from,
        node=node.name,
        epoch=answer.epoch,
    )
