"""ditto.naming.v1.NameServerService: decode, call, encode."""

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc.aio

from dittomq._pb.ditto.coordination.v1 import coordination_pb2, coordination_pb2_grpc
from dittomq._pb.ditto.naming.v1 import naming_pb2 as pb
from dittomq._pb.ditto.naming.v1 import naming_pb2_grpc
from dittomq.rpc.admission import AdmissionControl
from dittomq.rpc.server import Service
from dittomq.wire import coordination as coordination_wire
from dittomq.wire import naming as wire
from services.nameserver.group_records import GroupRecords
from services.nameserver.key_values import KeyValues
from services.nameserver.service import NameServer

Context = grpc.aio.ServicerContext[Any, Any]


def name_server_service(names: NameServer, values: KeyValues, room: AdmissionControl) -> Service:
    """The service as a server takes it; answers that no caller has taken yet have this `room`."""
    name = pb.DESCRIPTOR.services_by_name["NameServerService"].full_name
    return Service(name, partial(naming_pb2_grpc.add_NameServerServiceServicer_to_server, NameServerServicer(names, values, room)))


class NameServerServicer(naming_pb2_grpc.NameServerServiceServicer):
    """Every method answers from memory, a change once it is on the disk; what may be long is yielded, see CallInterceptor."""

    def __init__(self, names: NameServer, values: KeyValues, room: AdmissionControl) -> None:
        self._names = names
        self._values = values
        self._room = room

    async def GetRoute(self, request: pb.GetRouteRequest, context: Context) -> AsyncIterator[pb.GetRouteResponse]:  # type: ignore[override]
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.route_response(self._names.route(request.topic, request.network)))

    async def WatchRoutes(self, request: pb.WatchRoutesRequest, context: Context) -> AsyncIterator[pb.WatchRoutesResponse]:
        async with contextlib.aclosing(self._names.watches.watch(wire.watch_order(request))) as routes:
            async for watched in routes:
                async with self._room.page(context.peer()) as share:
                    yield share.of(wire.watched_route_response(watched))

    async def ListBrokers(  # type: ignore[override]
        self, request: pb.ListBrokersRequest, context: Context
    ) -> AsyncIterator[pb.ListBrokersResponse]:
        async with self._room.page(context.peer()) as share:
            yield share.of(wire.node_page_response(self._names.page(request.page_size, request.page_token, request.network)))

    async def RegisterBroker(self, request: pb.RegisterBrokerRequest, context: Context) -> pb.RegisterBrokerResponse:
        return wire.membership_response(self._names.register(wire.registration(request)))

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        return wire.beat_response(self._names.heartbeat(wire.beat(request)))

    async def UnregisterBroker(self, request: pb.UnregisterBrokerRequest, context: Context) -> pb.UnregisterBrokerResponse:
        return pb.UnregisterBrokerResponse(removed=self._names.unregister(request.session_id))

    async def SetWritePermission(self, request: pb.SetWritePermissionRequest, context: Context) -> pb.SetWritePermissionResponse:
        return pb.SetWritePermissionResponse(topics=await self._names.set_writable(request.broker, writable=request.writable))

    async def PutKeyValue(self, request: pb.PutKeyValueRequest, context: Context) -> pb.PutKeyValueResponse:
        changed = await self._values.put(wire.key_value(request.key_value))
        self._names.wake_watches()
        return pb.PutKeyValueResponse(changed=changed)

    async def GetKeyValue(self, request: pb.GetKeyValueRequest, context: Context) -> pb.GetKeyValueResponse:
        return pb.GetKeyValueResponse(key_value=wire.pb_key_value(self._values.get(request.namespace, request.key)))

    async def ListKeyValues(  # type: ignore[override]
        self, request: pb.ListKeyValuesRequest, context: Context
    ) -> AsyncIterator[pb.ListKeyValuesResponse]:
        async with self._room.page(context.peer()) as share:
            page = self._values.page(request.namespace, request.page_size, request.page_token)
            yield share.of(wire.key_value_page_response(page))

    async def DeleteKeyValue(self, request: pb.DeleteKeyValueRequest, context: Context) -> pb.DeleteKeyValueResponse:
        removed = await self._values.delete(request.namespace, request.key)
        self._names.wake_watches()
        return pb.DeleteKeyValueResponse(removed=removed)


def coordination_service(records: GroupRecords) -> Service:
    """The coordination store as a server takes it."""
    name = coordination_pb2.DESCRIPTOR.services_by_name["CoordinationService"].full_name
    return Service(name, partial(coordination_pb2_grpc.add_CoordinationServiceServicer_to_server, CoordinationServicer(records)))


class CoordinationServicer(coordination_pb2_grpc.CoordinationServiceServicer):
    """Reads from memory; a change is on the disk before it is answered."""

    def __init__(self, records: GroupRecords) -> None:
        self._records = records

    async def Get(self, request: coordination_pb2.GetRequest, context: Context) -> coordination_pb2.GetResponse:
        return coordination_wire.get_response(*self._records.read(coordination_wire.group_key(request)))

    async def CompareAndSet(
        self, request: coordination_pb2.CompareAndSetRequest, context: Context
    ) -> coordination_pb2.CompareAndSetResponse:
        key, document = coordination_wire.group_key(request), coordination_wire.document(request)
        version = await self._records.compare_and_set(key, request.expected_version, document)
        return coordination_wire.compare_and_set_response(version)

    async def Watch(self, request: coordination_pb2.WatchRequest, context: Context) -> AsyncIterator[coordination_pb2.WatchResponse]:
        async for _ in self._records.watch(coordination_wire.group_key(request)):
            yield coordination_pb2.WatchResponse()
