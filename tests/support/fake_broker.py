"""A cluster of scripted brokers behind the generated servicers: they keep the rules of sequences, and go wrong where a test says so."""

import asyncio
import contextlib
import itertools
import random
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import grpc

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2_grpc, messaging_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.naming.v1 import naming_pb2_grpc
from dittomq.broker.doors import BrokerDoors
from dittomq.doors.clock import Clock
from dittomq.errors import (
    CorruptRecord,
    DittoError,
    LimitReached,
    NotMaster,
    OffsetOutOfRange,
    OutOfOrderSequence,
    Refused,
    TopicNotFound,
    UnknownProducerId,
)
from dittomq.message import Message, StoredMessage
from dittomq.offsets import Epoch, PhysicalOffset, QueueOffset
from dittomq.reads import PullRequest, PullResult, PullStatus
from dittomq.routes import BrokerState, DataVersion, Node, NodePage, QueueRange, Role, Route
from dittomq.rpc import status
from dittomq.rpc.headers import Answerer
from dittomq.rpc.interceptors import CallInterceptor, Unobserved
from dittomq.wire import messaging as wire
from dittomq.wire import naming as naming_wire
from tests.support.fake_group_service import FakeGroupService
from tests.support.frame_view import spelled_out

PORT = 10911
NAMESERVER = "ns:9876"
RECORD_BYTES = 100


class Reply(Enum):
    """What a broker does with a frame."""

    STORE = "store it and say so"
    STORE_AND_CUT = "store it and end the stream instead of an answer"
    CUT = "end the stream before anything is stored"
    STORE_SILENTLY = "store it and never answer"
    STORE_AND_FORGET = "store it, forget every producer, and end the stream instead of an answer"


@dataclass(frozen=True)
class Refuse:
    """Refuse a frame."""

    error: Refused
    index: int | None = None


@dataclass
class Placed:
    """A stored message; its position in the log is its number."""

    message: pb.Message
    number: int
    queue_offset: int


@dataclass
class Log:
    """What the copies of one group hold; shared by its nodes."""

    placed: list[Placed] = field(default_factory=list)
    by_sequence: dict[tuple[str, int], Placed] = field(default_factory=dict)
    next: dict[str, int] = field(default_factory=dict)
    removed_end: int = 0
    grown: asyncio.Event = field(default_factory=asyncio.Event)  # set when something is stored; then another one takes its place

    def store(self, messages: list[pb.Message], producer_id: str, first: int, since: int) -> tuple[list[Placed], bool]:
        """Where they lie, and whether they lay there before; raises OutOfOrderSequence or UnknownProducerId."""
        self.check_known(producer_id, first, since)
        expected = self.next.get(producer_id, 0)
        if first < expected:
            return [self.by_sequence[producer_id, first + at] for at in range(len(messages))], True
        if first > expected:
            raise OutOfOrderSequence(producer_id, expected, first)
        new, ends = [], Counter((one.message.topic, one.message.queue) for one in self.placed)
        for at, message in enumerate(messages):
            place = Placed(message, len(self.placed), ends[message.topic, message.queue])
            ends[message.topic, message.queue] += 1
            self.placed.append(place)
            self.by_sequence[producer_id, first + at] = place
            new.append(place)
        self.next[producer_id] = expected + len(messages)
        self.grown.set()
        self.grown = asyncio.Event()
        return new, False

    def check_known(self, producer_id: str, sequence: int, since: int) -> None:
        """Raise UnknownProducerId when it may be one of those that are forgotten."""
        if producer_id not in self.next and self.removed_end > since:
            raise UnknownProducerId(producer_id, sequence, len(self.placed) * RECORD_BYTES)

    def forget(self) -> None:
        """All producers."""
        self.next.clear()
        self.by_sequence.clear()
        self.removed_end = len(self.placed) * RECORD_BYTES

    def bodies(self) -> list[bytes]:
        return [one.message.body for one in self.placed]


