# methods are named by the .proto files
"""ReplicationService as masters and slaves serve it alike. Each adds its own Replicate."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2_grpc
from dittomq.broker.range_server import RangeServer
from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.offsets import PhysicalOffset
from dittomq.wire import replication as wire
from dittomq.wire.log_start import log_start_to_pb

Context = grpc.aio.ServicerContext[Any, Any]


class RangeServicer(replication_pb2_grpc.ReplicationServiceServicer):
    """Reads only."""

    def __init__(self, ranges: RangeServer, outflow: ReplicationThrottle) -> None:
        self._ranges = ranges
        self._outflow = outflow

    async def FetchRange(self, request: pb.FetchRangeRequest, context: Context) -> AsyncIterator[pb.FetchRangeResponse]:
        self._ranges.check_caller(request.cluster, request.broker)
        start, end = PhysicalOffset(request.start_offset), PhysicalOffset(request.end_offset)
        pieces = self._ranges.fetch(start, end, skip_damaged=request.skip_damaged)
        async with contextlib.aclosing(self._outflow.throttled(request.node, pieces)) as throttled:
            async for piece in throttled:
                yield wire.range_piece_to_pb(piece)

    async def FetchLogStart(self, request: pb.FetchLogStartRequest, context: Context) -> AsyncIterator[pb.FetchLogStartResponse]:
        self._ranges.check_caller(request.cluster, request.broker)
        for part in log_start_to_pb(await self._ranges.log_start()):
            yield part
