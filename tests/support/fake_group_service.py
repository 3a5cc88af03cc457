"""ConsumerGroupService of a scripted broker: whoever joins gets the queues it is told to give, and commits are kept or refused."""

from collections.abc import AsyncIterator
from typing import Any

from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2 as pb
from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import consumer_sessions_pb2 as sessions_pb
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.group_session import SESSION_S, QueueAssignment
from dittomq.consumer_progress import CommittedOffset
from dittomq.errors import DittoError
from dittomq.wire import consumer_groups as wire
from dittomq.wire import consumer_sessions as sessions_wire


class FakeGroupService(consumer_groups_pb2_grpc.ConsumerGroupServiceServicer):
    """One node's. `gives` are queues of "orders". `commit_errors`: why a call that commits one of these queues is refused."""

    def __init__(self) -> None:
        self.gives: tuple[int, ...] = (0,)
        self.offsets: dict[int, CommittedOffset] = {}
        self.commit_errors: dict[int, DittoError] = {}
        self.commits: list[dict[int, int]] = []  # of each call, refused ones too
        self.joins = 0
        self.heartbeat_s = 1.0

    async def Join(self, requests: Any, context: Any) -> AsyncIterator[sessions_pb.JoinResponse]:
        self.joins += 1
        given: QueueAssignment | None = QueueAssignment(self.joins, ("one",), frozenset(TopicQueue("orders", each) for each in self.gives))
        async for request in requests:
            frame = sessions_wire.join_frame(request)
            yield sessions_wire.join_response(sessions_wire.JoinAnswer(frame.number, given, SESSION_S, self.heartbeat_s))
            given = None
            if frame.leaves:
                return

    async def GetOffsets(self, request: pb.GetOffsetsRequest, context: Any) -> pb.GetOffsetsResponse:
        return wire.get_offsets_response([self._offset(queue) for _, queue in wire.asked_queues(request)])

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, context: Any) -> pb.CommitOffsetsResponse:
        commits = wire.offset_commits(request)
        self.commits.append({each.queue: each.offset for each in commits})
        for each in commits:
            if (problem := self.commit_errors.get(each.queue)) is not None:
                raise problem
        for each in commits:
            held = self._offset(each.queue)
            resets = held.resets if each.resets is None else each.resets
            if resets == held.resets and each.offset >= (held.offset or 0):
                self.offsets[each.queue] = CommittedOffset("orders", each.queue, each.offset, resets)
        return wire.commit_offsets_response([self._offset(each.queue) for each in commits])

    def _offset(self, queue: int) -> CommittedOffset:
        return self.offsets.get(queue, CommittedOffset("orders", queue, None))
