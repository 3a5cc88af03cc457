"""Other replicas of a group, as an election asks them."""

import contextlib
from collections.abc import AsyncIterator

from dittomq._pb.ditto.replication.v1 import election_pb2 as pb
from dittomq._pb.ditto.replication.v1.election_pb2_grpc import ElectionServiceStub
from dittomq.errors import Unavailable
from dittomq.replication.election_events import Position, SentBy, StandOrder
from dittomq.replication.promise import PromiseRequest
from dittomq.rpc.channel import Channels, call, peers_disk
from dittomq.wire import election as wire

_ANSWER_S = 1.0


class ReplicaClient:
    """Replicas of one group, by the address of their replication port.

    Each call raises Unavailable without an answer within a second, which leaves it open whether it was obeyed, the typed error of the other
    side, and InvalidField where its answer cannot be right.
    """

    def __init__(self, channels: Channels, cluster: str, broker: str) -> None:
        self._channels = channels
        self._cluster = cluster
        self._broker = broker

    async def ask(self, address: str, candidate: str, sent_by: SentBy) -> tuple[Position, bool]:
        """Where it stands, and whether it would promise; `candidate` is "" where nobody stands."""
        request = wire.ask_request(candidate, sent_by, self._cluster, self._broker)
        async with self._stub(address) as stub:
            response: pb.AskResponse = await call(stub.Ask, request, who=address, deadline_s=_ANSWER_S)
        return wire.ask_answer(response)

    async def promise(self, address: str, request: PromiseRequest) -> tuple[Position, bool]:
        """Where it stands behind what it took before the promise, and whether it gave it, durably."""
        async with self._stub(address) as stub:
            asked = wire.promise_request(request, self._cluster, self._broker)
            response: pb.PromiseResponse = await call(stub.Promise, asked, who=address, deadline_s=_ANSWER_S)
        return wire.promise_answer(response)

    async def stand(self, address: str, order: StandOrder) -> None:
        """Have it stand for election: the group record tells the outcome."""
        async with self._stub(address) as stub:
            request = wire.stand_request(order, self._cluster, self._broker)
            response: pb.StandResponse = await call(stub.Stand, request, who=address, deadline_s=_ANSWER_S)
        del response

    @contextlib.asynccontextmanager
    async def _stub(self, address: str) -> AsyncIterator[ElectionServiceStub]:
        """It may not be there: whoever dials it next does not wait because it was not."""
        async with self._channels.keeping(address):
            try:
                with peers_disk(address):
                    yield self._channels.stub(ElectionServiceStub, address)
            except Unavailable:
                if self._channels.backs_off(address):
                    await self._channels.forget(address)
                raise
