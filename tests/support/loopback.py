"""A server of ours, with scripted services, and channels to it over real gRPC on the loopback."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dittomq._pb.ditto.messaging.v1 import messaging_pb2, messaging_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2, naming_pb2_grpc
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import NotMaster
from dittomq.rpc.channel import Channels, call
from dittomq.rpc.headers import Answerer
from dittomq.rpc.health import Health
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.server import Listen, RpcServer, Service, bind
from dittomq.security.gate import Gate
from dittomq.security.tls import Certificates
from tests.support.waiting import PATIENCE_S

NAMING = "ditto.naming.v1.NameServerService"
MESSAGING = "ditto.messaging.v1.MessagingService"


class Naming(naming_pb2_grpc.NameServerServiceServicer):
    """Answers GetRoute as told."""

    def __init__(self) -> None:
        self.answer: Callable[[], Awaitable[naming_pb2.GetRouteResponse]]

    async def GetRoute(self, request: naming_pb2.GetRouteRequest, context: Any) -> naming_pb2.GetRouteResponse:
        return await self.answer()


class Messaging(messaging_pb2_grpc.MessagingServiceServicer):
    """Answers each frame with its id; the frame 13 is refused, 14 breaks, and 15 answers once more when the server has stopped.

    A pull is answered by as many bytes as its offset, or refused below 0. `asked`: a pull has come; `sent`: its answer was, or was
    given up. `holders`: how many hold the request of the last pull, its handler among them.
    """

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.stopped = asyncio.Event()
        self.asked = asyncio.Event()
        self.sent = asyncio.Event()
        self.holders = 0

    async def Pull(self, request: Any, context: Any) -> AsyncIterator[Any]:  # type: ignore[override]  # see CallInterceptor
        self.holders = sys.getrefcount(request) - 1  # without the one that counts
        self.asked.set()
        try:
            if request.offset < 0:
                await self._refuse()
            yield messaging_pb2.PullResponse(messages=[messaging_pb2.StoredMessage(body=bytes(request.offset))])
        finally:
            self.sent.set()

    async def PublishStream(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        try:
            async for request in requests:
                if request.batch_id == 13:
                    await self._refuse()
                if request.batch_id == 14:
                    raise ZeroDivisionError
                yield messaging_pb2.PublishStreamResponse(batch_id=request.batch_id)
                if request.batch_id == 15:
                    await self._linger(context)
        finally:
            self.closed.set()

    async def _linger(self, context: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.stopped.wait()
            await context.write(messaging_pb2.PublishStreamResponse(batch_id=15))

    async def _refuse(self) -> None:
        async def fail() -> None:
            raise NotMaster("a/1", "a-0:10911")

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())


class Counted:
    """The calls that came to an end, which the server may learn after the caller."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._any = asyncio.Event()

    def called(self, method: str, code: str, seconds: float) -> None:
        assert seconds >= 0
        self.calls.append((method, code))
        self._any.set()

    async def once(self) -> list[tuple[str, str]]:
        """Them, when there is one."""
        await self._any.wait()
        return self.calls


class Loopback:
    """A server with both services, and channels to it."""

    def __init__(self, server: RpcServer, vitals: Health, naming: Naming, messaging: Messaging, *, counted: Counted) -> None:
        self.server = server
        self.vitals = vitals
        self.naming = naming
        self.messaging = messaging
        self.counted = counted
        self.address = f"127.0.0.1:{server.port}"
        self.channels = Channels(GrpcTransport())

    async def get_route(self, deadline_s: float = PATIENCE_S) -> naming_pb2.GetRouteResponse:
        stub = self.channels.stub(naming_pb2_grpc.NameServerServiceStub, self.address)
        return await call(stub.GetRoute, naming_pb2.GetRouteRequest(), who=self.address, deadline_s=deadline_s)

    def publish_stream(self) -> Any:
        return self.channels.stub(messaging_pb2_grpc.MessagingServiceStub, self.address).PublishStream(timeout=PATIENCE_S)


def over_sockets(story: Callable[[Loopback], Awaitable[None]], gate: Gate | None = None, *, shown: Certificates | None = None) -> None:
    """`shown`: certificates of the server, which callers must have as well; None: in plain text."""

    async def told() -> None:
        naming, messaging, counted, vitals = Naming(), Messaging(), Counted(), Health()
        services = [
            Service(NAMING, lambda server: naming_pb2_grpc.add_NameServerServiceServicer_to_server(naming, server)),
            Service(MESSAGING, lambda server: messaging_pb2_grpc.add_MessagingServiceServicer_to_server(messaging, server)),
        ]
        interceptor = CallInterceptor(lambda: Answerer("a/0", "test", 7, 900), OsClock(), random.Random(1), counted, gate=gate)
        server = await bind(GrpcTransport(shown), Listen("listen.clients", "127.0.0.1:0"), services, [interceptor], vitals=vitals)
        await server.start()
        loopback = Loopback(server, vitals, naming, messaging, counted=counted)
        try:
            await story(loopback)
        finally:
            await loopback.channels.close()
            await server.stop(0)

    asyncio.run(told())
