# methods are named by the .proto files
"""A slave's doors: decode, call, encode. What masters and slaves answer alike is in `dittomq.broker.servicers`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc
from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq._pb.ditto.messaging.v1 import messaging_pb2_grpc
from dittomq._pb.ditto.replication.v1 import replication_pb2
from dittomq.broker.fetching import RangeServing
from dittomq.broker.mending import Mender
from dittomq.broker.outflow import Outflow
from dittomq.broker.reading import Reading
from dittomq.broker.servicers.ranges import RangeServicer
from dittomq.broker.watching import WatchOrder
from dittomq.errors import NotMaster
from dittomq.replication.promotion import Standing
from dittomq.wire import admin as wire_admin
from dittomq.wire import messaging as wire_messaging
from dittomq.wire.admin import RoleChange, RoleOrder
from services.slave.node import SlaveNode

Context = grpc.aio.ServicerContext[Any, Any]


class MessagingServicer(messaging_pb2_grpc.MessagingServiceServicer):
    """Reads; whoever publishes is told where the master is."""

    def __init__(self, node: str, master: Callable[[], str], reading: Reading) -> None:
        self._node = node
        self._master = master
        self._reading = reading

    async def Publish(self, request: pb.PublishRequest, context: Context) -> pb.PublishResponse:
        raise NotMaster(self._node, self._master())

    async def PublishStream(self, request_iterator: AsyncIterator[pb.PublishStreamRequest], context: Context) -> None:
        raise NotMaster(self._node, self._master())

    async def GetOutcome(self, request: pb.GetOutcomeRequest, context: Context) -> pb.GetOutcomeResponse:
        raise NotMaster(self._node, self._master())

    async def Pull(self, request: pb.PullRequest, context: Context) -> pb.PullResponse:
        order = wire_messaging.pull_order(request)
        return wire_messaging.pull_response(await self._reading.pull(order), prefer_text=order.prefer_text)


class ReplicationServicer(RangeServicer):
    """Serves ranges to a recovering master; feeds nobody."""

    def __init__(
        self, node: str, master: Callable[[], str], ranges: RangeServing, outflow: Outflow, standing: Callable[[], Standing]
    ) -> None:
        super().__init__(ranges, outflow, standing)
        self._node = node
        self._master = master

    async def Replicate(self, request_iterator: AsyncIterator[replication_pb2.ReplicateRequest], context: Context) -> None:
        raise NotMaster(self._node, self._master())

    async def StepDown(self, request: replication_pb2.StepDownRequest, context: Context) -> replication_pb2.StepDownResponse:
        raise NotMaster(self._node, self._master())


class BrokerServicer(admin_pb2_grpc.BrokerServiceServicer):
    """What this slave is and how its group stands."""

    def __init__(self, node: SlaveNode, change_role: Callable[[RoleOrder], Awaitable[RoleChange]], mender: Mender) -> None:
        self._node = node
        self._change_role = change_role
        self._mender = mender

    async def GetBroker(self, request: admin_pb2.GetBrokerRequest, context: Context) -> admin_pb2.GetBrokerResponse:
        return wire_admin.get_broker_response(self._node.description())

    async def GetHaStatus(self, request: admin_pb2.GetHaStatusRequest, context: Context) -> admin_pb2.GetHaStatusResponse:
        return wire_admin.get_ha_status_response(self._node.status())

    async def WatchHaStatus(self, request: admin_pb2.WatchHaStatusRequest, context: Context) -> None:
        order = WatchOrder(*wire_admin.watch_limits(request))
        await self._node.watches.watch(order, lambda status: context.write(wire_admin.watch_response(status)))

    async def ChangeRole(self, request: admin_pb2.ChangeRoleRequest, context: Context) -> admin_pb2.ChangeRoleResponse:
        return wire_admin.change_role_response(await self._change_role(wire_admin.role_order(request)))

    async def Repair(self, request: admin_pb2.RepairRequest, context: Context) -> admin_pb2.RepairResponse:
        return wire_admin.repair_response(await self._mender.repair(wire_admin.repair_order(request)))
