"""ConsumerGroupService, the part of members: `calls` is what makes it a master's or a slave's. Decode, call, encode."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NoReturn, Protocol

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import consumer_groups_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import consumer_leases_pb2 as leases_pb
from dittomq._pb.ditto.messaging.v1 import consumer_sessions_pb2 as pb
from dittomq.consumer.assignment import TopicQueue
from dittomq.consumer.leases import LeaseToken
from dittomq.consumer.order_locks import LOCK_S
from dittomq.errors import NotMaster
from dittomq.wire import consumer_leases as leases_wire
from dittomq.wire import consumer_sessions as wire
from dittomq.wire.consumer_leases import Leased, ReceiveOrder

Context = grpc.aio.ServicerContext[Any, Any]


class MemberCalls(Protocol):
    """What members ask of a node. Each call raises the Refused that says why not."""

    async def join(self, frames: AsyncIterator[wire.JoinFrame], send: Callable[[wire.JoinAnswer], Awaitable[object]]) -> None:
        """Serve one stream of a member until it leaves."""
        ...

    async def send_back(self, order: wire.SendBackOrder) -> wire.SentBack:
        """Store a copy for another try."""
        ...

    async def lock(self, order: wire.LockOrder) -> frozenset[TopicQueue]:
        """Lock queues."""
        ...

    async def unlock(self, order: wire.LockOrder) -> None:
        """Free queues."""
        ...

    def receive(self, order: ReceiveOrder, connection: str) -> AbstractAsyncContextManager[Sequence[Leased]]:
        """Lease messages, counted as unread until the block ends."""
        ...

    async def acknowledge(self, group: str, tokens: Sequence[LeaseToken]) -> Sequence[bool]:
        """Whether each is acknowledged."""
        ...

    async def extend(self, group: str, token: LeaseToken, lease_s: float) -> None:
        """Let a lease last longer."""
        ...


class MembersElsewhere:
    """A slave's: it names the master; `master` tells its client address, empty while unknown."""

    def __init__(self, node: str, master: Callable[[], str]) -> None:
        self._node = node
        self._master = master

    async def join(self, frames: AsyncIterator[wire.JoinFrame], send: Callable[[wire.JoinAnswer], Awaitable[object]]) -> NoReturn:
        raise NotMaster(self._node, self._master())

    async def send_back(self, order: wire.SendBackOrder) -> NoReturn:
        raise NotMaster(self._node, self._master())

    async def lock(self, order: wire.LockOrder) -> NoReturn:
        raise NotMaster(self._node, self._master())

    async def unlock(self, order: wire.LockOrder) -> NoReturn:
        raise NotMaster(self._node, self._master())

    def receive(self, order: ReceiveOrder, connection: str) -> NoReturn:
        raise NotMaster(self._node, self._master())

    async def acknowledge(self, group: str, tokens: Sequence[LeaseToken]) -> NoReturn:
        raise NotMaster(self._node, self._master())

    async def extend(self, group: str, token: LeaseToken, lease_s: float) -> NoReturn:
        raise NotMaster(self._node, self._master())


class MemberServicer(consumer_groups_pb2_grpc.ConsumerGroupServiceServicer):
    """Members, locks, and messages that come again."""

    def __init__(self, calls: MemberCalls) -> None:
        self._calls = calls

    async def Join(self, request_iterator: AsyncIterator[pb.JoinRequest], context: Context) -> None:
        async def frames() -> AsyncIterator[wire.JoinFrame]:
            async for request in request_iterator:
                yield wire.join_frame(request)

        await self._calls.join(frames(), lambda answer: context.write(wire.join_response(answer)))

    async def LockQueues(self, request: pb.LockQueuesRequest, context: Context) -> pb.LockQueuesResponse:
        return wire.lock_queues_response(await self._calls.lock(wire.lock_order(request)), LOCK_S)

    async def UnlockQueues(self, request: pb.UnlockQueuesRequest, context: Context) -> pb.UnlockQueuesResponse:
        await self._calls.unlock(wire.lock_order(request))
        return pb.UnlockQueuesResponse()

    async def SendBack(self, request: pb.SendBackRequest, context: Context) -> pb.SendBackResponse:
        return wire.send_back_response(await self._calls.send_back(wire.send_back_order(request)))

    async def Receive(  # type: ignore[override]  # it goes on when the answer is taken
        self, request: leases_pb.ReceiveRequest, context: Context
    ) -> AsyncIterator[leases_pb.ReceiveResponse]:
        async with self._calls.receive(leases_wire.receive_order(request), context.peer()) as leased:
            yield leases_wire.receive_response(leased, prefer_text=request.prefer_text)

    async def Acknowledge(self, request: leases_pb.AcknowledgeRequest, context: Context) -> leases_pb.AcknowledgeResponse:
        tokens = leases_wire.acknowledged_tokens(request)
        return leases_wire.acknowledge_response(tokens, await self._calls.acknowledge(request.group, tokens))

    async def ExtendLease(self, request: leases_pb.ExtendLeaseRequest, context: Context) -> leases_pb.ExtendLeaseResponse:
        await self._calls.extend(request.group, *leases_wire.extension(request))
        return leases_pb.ExtendLeaseResponse()
