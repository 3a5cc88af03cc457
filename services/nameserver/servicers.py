"""ditto.naming.v1.NameServerService: decode, call, encode."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc.aio

from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1 import naming_pb2_grpc
from dittomq.rpc.call_room import CallRoom
from dittomq.rpc.server import Service
from dittomq.wire import naming as wire
from services.nameserver.names import Names

Context = grpc.aio.ServicerContext[Any, Any]


def name_server_service(names: Names, room: CallRoom) -> Service:
    """The service as a server takes it; answers that nobody has taken yet have this `room`."""
    name = pb.DESCRIPTOR.services_by_name["NameServerService"].full_name
    return Service(name, partial(naming_pb2_grpc.add_NameServerServiceServicer_to_server, NameServerServicer(names, room)))


class NameServerServicer(naming_pb2_grpc.NameServerServiceServicer):
    """Every method answers from memory; what brings a new epoch is on the disk before it is answered.

    What may be long is yielded, see CallInterceptor.
    """

    def __init__(self, names: Names, room: CallRoom) -> None:
        self._names = names
        self._room = room

    async def GetRoute(self, request: pb.GetRouteRequest, context: Context) -> AsyncIterator[pb.GetRouteResponse]:  # type: ignore[override]
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.route_response(self._names.route(request.topic, request.network)))

    async def ListBrokers(  # type: ignore[override]
        self, request: pb.ListBrokersRequest, context: Context
    ) -> AsyncIterator[pb.ListBrokersResponse]:
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.node_page_response(self._names.page(request.page_size, request.page_token, request.network)))

    async def RegisterBroker(self, request: pb.RegisterBrokerRequest, context: Context) -> pb.RegisterBrokerResponse:
        return wire.membership_response(await self._names.register(wire.registration(request)))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        return wire.beat_response(await self._names.heartbeat(wire.beat(request)))

    async def UnregisterBroker(self, request: pb.UnregisterBrokerRequest, context: Context) -> pb.UnregisterBrokerResponse:
        return pb.UnregisterBrokerResponse(removed=self._names.unregister(request.session_id))

    async def ForgetGroup(self, request: pb.ForgetGroupRequest, context: Context) -> pb.ForgetGroupResponse:
        return wire.forget_group_response(await self._names.forget(wire.forget_order(request)))
