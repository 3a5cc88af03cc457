# methods are named by the .proto files
"""MessagingService as masters and slaves serve it alike: reading. Each adds what it says of publishing."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1 import messaging_pb2_grpc
from dittomq.broker.pull_service import PullService
from dittomq.rpc.interceptors import taken_in_time
from dittomq.wire import messaging as wire

Context = grpc.aio.ServicerContext[Any, Any]


class PullServicer(messaging_pb2_grpc.MessagingServiceServicer):
    """Reads only."""

    def __init__(self, reading: PullService) -> None:
        self._reading = reading

    async def Pull(self, request: pb.PullRequest, context: Context) -> AsyncIterator[pb.PullResponse]:  # type: ignore[override]  # see CallInterceptor
        order = wire.pull_order(request)
        del request  # thousands may wait
        async with self._reading.pull(order, context.peer()) as answer:
            yield wire.pull_response(answer, prefer_text=order.prefer_text)

    async def PullStream(self, request: pb.PullStreamRequest, context: Context) -> None:
        order = wire.pull_stream_order(request)
        prefer_text = order.pull.prefer_text
        answers = self._reading.stream(order, context.peer())
        del request, order
        try:
            async for answer in answers:
                await taken_in_time(context.write(wire.pull_stream_response(answer, prefer_text=prefer_text)))
                del answer  # nobody holds it while the next one is waited for
        finally:
            await answers.aclose()
