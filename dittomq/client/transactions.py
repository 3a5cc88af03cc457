"""Transactions of a producer: a message that nobody can read before it is committed."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from dittomq._pb.ditto.messaging.v1.messaging_pb2_grpc import MessagingServiceStub
from dittomq._pb.ditto.messaging.v1.transactions_pb2 import EndTransactionResponse, WatchChecksRequest
from dittomq._pb.ditto.messaging.v1.transactions_pb2_grpc import TransactionServiceStub
from dittomq.client.routing import ClientContext
from dittomq.errors import InvalidField, NotReady, OutcomeHandle, OutcomeUnknown, Unavailable
from dittomq.message import Ack, Message, Receipt
from dittomq.rpc.channel import breaking, call
from dittomq.tokens import decode_token
from dittomq.transactions import TransactionEnd, check_group
from dittomq.wire import transactions as wire
from dittomq.wire.messaging import half_request, receipt
from dittomq.wire.transactions import EndOrder, TransactionCheck

_ANSWER_GRACE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class HalfOrder:
    """A message that goes to a queue of a broker group, and the producer group that can say later what became of it."""

    message: Message
    broker: str
    queue: int
    group: str


class Transaction:
    """Commits when its block ends, and rolls back when the block raises; or as `commit` and `rollback` say."""

    def __init__(self, around: ClientContext, order: HalfOrder, ack: Ack | None, timeout_s: float) -> None:
        self._around = around
        self._order = order
        self._ack = ack
        self._timeout_s = timeout_s
        self._has_ended = False
        self.receipt: Receipt | None = None  # of the half message; None before the block is entered

    async def __aenter__(self) -> Self:
        check_group(self._order.group)
        request = half_request(self._order.message, self._order.queue, self._order.group, (self._ack, self._timeout_s))
        address, who = await self._master()
        stub: Any = self._around.channels.stub(MessagingServiceStub, address)
        answer = await call(stub.Publish, request, who=who, deadline_s=self._timeout_s + _ANSWER_GRACE_S)
        self.receipt = receipt(answer.receipt)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if not self._has_ended:
            await (self.commit() if error is None else self.rollback())

    async def commit(self) -> None:
        """Let the message be delivered. Raises PreconditionFailed where it was rolled back, OutcomeUnknown where this is not confirmed yet:
        calling again is safe.
        """
        await self._end(TransactionEnd.COMMIT)

    async def rollback(self) -> None:
        """Let the message never be delivered; raises as `commit` does."""
        await self._end(TransactionEnd.ROLLBACK)

    async def _end(self, end: TransactionEnd) -> None:
        assert self.receipt is not None, "a transaction begins with its block"
        await end_transaction(self._around, self.receipt.token, end, self._timeout_s)
        self._has_ended = True

    async def _master(self) -> tuple[str, str]:
        return await master_of(self._around, self._order.broker)


class TransactionChecks:
    """Questions of the masters of one broker group about transactions that nobody has ended."""

    def __init__(self, around: ClientContext) -> None:
        self._around = around

    async def watch(self, group: str, broker: str) -> AsyncIterator[TransactionCheck]:
        """Each question as it comes, until the master stops: raises Unavailable then; watch again. Answer with `end`."""
        check_group(group)
        address, who = await master_of(self._around, broker)
        stub: Any = self._around.channels.stub(TransactionServiceStub, address)
        with breaking(who):
            async for response in stub.WatchChecks(WatchChecksRequest(group=group)):
                yield wire.check_from_pb(response)
        raise Unavailable(who, "it stopped asking")

    async def end(self, token: str, *, commit: bool, timeout_s: float = 3.0) -> None:
        """Commit or roll back the transaction of that token, whoever began it; raises as Transaction.commit does."""
        await end_transaction(self._around, token, TransactionEnd.COMMIT if commit else TransactionEnd.ROLLBACK, timeout_s)


async def end_transaction(around: ClientContext, token: str, end: TransactionEnd, timeout_s: float) -> None:
    """End a transaction. Raises OutcomeUnknown where that is not confirmed yet."""
    broker = decode_token(token, "token").broker
    address, who = await master_of(around, broker)
    stub: Any = around.channels.stub(TransactionServiceStub, address)
    request, unknown = wire.end_request(EndOrder(token, end, timeout_s)), OutcomeHandle(broker, "", 0, "", 0)
    try:
        answer: EndTransactionResponse = await call(stub.EndTransaction, request, who=who, deadline_s=timeout_s + 3 + _ANSWER_GRACE_S)
    except Unavailable as silent:
        raise OutcomeUnknown(unknown, f"{silent}; end it again in the same way") from silent
    if not answer.confirmed:
        raise OutcomeUnknown(unknown, "the end of the transaction is written and not confirmed yet; end it again in the same way")


async def master_of(around: ClientContext, broker: str) -> tuple[str, str]:
    """Its address, and what it is called in errors."""
    node = await around.routing.master_of_group(broker)
    if node is None:
        raise NotReady(f"the master of {broker}", "no nameserver knows one now")
    if not broker:
        raise InvalidField("broker", "is empty")
    address = around.routing.address(node)
    return address, f"{node.name} at {address}"
