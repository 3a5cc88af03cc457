"""Another node's log, fetched through its ReplicationService."""

from collections.abc import AsyncIterator

import grpc.aio

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1.replication_pb2_grpc import ReplicationServiceStub
from dittomq.offsets import PhysicalOffset
from dittomq.rpc.channel import Channels, typed

_DEADLINE_S = 600.0


class RemoteRanges:
    """The node that serves replication at an address."""

    def __init__(self, channels: Channels, address: str, cluster: str, broker: str) -> None:
        self._channels = channels
        self._address = address
        self._cluster = cluster
        self._broker = broker

    async def fetch(self, start: PhysicalOffset, end: PhysicalOffset) -> AsyncIterator[tuple[PhysicalOffset, int, bytes]]:
        """Whole records of [start, end) in order, with position and CRC-32; the other side's typed error, or OutOfReach."""
        stub = self._channels.stub(ReplicationServiceStub, self._address)
        request = pb.FetchRangeRequest(cluster=self._cluster, broker=self._broker, start_offset=start, end_offset=end)
        try:
            async for piece in stub.FetchRange(request, timeout=_DEADLINE_S):
                yield PhysicalOffset(piece.offset), piece.crc, piece.data
        except grpc.aio.AioRpcError as error:
            raise typed(error, self._address) from error
