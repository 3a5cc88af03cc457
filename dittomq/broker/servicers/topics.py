"""TopicService: reads from this node, changes from the master's part or the slave's."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq._pb.ditto.admin.v1 import admin_pb2_grpc
from dittomq.broker.topics import TopicChanges, TopicReads
from dittomq.rpc.admission import AdmissionControl
from dittomq.wire import admin as wire

Context = grpc.aio.ServicerContext[Any, Any]


class TopicServicer(admin_pb2_grpc.TopicServiceServicer):
    """`changes` is what makes it a master's or a slave's. What may be long is yielded, see CallInterceptor."""

    def __init__(self, reads: TopicReads, changes: TopicChanges, room: AdmissionControl) -> None:
        self._reads = reads
        self._changes = changes
        self._room = room

    async def CreateTopic(self, request: pb.CreateTopicRequest, context: Context) -> pb.CreateTopicResponse:
        topic, created = await self._changes.create(wire.topic_from_pb(request.topic), request.validate_only)
        return pb.CreateTopicResponse(topic=wire.topic_to_pb(topic), created=created)

    async def GetTopic(self, request: pb.GetTopicRequest, context: Context) -> AsyncIterator[pb.GetTopicResponse]:  # type: ignore[override]
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.get_topic_response(*await self._reads.get(request.name)))

    async def ListTopics(  # type: ignore[override]
        self, request: pb.ListTopicsRequest, context: Context
    ) -> AsyncIterator[pb.ListTopicsResponse]:
        async with self._room.page(context.peer()) as share:
            page = self._reads.list(wire.topic_page_size(request), request.page_token)
            yield share.of(wire.list_topics_response(wire.TopicPage(page.rows, page.next_token)))

    async def UpdateTopic(self, request: pb.UpdateTopicRequest, context: Context) -> pb.UpdateTopicResponse:
        topic, changed = await self._changes.update(wire.topic_update(request), request.validate_only)
        return pb.UpdateTopicResponse(topic=wire.topic_to_pb(topic), changed=changed)

    async def DeleteTopic(self, request: pb.DeleteTopicRequest, context: Context) -> pb.DeleteTopicResponse:
        await self._changes.delete(request.name, request.validate_only)
        return pb.DeleteTopicResponse()
