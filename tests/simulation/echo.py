"""A service for the simulator's own tests: generated stubs and servicers of ditto.replication.v1 that echo."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as messaging
from dittomq._pb.ditto.messaging.v1 import messaging_pb2_grpc as messaging_grpc
from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2_grpc as pb_grpc
from dittomq.broker.doors import BrokerDoors

PORT = 10_912


class EchoReplication(pb_grpc.ReplicationServiceServicer):
    """Answers each ack with a chunk at the same offset; streams a range as single bytes."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.ended: list[str] = []

    async def Replicate(self, request_iterator: AsyncIterator[Any], context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for request in request_iterator:
                self.seen.append(request.ack.received_offset)
                yield pb.ReplicateResponse(chunk=pb.Chunk(offset=request.ack.received_offset, data=bytes(request.ack.flushed_offset)))
            self.ended.append("client is done")
        except asyncio.CancelledError:
            self.ended.append(f"cancelled {context.cancelled()}")
            raise

    async def FetchRange(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        if request.cluster == "forever":
            offset = request.start_offset
            while True:
                await context.write(pb.FetchRangeResponse(offset=offset, data=bytes(10_000)))
                self.seen.append(offset)
                offset += 1
        for offset in range(request.start_offset, request.end_offset):
            await context.write(pb.FetchRangeResponse(offset=offset))
        if request.cluster == "refused":
            await context.abort(grpc.StatusCode.DATA_LOSS, "rot", (("where", "here"), ("proof-bin", b"\x00\xff")))


class EchoMessaging(messaging_grpc.MessagingServiceServicer):
    """Answers a pull with its own offset; topics ask for trouble."""

    async def Pull(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        match request.topic:
            case "slow":
                await asyncio.sleep(5)
            case "mistake":
                raise KeyError("a mistake")
        return messaging.PullResponse(next_offset=request.offset + 1)


class EchoServer:
    """Serves both on PORT until told to stop."""

    def __init__(self, interceptors: tuple[grpc.aio.ServerInterceptor, ...] = ()) -> None:
        self.replication = EchoReplication()
        self._interceptors = interceptors

    async def serve(self, doors: BrokerDoors, stop: asyncio.Event) -> None:
        server = doors.transport.server(self._interceptors, ())
        pb_grpc.add_ReplicationServiceServicer_to_server(self.replication, server)
        messaging_grpc.add_MessagingServiceServicer_to_server(EchoMessaging(), server)
        server.add_insecure_port(f"0.0.0.0:{PORT}")
        await server.start()
        await stop.wait()
        await server.stop(1)


async def idle(_: BrokerDoors, stop: asyncio.Event) -> None:
    """Serve nothing."""
    await stop.wait()
