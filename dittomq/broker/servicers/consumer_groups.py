"""ConsumerGroupService: what groups have read, and their members. `rules` and `calls` are what makes it a master's or a slave's."""

from typing import Any

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2 as pb
from dittomq.broker.consumer_offsets import ConsumerOffsets, OffsetRules
from dittomq.broker.servicers.consumer_sessions import MemberCalls, MemberServicer
from dittomq.wire import consumer_groups as wire

Context = grpc.aio.ServicerContext[Any, Any]


class ConsumerGroupServicer(MemberServicer):
    """Offsets of consumer groups, and their members."""

    def __init__(self, offsets: ConsumerOffsets, rules: OffsetRules, calls: MemberCalls) -> None:
        super().__init__(calls)
        self._offsets = offsets
        self._rules = rules

    async def GetOffsets(self, request: pb.GetOffsetsRequest, context: Context) -> pb.GetOffsetsResponse:
        return wire.get_offsets_response(await self._offsets.get(request.group, wire.asked_queues(request), self._rules))

    async def CommitOffsets(self, request: pb.CommitOffsetsRequest, context: Context) -> pb.CommitOffsetsResponse:
        return wire.commit_offsets_response(await self._offsets.commit(request.group, wire.offset_commits(request), self._rules))
