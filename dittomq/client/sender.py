"""① A producer's stream to the master of one broker group: opens it, obeys the accumulator, closes it, opens the next one after a pause."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, assert_never

import grpc.aio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client.accumulator import RecordAccumulator
from dittomq.client.accumulator_events import (
    Abandoned,
    Appended,
    BatchRefused,
    BatchStored,
    EndStream,
    Event,
    Reroute,
    ResolveNotStored,
    ResolveStored,
    ResolveUnknown,
    SendBatch,
    StreamEnded,
    StreamOpened,
    Ticked,
    TurnEnded,
)
from dittomq.client.batches import PendingSend, ProducerBatch
from dittomq.client.partitioner import master_of
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.errors import DittoError, NotMaster, NotReady, PermissionDenied, QueueNotFound, Refused, Unavailable, first_of
from dittomq.message import Ack
from dittomq.receipts import BatchReceipt
from dittomq.routes import DEFAULT_NETWORK, BrokerState, Node
from dittomq.rpc import status
from dittomq.rpc.channel import typed
from dittomq.rpc.headers import EPOCH_HEADER, LOG_END_HEADER, check_answerer, group_of, meant_for
from dittomq.wire import messaging as wire

_OPEN_DEADLINE_S = 3.0
_SUCCESSOR_BACKOFF_S = 0.1  # at most, while a master that does not answer is being replaced: that takes some tenths of a second
_SUCCESSOR_LOOKS = 50
_LOOKS_AROUND_S = 0.5  # while an answer has been awaited for longer than _TIMEOUT_S
_TIMEOUT_S = 1.0
_MAX_SESSIONS = 1_024
_TURNS_OF_AN_ANSWER = 4
"""Callbacks from an answer to the offer of whoever waited for it: a task, and what its caller has put around it."""

Resolved = ResolveStored | ResolveNotStored | ResolveUnknown
Stream = grpc.aio.StreamStreamCall[pb.PublishStreamRequest, pb.PublishStreamResponse]


@dataclass(frozen=True, slots=True)
class SenderListener:
    """What the producer asks for in every batch, and what it does with what is settled or handed back, or when a stream has ended."""

    ack: Ack | None
    timeout_s: float
    resolve: Callable[[Resolved, str], None]
    hand_back: Callable[[Reroute, str], None]
    lost: Callable[[str], None]


class _InDoubt(NamedTuple):
    """What was sent under one producer id and not answered: to masters up to this epoch, whose logs had at least this end."""

    epoch: int
    since: int


class GroupSender:
    """One producer and one broker group."""

    def __init__(self, broker: str, accumulator: RecordAccumulator, around: ClientContext, owner: SenderListener) -> None:
        self._broker = broker
        self._accumulator = accumulator
        self._around = around
        self._owner = owner
        self._topic = ""  # the last one offered: its route tells the master
        self._offered: list[PendingSend] = []  # in this turn of the loop; the producer bounds their bytes
        self._failures = 0
        self._epoch = 0
        self._log_end = 0
        self._not_masters: dict[str, int] = {}  # address → epoch of nodes that said so since the last answer
        self._named_master = ""  # the address that the last of them named instead; empty: none, or it was tried
        self._unanswered: dict[str, _InDoubt] = {}  # by producer id
        self._work = asyncio.Event()
        self._outgoing: deque[ProducerBatch] = deque()  # at most the accumulator's batches in flight
        self._outgoing_changed = asyncio.Event()
        self._ending: asyncio.Future[DittoError] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._turn_awaited = False
        self._closed = False

    def offer(self, send: PendingSend) -> None:
        """Send it when its turn comes; the owner hears what became of it.

        The accumulator takes all that are offered in one turn of the loop together: with many callers that is most of its work.
        """
        self._offered.append(send)
        if self._closed:
            self._take_offered()
            self._feed(Abandoned())
        elif not self._turn_awaited:
            self._turn_awaited = True
            self._await_turn(1)

    def sent_epoch(self, producer_id: str) -> int | None:
        """The newest epoch of a master that may hold something under this id that it has not answered; None when that is not known."""
        self._record_in_doubt()
        return self._unanswered[producer_id].epoch if producer_id in self._unanswered else None

    def sent_since(self, producer_id: str) -> int:
        """No try of anything under this id that was not answered can lie below this position of the log."""
        self._record_in_doubt()
        return self._unanswered[producer_id].since if producer_id in self._unanswered else 0

    async def run(self) -> None:
        """Keep a stream while there is work, until cancelled. Then everything is settled."""
        retrying = AsyncRetrying(retry=retry_if_exception_type(DittoError), wait=self._backoff_s, sleep=asyncio.sleep)
        try:
            async for attempt in retrying:
                with attempt:
                    await self._work.wait()
                    await self._serve_one_stream()
        finally:
            self.close()

    def close(self) -> None:
        """Settle everything, also what is offered from now on: nothing is sent any more."""
        if not self._closed:
            self._closed = True
            self._take_offered()
            self._feed(Abandoned())
            if self._timer is not None:
                self._timer.cancel()

    def _backoff_s(self, state: RetryCallState) -> float:
        if self._named_master and self._failures == 1:
            return 0.0
        if self._failures <= _SUCCESSOR_LOOKS:
            return backoff_s(self._failures, self._around.chance, most_s=_SUCCESSOR_BACKOFF_S)
        return backoff_s(self._failures, self._around.chance)

    async def _serve_one_stream(self) -> None:
        """Always ends by raising why the stream ended; the accumulator has heard it."""
        try:
            master = await self._find_master()
            await self._converse(master)
        except DittoError as problem:
            self._failures += 1
            self._owner.lost(self._broker)
            self._feed(StreamEnded(problem))
            raise

    async def _find_master(self) -> Node:
        named, self._named_master = self._named_master, ""
        if named and (node := self._node_at(named)) is not None:
            return node
        route = await self._around.routing.route(self._topic, fresh=self._failures > 0, of_all=self._failures > 1)
        master = master_of(route, self._broker)
        if master is None:
            raise Unavailable(f"the master of {self._broker}", "no nameserver knows one now")
        if master.state is BrokerState.RECOVERING:
            raise NotReady(master.name, "it recovers and takes no writes yet")
        if master.epoch <= self._not_masters.get(master.address, -1):
            raise NotReady(master.name, "it is no master now, and nameservers do not know another one yet")
        return master

    def _node_at(self, address: str) -> Node | None:
        """The node of the group that names this address for itself: its route tells where this client reaches it."""
        route = self._around.routing.last_route(self._topic)
        nodes = () if route is None else route.nodes
        return next((node for node in nodes if node.broker == self._broker and node.addresses.get(DEFAULT_NETWORK) == address), None)

    async def _converse(self, master: Node) -> None:
        who = f"{master.name} at {self._around.routing.address(master)}"
        stub: Any = self._around.channels.stub(MessagingServiceStub, self._around.routing.address(master))
        stream: Stream = stub.PublishStream(metadata=meant_for(group_of(master)))
        self._outgoing.clear()
        self._ending = asyncio.get_running_loop().create_future()
        try:
            await self._open(stream, master, who)
            self._feed(StreamOpened(self._log_end))
            raise await self._exchange(stream, who)
        except NotMaster as refused:
            self._not_masters[master.address], self._named_master = self._epoch, refused.master
            raise
        finally:
            self._ending = None
            stream.cancel()

    async def _exchange(self, stream: Stream, who: str) -> DittoError:
        """Write and read until the stream ends; why it ended.

        In a task of its own: up to Python 3.11.2 a task whose group has failed is ended by its next time-out.
        """
        async with asyncio.TaskGroup() as tasks:
            return await tasks.create_task(self._write_and_read(stream, who))

    async def _write_and_read(self, stream: Stream, who: str) -> DittoError:
        problem: DittoError = Unavailable(who, "it ended the stream")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(stream, who))
                tasks.create_task(self._write(stream))
                tasks.create_task(self._watch_for_end())
                tasks.create_task(self._watch_for_successor(who))
        except* DittoError as ended:
            problem = first_of(ended)
        return problem

    async def _watch_for_end(self) -> None:
        assert self._ending is not None  # it is set before the stream is used
        raise await self._ending

    async def _watch_for_successor(self, who: str) -> None:
        """While an answer is long in coming, ask nameservers who leads: a suspended master, or one that is parted, cannot say."""
        while True:
            await asyncio.sleep(_LOOKS_AROUND_S)
            if self._accumulator.waits_s(self._around.clock.monotonic()) < _TIMEOUT_S:
                continue
            try:
                route = await self._around.routing.route(self._topic, fresh=True)
            except DittoError:
                continue
            leads = master_of(route, self._broker)
            if leads is not None and leads.epoch > self._epoch:
                raise Unavailable(who, f"it does not answer, and {leads.name} leads in epoch {leads.epoch}")

    async def _open(self, stream: Stream, master: Node, who: str) -> None:
        """The server's headers show that it is of the group and takes messages: before them, nothing is sent.

        Without its log's end among them it takes none, and the end of the stream says why. One that begins to lead just then may not
        end it; but the epoch that it has named is not the one in which it would write, so it gets nothing on this stream either.
        """
        headers: dict[str, Any] = {}
        try:
            async with asyncio.timeout(_OPEN_DEADLINE_S):
                headers = dict(await stream.initial_metadata() or ())
                check_answerer(headers.items(), group_of(master), who)
                self._epoch, self._log_end = int(headers.get(EPOCH_HEADER, 0)), int(headers.get(LOG_END_HEADER, 0))
                if LOG_END_HEADER not in headers:
                    await stream.read()
                    raise Unavailable(who, "it ended the stream" if EPOCH_HEADER in headers else "it is no dittomq broker")
        except grpc.aio.AioRpcError as error:
            raise typed(error, who) from error
        except TimeoutError as late:
            silent = f"named no {LOG_END_HEADER}, so it takes no messages, nor said why" if headers else "did not take a stream"
            raise Unavailable(who, f"it {silent} within {_OPEN_DEADLINE_S:g} s") from late

    async def _read(self, stream: Stream, who: str) -> None:
        while True:
            try:
                response = await stream.read()
            except grpc.aio.AioRpcError as error:
                raise typed(error, who) from error
            if not isinstance(response, pb.PublishStreamResponse):
                raise Unavailable(who, "it ended the stream")
            self._feed(_answer(response))

    async def _write(self, stream: Stream) -> None:
        while True:
            while self._outgoing:
                request = wire.batch_request(self._request(self._outgoing.popleft()))
                try:
                    await stream.write(request)
                except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    return  # the stream is over; reading it says why
            self._outgoing_changed.clear()
            await self._outgoing_changed.wait()

    def _request(self, batch: ProducerBatch) -> wire.BatchRequest:
        plain = batch.plain_runs()
        messages, queues = batch.content() if plain is None else ((), ())
        assert batch.sent_since is not None, "it is being sent"
        return wire.BatchRequest(
            batch_id=batch.batch_id,
            messages=messages,
            queues=queues,
            plain=plain,
            ack=self._owner.ack,
            timeout_s=self._owner.timeout_s,
            producer_id=batch.producer_id,
            first_sequence=batch.first_sequence,
            sent_since=batch.sent_since,
        )

    def _feed(self, event: Event, not_before: float = float("-inf")) -> None:
        if isinstance(event, BatchStored):
            self._failures = 0
            self._not_masters.clear()
        elif isinstance(event, BatchRefused) and isinstance(event.error, QueueNotFound | PermissionDenied):
            for topic in self._accumulator.topics(event.batch_id):
                self._around.routing.outdated(topic)
        elif isinstance(event, StreamEnded | Abandoned):
            self._record_in_doubt()
        for command in self._accumulator.handle(event, max(not_before, self._around.clock.monotonic())):
            match command:
                case SendBatch(batch):
                    self._send(batch)
                case EndStream(problem):
                    if self._ending is not None and not self._ending.done():
                        self._ending.set_result(problem)
                case ResolveStored() | ResolveNotStored() | ResolveUnknown():
                    self._owner.resolve(command, self._broker)
                case Reroute():
                    self._owner.hand_back(command, self._broker)
                case _:
                    assert_never(command)
        if self._accumulator.wants_stream:
            self._work.set()
        else:
            self._work.clear()
        self._set_timer()
        if isinstance(event, BatchStored | BatchRefused) and self._accumulator.wants_turn and not self._turn_awaited:
            self._turn_awaited = True
            self._await_turn(_TURNS_OF_AN_ANSWER)

    def _await_turn(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._await_turn, turns - 1)
        else:
            self._turn_awaited = False
            self._take_offered()
            if self._accumulator.wants_turn:
                self._feed(TurnEnded())

    def _take_offered(self) -> None:
        if self._offered:
            offered, self._offered = self._offered, []
            self._topic = offered[-1].messages[0].topic
            self._feed(Appended(offered))

    def _send(self, batch: ProducerBatch) -> None:
        self._outgoing.append(batch)
        self._outgoing_changed.set()

    def _record_in_doubt(self) -> None:
        """What was answered, with a refusal too, is with that master no more: doubt is about epochs of streams that ended without it."""
        for producer_id in self._accumulator.unanswered:
            before = self._unanswered.pop(producer_id, _InDoubt(self._epoch, self._log_end))
            self._unanswered[producer_id] = _InDoubt(max(self._epoch, before.epoch), min(self._log_end, before.since))
            if len(self._unanswered) > _MAX_SESSIONS:
                del self._unanswered[next(iter(self._unanswered))]

    def _set_timer(self) -> None:
        """A timer that is early does no harm, so it is only moved forward."""
        due = self._accumulator.next_due()
        if due is None or self._closed:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, due - self._around.clock.monotonic())
        if self._timer is None or when < self._timer.when():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(when, self._tick, due)

    def _tick(self, due: float) -> None:
        """The two clocks round differently: what the timer was set for is due now, or it would be set again for ever."""
        self._timer = None
        self._feed(Ticked(), not_before=due)


def _answer(response: pb.PublishStreamResponse) -> BatchStored | BatchRefused:
    outcome = wire.batch_outcome(response)
    if isinstance(outcome, BatchReceipt):
        return BatchStored(response.batch_id, outcome)
    error = status.rebuild(outcome.reason, outcome.metadata) or Refused(outcome.message)
    if not isinstance(error, Refused):
        raise error  # the store failed: what was in flight is unknown
    return BatchRefused(response.batch_id, error, outcome.index)
