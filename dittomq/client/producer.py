"""① A producer: checks messages, chooses their queues, gathers them into sends and tells what became of each.

What a caller may conclude. *Not stored*: every request that carried the message was answered with a refusal, or none was ever
sent. *Outcome unknown*: some request was not answered in time and may be in the log. From then on its producer id is used for two
things only, and neither can store it twice:

- `resolve` asks the master. "Not in the log" alone proves nothing: the lost request may still be on its way inside a master that
  lives. It is proof when the answer comes from an epoch newer than every master that the message was sent to, because a master of an
  older epoch can only write what will be truncated. Anything less stays unknown.
- `send_again` sends it under the same id and sequence: stored now, or the first receipt. Messages of one lost stretch are sent again
  in their order, because a broker refuses to skip a number.
"""

import asyncio
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, cast, get_args, overload

import grpc.aio
from tenacity import AsyncRetrying, retry_if_exception_type

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq.client.accumulator import MAY_PASS, AccumulatorOptions, RecordAccumulator
from dittomq.client.accumulator_events import Reroute, ResolveNotStored
from dittomq.client.batches import PendingSend
from dittomq.client.buffer_pool import BufferPool
from dittomq.client.bulk import BulkPublish, Outcomes
from dittomq.client.in_doubt import InDoubtSends
from dittomq.client.partitioner import Partitioner, SendTarget
from dittomq.client.routing import ClientContext, backoff_s
from dittomq.client.send_results import Outcome, Stored, failure_in, outcome_of
from dittomq.client.sender import GroupSender, Resolved, SenderListener
from dittomq.client.transactions import HalfOrder, Transaction
from dittomq.client.validation import checked_size, encoded, epoch_ms, is_plain, milliseconds
from dittomq.doors.chance import hex_id
from dittomq.errors import (
    AckLevelNotReached,
    DittoError,
    InvalidField,
    LimitReached,
    NotReady,
    NotStored,
    OutcomeHandle,
    OutcomeUnknown,
    OutOfOrderSequence,
    PermissionDenied,
    Refused,
    Unavailable,
)
from dittomq.message import Ack, Message, PutStatus, Receipt
from dittomq.routes import Route
from dittomq.rpc.channel import typed
from dittomq.rpc.headers import EPOCH_HEADER, check_answerer, group_of, meant_for
from dittomq.wire import messaging as wire

_ANSWER_GRACE_S = 2.0
_CLOSED_AGE_S = 1.0
_MAX_TIMEOUT_S = 3_600

