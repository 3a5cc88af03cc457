# methods are named by the .proto files
"""A slave's doors: decode, call, encode. What masters and slaves answer alike is in `dittomq.broker.servicers`."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.broker.lookups import LookupService
from dittomq.broker.pull_service import PullService
from dittomq.broker.range_server import RangeServer
from dittomq.broker.replication_throttle import ReplicationThrottle
from dittomq.broker.servicers.lookups import LookupServicer
from dittomq.broker.servicers.ranges import RangeServicer
from dittomq.errors import NotMaster
from dittomq.rpc.interceptors import takes_its_request

Context = grpc.aio.ServicerContext[Any, Any]


class SlaveMessagingServicer(LookupServicer):
    """Reads; whoever publishes is told where the master is."""

    def __init__(self, node: str, master: Callable[[], str], reading: PullService, lookups: LookupService) -> None:
        super().__init__(reading, lookups)
        self._node = node
        self._master = master

    @takes_its_request
    async def Publish(self, requests: AsyncIterator[pb.PublishRequest], context: Context) -> pb.PublishResponse:  # type: ignore[override]
        raise NotMaster(self._node, self._master())

    async def Cancel(self, request: pb.CancelRequest, context: Context) -> pb.CancelResponse:
        raise NotMaster(self._node, self._master())

    async def PublishStream(self, request_iterator: AsyncIterator[pb.PublishStreamRequest], context: Context) -> None:
        raise NotMaster(self._node, self._master())

    async def GetPublishResult(self, request: pb.GetPublishResultRequest, context: Context) -> pb.GetPublishResultResponse:
        raise NotMaster(self._node, self._master())


class SlaveReplicationServicer(RangeServicer):
    """Serves ranges to whoever repairs or takes over a tail; feeds no slave."""

    def __init__(self, ranges: RangeServer, outflow: ReplicationThrottle, node: str, master: Callable[[], str]) -> None:
        super().__init__(ranges, outflow)
        self._node = node
        self._master = master

    async def Replicate(self, request_iterator: AsyncIterator[replication_pb2.ReplicateRequest], context: Context) -> None:
        raise NotMaster(self._node, self._master())
