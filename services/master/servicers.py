# methods are named by the .proto files
"""② A master's doors: decode, call, encode. What masters and slaves answer alike is in `dittomq.broker.servicers`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc.aio
import structlog

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.broker.lookups import LookupService
from dittomq.broker.pull_service import PullService
from dittomq.broker.range_server import RangeServer
from dittomq.broker.servicers.lookups import LookupServicer
from dittomq.broker.servicers.ranges import RangeServicer
from dittomq.errors import DittoError, NotMaster, NotReady, Refused
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.interceptors import takes_its_request
from dittomq.rpc.permits import check_permitted, check_topic, checks_its_requests
from dittomq.rpc.status import facts
from dittomq.wire import lookups as wire_lookups
from dittomq.wire import publishing as wire
from dittomq.wire import replication as wire_replication
from dittomq.wire.drafts import MessageRefused, Topics
from services.master.cancellation import Cancellation
from services.master.idempotency import Idempotency
from services.master.produce import PendingProduce, ProduceHandler
from services.master.replicas import Replicas

Context = grpc.aio.ServicerContext[Any, Any]

log = structlog.get_logger()

BATCHES_IN_FLIGHT = 64
_UNREAD_S = 10.0
_NOT_LED = NotReady, NotMaster


@dataclass(frozen=True, slots=True)
class Reads:
    """What readers ask of a master, and who cancels delayed messages."""

    pulls: PullService
    lookups: LookupService
    cancellation: Cancellation


class MasterMessagingServicer(LookupServicer):
    """Publishing and reading. A stream has at most 64 batches under way; the client waits for the rest."""

    def __init__(
        self, appends: ProduceHandler, outcomes: Idempotency, reads: Reads, topics: Callable[[], Topics], *, room: AdmissionControl
    ) -> None:
        """`room` is for messages that come by themselves."""
        super().__init__(reads.pulls, reads.lookups)
        self._cancellation = reads.cancellation
        self._room = room
        self._appends = appends
        self._outcomes = outcomes
        self._topics = topics

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        outcome = await self._cancellation.cancel(wire_lookups.cancel_order(request))
        return pb.CancelResponse(outcome=outcome.value)

    @takes_its_request
    async def Publish(self, requests: AsyncIterator[pb.PublishRequest], context: Context) -> pb.PublishResponse:  # type: ignore[override]
        async with self._room.request(context) as request:
            try:
                order = wire.publish_request(request, self._topics())
            except MessageRefused as refused:
                return await self._stored_before(wire.resent_request(request), refused.cause)
            try:
                ticket = await self._appends.begin(order, self._appends.spans_of(order))
            except Refused as refused:
                return await self._stored_before(order.resent(), refused)
        del request, order  # while its level is waited for
        try:
            return wire.stored_message_to_pb(await self._appends.finish(ticket))
        except Refused as refused:
            return await self._stored_before(ticket.order, refused)

    async def _stored_before(self, order: wire.ResentOrder, refused: Refused) -> pb.PublishResponse:
        """The answer to a message that is refused now, if an earlier try of it was stored; else `refused` is raised."""
        stored = await self._look_for(order, refused)
        if stored is None:
            raise refused
        return wire.stored_message_to_pb(stored)

    async def _look_for(self, order: wire.ResentOrder, refused: Refused | MessageRefused) -> wire.StoredBatch | None:
        """What an earlier try stored of what is refused now; where this node does not lead nobody looks. Raises why it cannot know."""
        return None if isinstance(refused, _NOT_LED) else await self._outcomes.stored_before(order)

    @checks_its_requests
    async def PublishStream(self, request_iterator: AsyncIterator[pb.PublishStreamRequest], context: Context) -> None:
        self._appends.check_leads()
        answers = _Answers(context)
        is_unread = False
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._take_batches(request_iterator, answers, tasks)
        except* _ClientDeafError:
            is_unread = True
        if is_unread:
            log.info("client_disconnected", peer=context.peer(), unread_s=_UNREAD_S)
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"no answer was read for {_UNREAD_S:.0f} s")

    async def _take_batches(self, batches: AsyncIterator[pb.PublishStreamRequest], answers: "_Answers", tasks: asyncio.TaskGroup) -> None:
        async for request in batches:
            await answers.room.acquire()
            try:
                check_permitted(request)
                order = wire.publish_batch(request, self._topics())
            except MessageRefused as refused:
                tasks.create_task(self._answer_refused(request.batch_id, wire.resent_batch(request), refused, answers))
            except DittoError as refused:
                await answers.give(_refused(request.batch_id, refused))
            else:
                await self._begin(request.batch_id, order, answers, tasks)

    async def _begin(self, batch_id: int, order: wire.PublishOrder, answers: "_Answers", tasks: asyncio.TaskGroup) -> None:
        try:
            ticket = await self._appends.begin(order, self._appends.spans_of(order))
        except Refused as refused:
            tasks.create_task(self._answer_refused(batch_id, order.resent(), refused, answers))
        else:
            answering = tasks.create_task(self._answer(batch_id, ticket, answers))
            if (spans := ticket.spans) is not None:  # cancelled before its first step, the task ends nothing
                answering.add_done_callback(lambda _: spans.end("the stream ended before its answer began"))

    async def _answer_refused(self, batch_id: int, order: wire.ResentOrder, refused: Refused | MessageRefused, answers: "_Answers") -> None:
        """What cannot be stored now, because its topic is gone or the disk is full, may have been stored before: then that is the answer.

        Whatever keeps us from knowing is no answer: the stream ends.
        """
        stored = await self._look_for(order, refused)
        await answers.give(wire.stored_batch_to_pb(batch_id, stored) if stored else _refused(batch_id, refused))

    async def _answer(self, batch_id: int, ticket: PendingProduce, answers: "_Answers") -> None:
        """Answer one batch. A StorageFailure or FencedEpoch is no answer: the stream ends, and what was in flight is unknown."""
        try:
            response = wire.stored_batch_to_pb(batch_id, await self._appends.finish(ticket))
        except Refused as refused:
            await self._answer_refused(batch_id, ticket.order, refused, answers)
            return
        await answers.give(response)

    async def GetPublishResult(self, request: pb.GetPublishResultRequest, context: Context) -> pb.GetPublishResultResponse:
        response = wire.outcome_to_pb(*await self._outcomes.look(wire.outcome_order(request)))
        if response.HasField("receipt"):
            check_topic(response.receipt.topic)
        return response


class _ClientDeafError(Exception):
    """The client reads no answers."""


class _Answers:
    """The answers of one stream: written one after the other, for a bounded number of batches under way.

    A client that reads none of them for 10 s, with all windows full, is let go: its batches would be kept for ever.
    """

    def __init__(self, context: Context) -> None:
        self.room = asyncio.Semaphore(BATCHES_IN_FLIGHT)
        self._context = context
        self._writing = asyncio.Lock()
        self._unread = False

    async def give(self, response: pb.PublishStreamResponse) -> None:
        """Answer one batch and make room for another; _ClientDeafError when the client does not read."""
        async with self._writing:
            if self._unread:
                raise _ClientDeafError
            try:
                async with asyncio.timeout(_UNREAD_S):
                    await self._context.write(response)
            except TimeoutError:
                self._unread = True
                raise _ClientDeafError from None
        self.room.release()


def _refused(batch_id: int, refused: DittoError | MessageRefused) -> pb.PublishStreamResponse:
    cause = refused.cause if isinstance(refused, MessageRefused) else refused
    index = refused.index if isinstance(refused, MessageRefused) else None
    known = facts(cause)
    return wire.batch_refused_to_pb(batch_id, wire.Refusal(known.code.value[0], known.reason, known.message, known.metadata, index))


class MasterReplicationServicer(RangeServicer):
    """Slaves, and whoever fetches a range."""

    def __init__(self, replication: Replicas, ranges: RangeServer, wall_ms: Callable[[], int]) -> None:
        super().__init__(ranges, replication.outflow)
        self._replication = replication
        self._wall_ms = wall_ms

    async def Replicate(self, request_iterator: AsyncIterator[replication_pb2.ReplicateRequest], context: Context) -> None:
        await self._replication.serve(
            wire_replication.slave_events(request_iterator),
            lambda message: context.write(wire_replication.master_frame(message, self._wall_ms())),
        )
