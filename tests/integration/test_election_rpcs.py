"""Replicas that ask one another over real gRPC."""

import asyncio
import random
import socket

import pytest

from dittomq.broker.servicers import names
from dittomq.broker.servicers.elections import ElectionServicer
from dittomq.doors.clock import OsClock
from dittomq.doors.transport import GrpcTransport
from dittomq.errors import ConnectionRefused, NotReady, WrongCluster
from dittomq.group_record import ReplicaId
from dittomq.offsets import Epoch, PhysicalOffset
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.promise import PromiseRequest
from dittomq.rpc.channel import Channels
from dittomq.rpc.headers import Answerer
from dittomq.rpc.health import Health
from dittomq.rpc.interceptors import CallInterceptor
from dittomq.rpc.replica_client import ReplicaClient
from dittomq.rpc.server import Listen, RpcServer, bind
from tests.support.loopback import Counted

POSITION = Position(
    node="a/1",
    replica=ReplicaId("u1", "i1"),
    birth="b1",
    adopted=Epoch(3),
    log_end=PhysicalOffset(900),
    promised=Epoch(4),
    confirmed=PhysicalOffset(800),
)
REQUEST = PromiseRequest("a/2", ReplicaId("u2", "i2"), Epoch(4), "b1", SentBy.OPERATOR)


class Answers:
    """A replica that stands where POSITION does, and notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.is_asked = asyncio.Event()
        self.may_promise = asyncio.Event()
        self.may_promise.set()

    async def ask(self, candidate: str, sent_by: SentBy) -> tuple[Position, bool]:
        self.asked.append((candidate, sent_by))
        return POSITION, False

    async def promise(self, request: PromiseRequest) -> tuple[Position, bool]:
        self.asked.append(request)
        self.is_asked.set()
        await self.may_promise.wait()
        return POSITION, True

    async def stand(self, order: StandOrder) -> None:
        self.asked.append(order)
        if order.allow_data_loss:
            raise NotReady("a/1", "it starts")


async def served(answers: Answers) -> RpcServer:
    service = names.elections(ElectionServicer(answers, "c", "a"))
    interceptor = CallInterceptor(lambda: Answerer("a/1", "c", Epoch(3)), OsClock(), random.Random(1), Counted())
    server = await bind(GrpcTransport(), Listen("listen.replication", "127.0.0.1:0"), [service], [interceptor], vitals=Health())
    await server.start()
    return server


def test_a_replica_is_asked_over_the_network_and_refuses_those_of_other_groups() -> None:
    async def story() -> list[object]:
        answers = Answers()
        server = await served(answers)
        address = f"127.0.0.1:{server.port}"
        async with Channels(GrpcTransport()) as channels:
            replicas = ReplicaClient(channels, "c", "a")
            assert await replicas.ask(address, "a/2", SentBy.MASTER) == (POSITION, False)
            assert await replicas.promise(address, REQUEST) == (POSITION, True)
            await replicas.stand(address, StandOrder(SentBy.OPERATOR))
            with pytest.raises(NotReady):
                await replicas.stand(address, StandOrder(SentBy.OPERATOR, allow_data_loss=True))
            for other in (ReplicaClient(channels, "d", "a"), ReplicaClient(channels, "c", "b")):
                with pytest.raises(WrongCluster):
                    await other.ask(address, "a/2", SentBy.NOBODY)
        await server.stop(0)
        return answers.asked

    assert asyncio.run(story())[:3] == [("a/2", SentBy.MASTER), REQUEST, StandOrder(SentBy.OPERATOR)]


def test_a_promise_is_heard_though_its_channel_is_forgotten_meanwhile() -> None:
    """As a slave does that finds its master useless, while it stands for election and asks that one too."""

    async def story() -> None:
        answers = Answers()
        answers.may_promise.clear()
        server = await served(answers)
        address = f"127.0.0.1:{server.port}"
        async with Channels(GrpcTransport()) as channels:
            promised = asyncio.ensure_future(ReplicaClient(channels, "c", "a").promise(address, REQUEST))
            await answers.is_asked.wait()
            await channels.forget(address)
            answers.may_promise.set()
            [heard] = await asyncio.gather(promised, return_exceptions=True)
        await server.stop(0)
        assert heard == (POSITION, True)

    asyncio.run(story())


def test_a_replica_that_does_not_run_refuses_the_connection() -> None:
    async def story(address: str) -> None:
        async with Channels(GrpcTransport()) as channels:
            with pytest.raises(ConnectionRefused):
                await ReplicaClient(channels, "c", "a").ask(address, "a/2", SentBy.NOBODY)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    asyncio.run(story(address))