class FakeBroker(messaging_pb2_grpc.MessagingServiceServicer, admin_pb2_grpc.TopicServiceServicer):
    """One node. `script` says what happens to the next frames; when it is empty they are stored."""

    def __init__(self, name: str, log: Log) -> None:
        self.name = name
        self.log = log
        self.cluster = "test"
        self.epoch = 1
        self.put_status: pb.PutStatus = pb.PUT_STATUS_OK
        self.script: deque[Reply | Refuse] = deque()
        self.frames: list[pb.PublishStreamRequest] = []
        self.streams = 0
        self.gate: asyncio.Event | None = None  # frames wait for it
        self.refusal: Refused | None = None if name.endswith("/0") else NotMaster(name, "")  # why it takes no messages; None: it does
        self.names_log_end = True
        self.publish_error: DittoError | None = None  # what Publish says of what it has stored
        self.pulls: list[pb.PullRequest] = []
        self.streamed: list[int] = []  # offsets of the answers of streams of pulls
        self.pull_error: Refused | None = None
        self.damaged: set[tuple[int, int]] = set()  # queue and offset of messages that are not whole here
        self.readable = 1 << 40  # messages
        self.suggests = 0  # the node to ask next
        self.seats = 1_000  # for pulls that wait
        self.begins_at = 0  # queue offset
        self.topics: dict[str, admin_pb2.Topic] = {}
        self.members = FakeGroupService()

    def answerer(self) -> Answerer:
        named = self.refusal is None and self.names_log_end
        return Answerer(self.name, self.cluster, self.epoch, len(self.log.placed) * RECORD_BYTES if named else None)

    def check_leads(self) -> None:
        """Raise why it takes no messages."""
        if self.refusal is not None:
            raise self.refusal

    async def serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        server = doors.transport.server([interceptor(self, doors.clock)], ())
        messaging_pb2_grpc.add_MessagingServiceServicer_to_server(self, server)
        admin_pb2_grpc.add_TopicServiceServicer_to_server(self, server)
        consumer_groups_pb2_grpc.add_ConsumerGroupServiceServicer_to_server(self.members, server)
        server.add_insecure_port(f"0.0.0.0:{PORT}")
        await server.start()
        await stop.wait()
        await server.stop(0)

    async def PublishStream(self, requests: Any, context: Any) -> AsyncIterator[pb.PublishStreamResponse]:
        self.streams += 1
        self.check_leads()
        async for frame in requests:
            request = spelled_out(frame)
            self.frames.append(request)
            if self.gate is not None:
                await self.gate.wait()
            reply = self.script.popleft() if self.script else Reply.STORE
            if reply is Reply.CUT:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            answer = self._take(request, reply)
            if reply is Reply.STORE_AND_FORGET:
                self.log.forget()
            if reply in (Reply.STORE_AND_CUT, Reply.STORE_AND_FORGET):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "cut")
            if reply is not Reply.STORE_SILENTLY:
                yield answer

    def _take(self, request: pb.PublishStreamRequest, reply: Reply | Refuse) -> pb.PublishStreamResponse:
        try:
            if isinstance(reply, Refuse):
                raise reply.error
            placed, duplicate = self.log.store(
                list(request.messages), request.producer_id, request.first_sequence, request.min_possible_offset
            )
        except Refused as error:
            code, reason, text, metadata = status.facts(error)
            index = reply.index if isinstance(reply, Refuse) else None
            refused = pb.BatchRefused(code=code.value[0], reason=reason, message=text, metadata=metadata, index=index)
            return pb.PublishStreamResponse(batch_id=request.batch_id, refused=refused)
        return pb.PublishStreamResponse(batch_id=request.batch_id, stored=self._stored(placed, duplicate))

    def _stored(self, placed: list[Placed], duplicate: bool) -> pb.BatchStored:
        runs = [
            pb.ReceiptRun(
                first_index=at,
                topic=one.message.topic,
                queue=one.message.queue,
                first_queue_offset=one.queue_offset,
                first_physical_offset=one.number * RECORD_BYTES,
                record_bytes=[RECORD_BYTES],
                store_ms=7,
            )
            for at, one in enumerate(placed)
        ]
        return pb.BatchStored(
            status=self.put_status,
            asked=pb.ACK_LEVEL_REPLICA_FLUSHED,
            levels_reached=[pb.ACK_LEVEL_MASTER_FLUSHED],
            copies=[pb.Copy(node=self.name, state=pb.COPY_STATE_FLUSHED)],
            epoch=self.epoch,
            broker=self.name.partition("/")[0],
            runs=runs,
            duplicate=duplicate,
        )

    def _receipt(self, one: Placed, duplicate: bool) -> pb.Receipt:
        receipt = pb.Receipt(
            status=self.put_status,
            asked=pb.ACK_LEVEL_REPLICA_FLUSHED,
            epoch=self.epoch,
            topic=one.message.topic,
            broker=self.name.partition("/")[0],
            queue=one.message.queue,
            queue_offset=one.queue_offset,
            physical_offset=one.number * RECORD_BYTES,
            record_bytes=RECORD_BYTES,
            duplicate=duplicate,
        )
        receipt.store_time.FromMilliseconds(7)
        return receipt

    async def Publish(self, request: pb.PublishRequest, context: Any) -> pb.PublishResponse:
        self.check_leads()
        if self.gate is not None:
            await self.gate.wait()
        [placed], duplicate = self.log.store([request.message], request.producer_id, request.sequence, request.min_possible_offset)
        if self.publish_error is not None:
            raise self.publish_error
        return pb.PublishResponse(receipt=self._receipt(placed, duplicate))

    async def GetPublishResult(self, request: pb.GetPublishResultRequest, context: Any) -> pb.GetPublishResultResponse:
        self.check_leads()
        placed = self.log.by_sequence.get((request.producer_id, request.sequence))
        if placed is None:
            with contextlib.suppress(UnknownProducerId):
                self.log.check_known(request.producer_id, request.sequence, request.min_possible_offset)
                return pb.GetPublishResultResponse(outcome=pb.OUTCOME_NOT_STORED)
            return pb.GetPublishResultResponse(outcome=pb.OUTCOME_UNKNOWN)
        return pb.GetPublishResultResponse(outcome=pb.OUTCOME_STORED, receipt=self._receipt(placed, duplicate=True))

    async def Pull(self, request: pb.PullRequest, context: Any) -> pb.PullResponse:
        self.pulls.append(request)
        if self.pull_error is not None:
            raise self.pull_error
        order = wire.pull_order(request)
        loop = asyncio.get_running_loop()
        until = loop.time() + order.wait_s
        while True:
            grown, answer, left_s = self.log.grown, self._look(order), until - loop.time()
            if answer.status is PullStatus.FOUND or left_s <= 0:
                return wire.pull_response(answer, prefer_text=False)
            if not self.seats:
                raise LimitReached("the number of waiting pulls", 0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await grown.wait()

    async def PullStream(self, request: pb.PullStreamRequest, context: Any) -> AsyncIterator[pb.PullStreamResponse]:
        order = wire.pull_stream_order(request).pull
        while True:
            self.streamed.append(order.offset)
            if self.pull_error is not None:
                raise self.pull_error
            answer = self._look(order)
            if answer.status is not PullStatus.FOUND:
                await asyncio.sleep(order.wait_s)
            yield wire.pull_stream_response(answer, prefer_text=False)
            order = replace(order, offset=answer.next_offset)

    def _look(self, order: PullRequest) -> PullResult:
        """What it holds of the queue now; raises OffsetOutOfRange or CorruptRecord."""
        queue = [one for one in self.log.placed[: self.readable] if (one.message.topic, one.message.queue) == (order.topic, order.queue)]
        is_beyond = order.offset > len(queue) and self.refusal is None  # a slave may be behind and does not know
        if is_beyond or order.offset < self.begins_at:
            raise OffsetOutOfRange("queue offset", order.offset, self.begins_at, len(queue))
        page = queue[order.offset : order.offset + order.max_messages]
        whole = list(itertools.takewhile(lambda one: (one.message.queue, one.queue_offset) not in self.damaged, page))
        if page and not whole:
            raise CorruptRecord(self.name, page[0].number * RECORD_BYTES, "its checksum is wrong")
        page = whole
        state = PullStatus.FOUND if page else PullStatus.NO_NEW_MESSAGE
        if order.at_least is not None and order.at_least.end > min(self.readable, len(self.log.placed)) * RECORD_BYTES:
            state, page = PullStatus.BEHIND, []
        return PullResult(
            status=state,
            messages=tuple(_stored_message(one) for one in page),
            next_offset=QueueOffset(order.offset + len(page)),
            min_offset=QueueOffset(self.begins_at),
            max_offset=QueueOffset(len(queue)),
            confirmed=PhysicalOffset(len(self.log.placed) * RECORD_BYTES),
            suggested_broker_id=self.suggests,
            epoch=Epoch(self.epoch),
        )

    async def CreateTopic(self, request: admin_pb2.CreateTopicRequest, context: Any) -> admin_pb2.CreateTopicResponse:
        created = request.topic.name not in self.topics
        self.topics.setdefault(request.topic.name, request.topic)
        return admin_pb2.CreateTopicResponse(topic=request.topic, created=created)

    async def GetTopic(self, request: admin_pb2.GetTopicRequest, context: Any) -> admin_pb2.GetTopicResponse:
        if request.name not in self.topics:
            raise TopicNotFound(request.name, self.name)
        return admin_pb2.GetTopicResponse(topic=self.topics[request.name])

    async def ListTopics(self, request: admin_pb2.ListTopicsRequest, context: Any) -> admin_pb2.ListTopicsResponse:
        names = sorted(self.topics)
        at = int(request.page_token or 0)
        return admin_pb2.ListTopicsResponse(
            topics=[self.topics[name] for name in names[at : at + 2]], next_page_token=str(at + 2) if at + 2 < len(names) else ""
        )

    async def DeleteTopic(self, request: admin_pb2.DeleteTopicRequest, context: Any) -> admin_pb2.DeleteTopicResponse:
        if self.topics.pop(request.name, None) is None:
            raise TopicNotFound(request.name, self.name)
        return admin_pb2.DeleteTopicResponse()


class FakeNameserver(naming_pb2_grpc.NameServerServiceServicer):
    """Tells what it was told to tell."""

    def __init__(self) -> None:
        self.epoch = 1
        self.name = "ns"
        self.nodes: list[Node] = []
        self.queues: dict[str, dict[str, int]] = {"orders": {}}  # topic → group → number of queues
        self.permissions: dict[str, int] = {}  # group → permission of every topic; 6 where none is named
        self.asked = 0
        self.warming_up = False
        self.refusal: Refused | None = None

    def answerer(self) -> Answerer:
        return Answerer(self.name, "test", self.epoch)

    async def serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        server = doors.transport.server([interceptor(self, doors.clock)], ())
        naming_pb2_grpc.add_NameServerServiceServicer_to_server(self, server)
        server.add_insecure_port("0.0.0.0:9876")
        await server.start()
        await stop.wait()
        await server.stop(0)

    async def GetRoute(self, request: Any, context: Any) -> Any:
        self.asked += 1
        groups = self.queues.get(request.topic)
        if self.refusal is not None or groups is None:
            raise self.refusal or TopicNotFound(request.topic, "cluster test")
        queues = tuple(QueueRange(group, count, count, self.permissions.get(group, 6)) for group, count in sorted(groups.items()))
        nodes = tuple(node for node in self.nodes if node.broker in groups)
        return naming_wire.route_response(Route(request.topic, "test", queues, nodes, self.warming_up))

    async def ListBrokers(self, request: Any, context: Any) -> Any:
        return naming_wire.node_page_response(NodePage(tuple(self.nodes), ""))


def interceptor(node: FakeBroker | FakeNameserver, clock: Clock) -> CallInterceptor:
    """The product's own: headers, and errors into statuses."""
    return CallInterceptor(node.answerer, clock, random.Random(1), Unobserved())


def node_of(broker: str, broker_id: int) -> Node:
    """A registered node on the machine "a-0"."""
    return Node(
        cluster="test",
        broker=broker,
        broker_id=broker_id,
        role=Role.SLAVE if broker_id else Role.SYNC_MASTER,
        state=BrokerState.SERVING,
        epoch=Epoch(1),
        address=f"{broker}-{broker_id}:{PORT}",
        replication_address=f"{broker}-{broker_id}:10912",
        seen_ms=0,
        data_version=DataVersion(),
        replica_uuid="0" * 32,
        addresses={"default": f"{broker}-{broker_id}:{PORT}"},
    )


def _stored_message(one: Placed) -> StoredMessage:
    message = Message(one.message.topic, one.message.body)
    return StoredMessage(
        topic=message.topic,
        queue=one.message.queue,
        queue_offset=QueueOffset(one.queue_offset),
        physical_offset=PhysicalOffset(one.number * RECORD_BYTES),
        record_bytes=RECORD_BYTES,
        body=message.body,
        keys=tuple(one.message.keys),
        tag=one.message.tag,
        properties=dict(one.message.properties),
        flag=0,
        born_ms=0,
        store_ms=7,
    )
