# methods are named by the .proto files
"""MessagingService as masters and slaves serve it alike: look-ups beside reading."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.broker.lookups import LookupService
from dittomq.broker.pull_service import PullService
from dittomq.broker.servicers.pulls import PullServicer
from dittomq.rpc.permits import check_topic
from dittomq.wire import lookups as wire

Context = grpc.aio.ServicerContext[Any, Any]


class LookupServicer(PullServicer):
    """Reads and look-ups."""

    def __init__(self, reading: PullService, lookups: LookupService) -> None:
        super().__init__(reading)
        self._lookups = lookups

    async def FindOffset(self, request: pb.FindOffsetRequest, context: Context) -> pb.FindOffsetResponse:
        return pb.FindOffsetResponse(offset=await self._lookups.offset_at(*wire.time_of_queue(request)))

    async def GetMessage(self, request: pb.GetMessageRequest, context: Context) -> AsyncIterator[pb.GetMessageResponse]:  # type: ignore[override]  # see CallInterceptor
        async with self._lookups.message(request.id, context.peer()) as message:
            check_topic(message.topic)
            yield wire.found_message(message, prefer_text=request.prefer_text)

    async def FindMessages(self, request: pb.FindMessagesRequest, context: Context) -> AsyncIterator[pb.FindMessagesResponse]:  # type: ignore[override]  # see CallInterceptor
        async with self._lookups.by_key(wire.key_query(request), context.peer()) as page:
            yield wire.found_messages(page.messages, page.next_token, prefer_text=request.prefer_text)
