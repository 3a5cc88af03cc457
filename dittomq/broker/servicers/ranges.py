# methods are named by the .proto files
"""ReplicationService.FetchRange, which masters and slaves serve alike. Each adds its own Replicate."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2_grpc
from dittomq.broker.fetching import RangeServing
from dittomq.offsets import PhysicalOffset
from dittomq.wire import replication as wire

Context = grpc.aio.ServicerContext[Any, Any]


class RangeServicer(replication_pb2_grpc.ReplicationServiceServicer):
    """Reads only."""

    def __init__(self, ranges: RangeServing) -> None:
        self._ranges = ranges

    async def FetchRange(self, request: pb.FetchRangeRequest, context: Context) -> AsyncIterator[pb.FetchRangeResponse]:
        self._ranges.check_caller(request.cluster, request.broker)
        async for piece in self._ranges.fetch(PhysicalOffset(request.start_offset), PhysicalOffset(request.end_offset)):
            yield wire.range_piece_to_pb(piece)
