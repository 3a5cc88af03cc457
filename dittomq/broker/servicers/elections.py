# methods are named by the .proto files
"""ElectionService, as masters and slaves serve it alike: decode, call, encode."""

from typing import Any, Protocol

import grpc.aio

from dittomq._pb.ditto.replication.v1 import election_pb2 as pb
from dittomq._pb.ditto.replication.v1 import election_pb2_grpc
from dittomq.errors import WrongCluster
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.promise import PromiseRequest
from dittomq.wire import election as wire

Context = grpc.aio.ServicerContext[Any, Any]


class ElectionAnswers(Protocol):
    """Who answers for this replica. Each raises NotReady while it is not known where the replica stands."""

    async def ask(self, candidate: str, sent_by: SentBy) -> tuple[Position, bool]:
        """Where it stands, and whether it would promise; `candidate` is "" where nobody stands."""
        ...

    async def promise(self, request: PromiseRequest) -> tuple[Position, bool]:
        """Promise, if nothing is in the way, durably; where it stands then, and whether it did."""
        ...

    async def stand(self, order: StandOrder) -> None:
        """Stand for election. Raises PreconditionFailed where it may not."""
        ...


class ElectionServicer(election_pb2_grpc.ElectionServiceServicer):
    """`cluster` and `broker` are this replica's: others are refused."""

    def __init__(self, answers: ElectionAnswers, cluster: str, broker: str) -> None:
        self._answers = answers
        self._cluster = cluster
        self._broker = broker

    async def Ask(self, request: pb.AskRequest, context: Context) -> pb.AskResponse:
        self._check_caller(request)
        return wire.ask_response(*await self._answers.ask(*wire.asked(request)))

    async def Promise(self, request: pb.PromiseRequest, context: Context) -> pb.PromiseResponse:
        self._check_caller(request)
        return wire.promise_response(*await self._answers.promise(wire.promise_asked(request)))

    async def Stand(self, request: pb.StandRequest, context: Context) -> pb.StandResponse:
        self._check_caller(request)
        await self._answers.stand(wire.stand_order(request))
        return pb.StandResponse()

    def _check_caller(self, request: pb.AskRequest | pb.PromiseRequest | pb.StandRequest) -> None:
        """Refuse a replica of another group."""
        if request.cluster != self._cluster:
            raise WrongCluster("cluster", request.cluster, self._cluster)
        if request.broker != self._broker:
            raise WrongCluster("broker", request.broker, self._broker)
