# methods are named by the .proto files
"""TransactionService as masters and slaves serve it alike: decode, call, encode."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import transactions_pb2 as pb
from dittomq._pb.ditto.messaging.v1 import transactions_pb2_grpc
from dittomq.errors import NotMaster
from dittomq.rpc.permits import check_topic
from dittomq.wire import transactions as wire

Context = grpc.aio.ServicerContext[Any, Any]


class TransactionEnds(Protocol):
    """Ends transactions, or says who does."""

    async def end(self, order: wire.EndOrder) -> bool: ...

    async def watch(self, group: str, send: Callable[[wire.TransactionCheck], Awaitable[None]]) -> None: ...


class SlaveTransactions:
    """Ends nothing and names the master; `master` tells its client address, empty while unknown."""

    def __init__(self, node: str, master: Callable[[], str]) -> None:
        self._node = node
        self._master = master

    async def end(self, order: wire.EndOrder) -> bool:
        """Raise NotMaster."""
        raise NotMaster(self._node, self._master())

    async def watch(self, group: str, send: Callable[[wire.TransactionCheck], Awaitable[None]]) -> None:
        """Raise NotMaster."""
        raise NotMaster(self._node, self._master())


class TransactionServicer(transactions_pb2_grpc.TransactionServiceServicer):
    """Ends of transactions, and questions about those that nobody has ended."""

    def __init__(self, ends: TransactionEnds) -> None:
        self._ends = ends

    async def EndTransaction(self, request: pb.EndTransactionRequest, context: Context) -> pb.EndTransactionResponse:
        return pb.EndTransactionResponse(confirmed=await self._ends.end(wire.end_order(request)))

    async def WatchChecks(self, request: pb.WatchChecksRequest, context: Context) -> None:
        async def send(check: wire.TransactionCheck) -> None:
            check_topic(check.topic)
            await context.write(wire.check_to_pb(check))

        await self._ends.watch(wire.watched_group(request), send)