_AboutSent = pb.PublishRequest | pb.GetPublishResultRequest
OnWeak = Literal["raise", "return"]
OnFull = Literal["wait", "raise"]
Messages = Iterable[Message] | AsyncIterable[Message]


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """`ack` None: the broker's default.

    `timeout_s`: how long a broker may wait for the level; `retry_s`: how long a message is tried beyond it.
    `on_weak`: raise AckLevelNotReached for what is stored weaker than asked, or return its receipt. `on_full`: when `max_waiting_bytes`
    wait for an answer, a further publish waits too or raises NotStored. `linger_s`: how long a message may wait for company.
    """

    ack: Ack | None = None
    timeout_s: float = 3.0
    retry_s: float = 10.0
    on_weak: OnWeak = "raise"
    on_full: OnFull = "wait"
    max_waiting_bytes: int = 32 * 1024 * 1024
    linger_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidField for what no publish could be tried with."""
        if self.ack is not None and self.ack not in tuple(Ack):
            raise InvalidField("ack", f"{self.ack!r} is no level; use one of {', '.join(Ack)}")
        if not 0 <= self.timeout_s <= _MAX_TIMEOUT_S:
            raise InvalidField("timeout_s", f"{self.timeout_s:g} s is outside 0 to {_MAX_TIMEOUT_S:,} s")
        for field, value, least in (
            ("retry_s", self.retry_s, 0),
            ("linger_s", self.linger_s, 0),
            ("max_waiting_bytes", self.max_waiting_bytes, 1),
        ):
            if not value >= least:
                raise InvalidField(field, f"{value} is less than {least}")
        for field, word, words in (("on_weak", self.on_weak, get_args(OnWeak)), ("on_full", self.on_full, get_args(OnFull))):
            if word not in words:
                raise InvalidField(field, f"{word!r} is not one of {', '.join(words)}")


class Producer:
    """Publishes. Used inside `async with`; leaving the block sends what waits, and raises what nobody was told is not stored."""

    def __init__(self, around: ClientContext, options: ProducerOptions) -> None:
        self._around = around
        self._options = options
        self.chooser = Partitioner(around.clock.monotonic)
        self._waiting = BufferPool(options.max_waiting_bytes)
        self._senders: dict[str, GroupSender] = {}
        self._unknowns: dict[str, InDoubtSends] = {}
        self._pending: dict[PendingSend, asyncio.Future[Outcome]] = {}  # one is cancelled when nobody waits for it any more
        self._resolved = asyncio.Event()
        self._untold: NotStored | OutcomeUnknown | None = None  # the first failure that nobody waited for
        self._tasks = asyncio.TaskGroup()
        self._running: list[asyncio.Task[None]] = []
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            if error is None:
                await self._flush()
        finally:
            self._is_open = False
            for task in self._running:
                task.cancel()
            await self._tasks.__aexit__(None, None, None)  # the caller's error stays as it is
            for sender in self._senders.values():
                sender.close()  # a task that is cancelled before its first step closes nothing
        if error is None and self._untold is not None:
            raise self._untold

    async def publish(  # a message has these parts
        self,
        topic: str,
        body: bytes | str,
        *,
        keys: Iterable[str] = (),
        order_key: str = "",
        tag: str = "",
        queue: int | None = None,
        properties: Mapping[str, str] | None = None,
        delay_s: float = 0,
        deliver_at: datetime | None = None,
    ) -> Receipt:
        """Publish one message; raises NotStored, AckLevelNotReached or OutcomeUnknown.

        Nobody can read it before `delay_s` seconds have passed, or before `deliver_at`, at most 40 days ahead; the receipt tells where it
        waits.
        """
        try:
            content = encoded("body", body) if isinstance(body, str) else body
            delay_ms, deliver_ms = milliseconds("delay_s", delay_s) if delay_s else 0, epoch_ms("deliver_at", deliver_at)
        except InvalidField as cause:
            raise NotStored(topic, cause) from cause
        message = Message(topic, content, queue, tuple(keys), tag, order_key, properties or {}, delay_ms=delay_ms, deliver_ms=deliver_ms)
        return await self.publish_message(message)

    async def transaction(self, message: Message, group: str) -> Transaction:
        """A transaction of that producer group, for use in `async with`: the message is readable once the block has ended.

        If this producer dies in it, a master asks others of the group (TransactionChecks), and puts it aside some 13 minutes later.
        Raises as `publish` does before anything is sent.
        """
        try:
            checked_size(message)
            target = self.chooser.target(await self.route(message.topic), message)
        except Refused as cause:
            raise NotStored(message.topic, cause) from cause
        order = HalfOrder(message, target.broker, target.queue, group)
        return Transaction(self._around, order, self._options.ack, self._options.timeout_s)

    async def publish_message(self, message: Message) -> Receipt:
        """Publish one message; raises NotStored, AckLevelNotReached or OutcomeUnknown."""
        if self._around.traces is None:
            return await self._publish(message)
        with self._around.traces.publishing() as span:
            receipt = await self._publish(span.carry(message))
            span.stored(receipt)
            return receipt

    async def _publish(self, message: Message) -> Receipt:
        try:
            size = checked_size(message)
            target = self.chooser.target(await self.route(message.topic), message)
            future = await self.submit(target, [message], [target.queue], size, plain=is_plain(message) and not target.bound)
        except Refused as cause:
            raise NotStored(message.topic, cause) from cause
        outcome = await self.await_outcome(future)
        if isinstance(outcome, Stored):
            return self._judged(outcome.item(0, 0))
        raise failure_in(outcome)

    @overload
    async def publish_many(self, messages: Messages, *, on_failure: Literal["raise"] = "raise") -> Sequence[Receipt]: ...
    @overload
    async def publish_many(self, messages: Messages, *, on_failure: Literal["return"]) -> Outcomes: ...
    async def publish_many(self, messages: Messages, *, on_failure: Literal["raise", "return"] = "raise") -> Sequence[Receipt] | Outcomes:
        """Publish in order, in bounded memory; one receipt for each message, in order, made when it is looked at.

        With "raise", the first failure ends the reading of `messages`; what was sent is awaited, then the failure with the lowest index
        is raised. With "return", all are published, and a failure stands in the place of its receipt.
        """
        bulk = self.bulk(stop_at_failure=on_failure == "raise")
        try:
            await _read(messages, bulk)
            outcomes = await bulk.finish()
        except BaseException:
            bulk.give_up()
            raise
        if on_failure == "return":
            return outcomes
        outcomes.raise_first_failure()
        return cast("Sequence[Receipt]", outcomes)

    def bulk(self, *, stop_at_failure: bool) -> BulkPublish:
        """Publishing of many messages, piece by piece. Who does not come to its `finish` calls its `give_up`."""
        span = self._around.traces.publishing() if self._around.traces is not None else None
        return BulkPublish(self, weak_fails=self._options.on_weak == "raise", stop_at_failure=stop_at_failure, span=span)

    async def resolve(self, handle: OutcomeHandle) -> Receipt:
        """What became of a message whose answer was lost: its receipt; raises NotStored, or OutcomeUnknown as long as nobody can know."""
        request = wire.outcome_request(handle, self._options.ack, self._options.timeout_s)
        response, epoch = await self._ask_master(handle, "GetPublishResult", request)
        outcome = wire.outcome(response)
        if outcome.receipt is not None:
            return self._judged(outcome.receipt)
        master = f"the master of {handle.broker}"
        if not outcome.absent:
            raise OutcomeUnknown(handle, f"{master} does not remember the producer")
        if self._is_certain(epoch, handle):
            raise self._absent(handle, Unavailable(master, "it was replaced before it stored the message"))
        raise OutcomeUnknown(handle, f"it is not in the log of {master} now, but the lost request may still arrive there")

    async def send_again(self, handle: OutcomeHandle, message: Message) -> Receipt:
        """Send a message of unknown outcome once more under its first identity: stored now, or its first receipt. Never twice.

        Raises NotStored when messages before it are surely not stored: a producer's sequences leave no gaps. Refused when it cannot be
        that message, for no such one could be sent.
        """
        checked_size(message)
        request = wire.publish_request(handle, message, self._options.ack, self._options.timeout_s)
        try:
            with self._unknowns_of(handle).resending(handle.producer_id):
                response, _ = await self._ask_master(handle, "Publish", request)
        except OutcomeUnknown as unknown:
            gap = unknown.__cause__
            if isinstance(gap, OutOfOrderSequence) and self._unknowns_of(handle).is_cut_off(
                handle.producer_id, gap.expected, handle.sequence
            ):
                raise self._absent(handle, gap) from gap
            raise
        self._unknowns_of(handle).resent_and_stored(handle.producer_id)
        return self._judged(wire.receipt(response.receipt))

    async def route(self, topic: str) -> Route:
        """The topic's route; for a topic never seen, nameservers get the message's time to answer. Raises NotStored or Refused.

        That it takes no writes is believed for a second only.
        """
        route = self._around.routing.at_hand(topic) or await self._known_route(topic)
        try:
            self.chooser.check(route)
        except PermissionDenied:
            route = await self._around.routing.route(topic, max_age_s=_CLOSED_AGE_S)
            self.chooser.check(route)
        return route

    async def _known_route(self, topic: str) -> Route:
        started, failures = self._around.clock.monotonic(), 0
        while True:
            try:
                return await self._around.routing.route(topic)
            except (Unavailable, NotReady) as silent:
                if self._around.clock.monotonic() - started >= self._options.retry_s:
                    raise NotStored(topic, silent) from silent
            await asyncio.sleep(backoff_s(failures, self._around.chance))
            failures += 1

    async def submit(
        self, target: SendTarget, messages: Sequence[Message], queues: Sequence[int], size: int, *, plain: bool
    ) -> asyncio.Future[Outcome]:
        """Hand a send to its group, waiting for room; the future is settled by the send's deadline. NotReady outside of the block."""
        if self._options.on_full == "raise" and not self._waiting.has_room(size):
            raise LimitReached("the producer's waiting bytes", self._options.max_waiting_bytes)
        await self._waiting.take(size)
        if not self._is_open:
            self._waiting.give(size)
            raise NotReady("the producer", "it publishes inside its block only, and that has ended or was not entered; nothing was sent")
        now = self._around.clock.monotonic()
        deadline = now + self._options.timeout_s + self._options.retry_s
        send = PendingSend(messages, queues, size, bound=target.bound, plain=plain, offered=now, deadline=deadline)
        future = self._pending[send] = asyncio.get_running_loop().create_future()
        self._sender(target.broker).offer(send)
        return future

    async def await_outcome(self, future: asyncio.Future[Outcome]) -> Outcome:
        """The outcome. A caller that is cancelled does not stop the sending; the end of the block tells what it missed."""
        try:
            return await future
        except asyncio.CancelledError:
            self.give_up(future)
            raise

    def give_up(self, piece: "asyncio.Future[Outcome] | Outcome") -> None:
        """Nobody waits for this any more: when it is not stored, the end of the block tells. Only the first failure is kept for that."""
        if isinstance(piece, asyncio.Future):
            if not piece.cancel() and not piece.cancelled():
                self.give_up(piece.result())
        elif not isinstance(piece, Stored):
            self._untold = self._untold or failure_in(piece)

    def _judged(self, receipt: Receipt) -> Receipt:
        if receipt.status is not PutStatus.PUT_OK and self._options.on_weak == "raise":
            raise AckLevelNotReached(receipt)
        return receipt

    def _sender(self, broker: str) -> GroupSender:
        sender = self._senders.get(broker)
        if sender is None:
            options = self._options
            accumulator = RecordAccumulator(
                broker,
                hex_id(self._around.chance),
                AccumulatorOptions(timeout_s=options.timeout_s, retry_s=options.retry_s, linger_s=options.linger_s),
            )
            owner = SenderListener(options.ack, options.timeout_s, self._resolve, self._hand_back, self.chooser.avoid)
            sender = self._senders[broker] = GroupSender(broker, accumulator, self._around, owner)
            if self._is_open:
                self._running.append(self._tasks.create_task(sender.run()))
            else:
                sender.close()
        return sender

    def _resolve(self, resolved: Resolved, broker: str) -> None:
        self._waiting.give(resolved.send.size)
        future, outcome = self._pending.pop(resolved.send), outcome_of(resolved, broker)
        if future.cancelled():
            self.give_up(outcome)
        else:
            future.set_result(outcome)
        self._resolved.set()

    def _hand_back(self, handed: Reroute, broker: str) -> None:
        """Surely not stored and bound to no group: another group may take it."""
        send = handed.send
        route = self._around.routing.last_route(send.messages[0].topic)
        target = self.chooser.elsewhere(route, broker) if route is not None else None
        if target is not None:
            send.queues = [target.queue] * len(send.messages)
            self._sender(target.broker).offer(send)
        elif handed.problem is not None:
            self._resolve(ResolveNotStored(send, handed.problem), broker)
        else:
            self._sender(broker).offer(send)

    async def _flush(self) -> None:
        """Wait until everything is settled; each has its deadline."""
        while self._pending:
            self._resolved.clear()
            await self._resolved.wait()

    async def _ask_master(self, handle: OutcomeHandle, method: str, request: _AboutSent) -> tuple[Any, int]:
        """The answer of the group's master and its epoch, asked for as long as a message is tried; raises OutcomeUnknown."""
        until = self._around.clock.monotonic() + self._options.retry_s
        retrying = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, *MAY_PASS)),
            wait=lambda state: backoff_s(state.attempt_number, self._around.chance),
            stop=lambda _: self._around.clock.monotonic() >= until,
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            return await retrying(self._ask_master_once, handle, method, request)
        except DittoError as error:
            raise OutcomeUnknown(handle, str(error)) from error

    async def _ask_master_once(self, handle: OutcomeHandle, method: str, request: _AboutSent) -> tuple[Any, int]:
        master = await self._around.routing.master_of_topic(handle.topic, handle.broker)
        if master is None:
            raise Unavailable(f"the master of {handle.broker}", "no nameserver knows one now")
        address = self._around.routing.address(master)
        who = f"{master.name} at {address}"
        request.min_possible_offset = self._sent_since(handle)
        answer = getattr(self._around.channels.stub(MessagingServiceStub, address), method)(
            request, timeout=self._options.timeout_s + _ANSWER_GRACE_S, metadata=meant_for(group_of(master))
        )
        try:
            response = await answer
            headers: dict[str, Any] = dict(await answer.initial_metadata() or ())
            check_answerer(headers.items(), group_of(master), who)
        except grpc.aio.AioRpcError as error:
            check_answerer(error.initial_metadata(), group_of(master), who)
            problem = typed(error, who)
            if method == "Publish" and not isinstance(problem, Refused):
                self._unknowns_of(handle).resent_in_vain(handle.producer_id, master.epoch)
            raise problem from error
        except asyncio.CancelledError:
            if method == "Publish":
                self._unknowns_of(handle).resent_in_vain(handle.producer_id, master.epoch)
            raise
        epoch = int(headers.get(EPOCH_HEADER, 0))
        self._unknowns_of(handle).master_answered(epoch)
        return response, epoch

    def _is_certain(self, epoch: int, handle: OutcomeHandle) -> bool:
        sender = self._senders.get(handle.broker)
        sent = sender.sent_epoch(handle.producer_id) if sender is not None else None
        return self._unknowns_of(handle).is_certain(handle.producer_id, epoch, sent)

    def _sent_since(self, handle: OutcomeHandle) -> int:
        """No try of the message can lie below this position of the log."""
        sender = self._senders.get(handle.broker)
        if sender is None or self._unknowns_of(handle).may_lie_anywhere(handle.producer_id):
            return 0
        return sender.sent_since(handle.producer_id)

    def _absent(self, handle: OutcomeHandle, cause: DittoError) -> NotStored:
        self._unknowns_of(handle).is_absent(handle.producer_id, handle.sequence)
        return NotStored(handle.topic, cause)

    def _unknowns_of(self, handle: OutcomeHandle) -> InDoubtSends:
        return self._unknowns.setdefault(handle.broker, InDoubtSends())


async def _read(messages: Messages, bulk: BulkPublish) -> None:
    if not isinstance(messages, AsyncIterable):
        await bulk.add(messages)
        return
    async for message in messages:
        if not await bulk.add((message,)):
            return
