"""ditto.naming.v1.NameServerService: decode, call, encode."""

from functools import partial
from typing import Any

import grpc.aio

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1 import naming_pb2_grpc
from dittomq.rpc.server import Service
from dittomq.wire import naming as wire
from services.nameserver.names import Names

Context = grpc.aio.ServicerContext[Any, Any]


def name_server_service(names: Names) -> Service:
    """The service as a server takes it."""
    name = pb.DESCRIPTOR.services_by_name["NameServerService"].full_name
    return Service(name, partial(naming_pb2_grpc.add_NameServerServiceServicer_to_server, NameServerServicer(names)))


class NameServerServicer(naming_pb2_grpc.NameServerServiceServicer):
    """Every method answers from memory; what brings a new epoch is on the disk before it is answered."""

    def __init__(self, names: Names) -> None:
        self._names = names

    async def GetRoute(self, request: pb.GetRouteRequest, context: Context) -> pb.GetRouteResponse:
        return wire.route_response(self._names.route(request.topic, request.network))

    async def ListBrokers(self, request: pb.ListBrokersRequest, context: Context) -> pb.ListBrokersResponse:
        return wire.node_page_response(self._names.page(request.page_size, request.page_token, request.network))

    async def RegisterBroker(self, request: pb.RegisterBrokerRequest, context: Context) -> pb.RegisterBrokerResponse:
        return wire.membership_response(await self._names.register(wire.registration(request)))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        return wire.beat_response(await self._names.heartbeat(wire.beat(request)))

    async def UnregisterBroker(self, request: pb.UnregisterBrokerRequest, context: Context) -> pb.UnregisterBrokerResponse:
        return pb.UnregisterBrokerResponse(removed=self._names.unregister(request.session_id))
