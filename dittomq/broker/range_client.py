"""Another node's log, fetched through its ReplicationService."""

from collections.abc import AsyncGenerator

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1.replication_pb2_grpc import ReplicationServiceStub
from dittomq.broker.config import BrokerConfig
from dittomq.copies import LogStart
from dittomq.errors import LimitReached, Unavailable
from dittomq.offsets import PhysicalOffset
from dittomq.replication.events import RangePiece
from dittomq.rpc.channel import Channels, breaking, peers_disk
from dittomq.wire import replication as wire
from dittomq.wire.log_start import log_start_from_pb

_DEADLINE_S = 600.0
_LOG_START_S = 10.0


class RangeClient:
    """The node that serves replication at an address, for the one that asks it."""

    def __init__(self, channels: Channels, address: str, asking: BrokerConfig) -> None:
        self._channels = channels
        self._address = address
        self._cluster = asking.node.cluster
        self._broker = asking.node.broker
        self._node = asking.name

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset, *, skip_damaged: bool = False) -> AsyncGenerator[RangePiece, None]:
        """Whole records of [start, end) in order; the other side's typed error, or Unavailable: also while it serves all that it may.

        `skip_damaged`: where that copy is damaged a piece that says so instead of CorruptRecord.
        """
        stub = self._channels.stub(ReplicationServiceStub, self._address)
        request = pb.FetchRangeRequest(
            cluster=self._cluster, broker=self._broker, start_offset=start, end_offset=end, node=self._node, skip_damaged=skip_damaged
        )
        try:
            with peers_disk(self._address), breaking(self._address):
                async for piece in stub.FetchRange(request, timeout=_DEADLINE_S):
                    yield wire.range_piece_from_pb(piece)
        except LimitReached as problem:
            raise Unavailable(self._address, str(problem)) from problem

    async def log_start(self) -> LogStart:
        """Where its log and its queues begin; the other side's typed error, or Unavailable, within 10 s."""
        stub = self._channels.stub(ReplicationServiceStub, self._address)
        request = pb.FetchLogStartRequest(cluster=self._cluster, broker=self._broker)
        with peers_disk(self._address), breaking(self._address):
            return await log_start_from_pb(stub.FetchLogStart(request, timeout=_LOG_START_S))
