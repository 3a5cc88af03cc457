"""Other replicas of a group: asked where they stand or to change places, or told of an epoch."""

import contextlib
from collections.abc import AsyncIterator

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1.replication_pb2_grpc import ReplicationServiceStub
from dittomq.errors import OutOfReach
from dittomq.replication.standings import KnownBefore, Standing, StepDownOrder, SteppedDown
from dittomq.routes import Opening
from dittomq.rpc.channel import Channels, call, peers_disk
from dittomq.wire import standing as wire

_DESCRIBE_S = 1.0
_ANSWER_S = 2.0  # for making the demotion durable, beyond the time in which writes are refused


class RemoteReplicas:
    """Replicas of one group, by the address of their replication port."""

    def __init__(self, channels: Channels, cluster: str, broker: str) -> None:
        self._channels = channels
        self._cluster = cluster
        self._broker = broker

    async def standing(self, address: str) -> Standing:
        """Where it stands; OutOfReach without an answer within a second, or the typed error of the other side."""
        request = pb.DescribeReplicaRequest(cluster=self._cluster, broker=self._broker)
        async with self._by_chance(address) as stub:
            response: pb.DescribeReplicaResponse = await call(stub.DescribeReplica, request, who=address, deadline_s=_DESCRIBE_S)
        return wire.standing(response)

    async def announce(self, address: str, opening: Opening) -> KnownBefore:
        """Let it know that this epoch is opened; what it knew before. OutOfReach without an answer within a second, or its typed error."""
        request = wire.announcement(opening, self._cluster, self._broker)
        async with self._by_chance(address) as stub:
            response: pb.AnnounceEpochResponse = await call(stub.AnnounceEpoch, request, who=address, deadline_s=_DESCRIBE_S)
        return wire.known(response)

    @contextlib.asynccontextmanager
    async def _by_chance(self, address: str) -> AsyncIterator[ReplicationServiceStub]:
        """It may not be there: whoever dials it next does not wait because it was not."""
        try:
            with peers_disk(address):
                yield self._channels.stub(ReplicationServiceStub, address)
        except OutOfReach:
            if self._channels.backs_off(address):
                await self._channels.forget(address)
            raise

    async def step_down(self, address: str, order: StepDownOrder) -> SteppedDown:
        """Where its log ends, now that it never leads again unless promoted. Refused: it leads. OutOfReach: either."""
        request = wire.step_down_request(order, self._cluster, self._broker)
        stub = self._channels.stub(ReplicationServiceStub, address)
        with peers_disk(address):
            response: pb.StepDownResponse = await call(stub.StepDown, request, who=address, deadline_s=order.timeout_s + _ANSWER_S)
        return wire.stepped_down(response)
