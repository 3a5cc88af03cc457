"""BrokerService: what this node is, how its group stands, and what an operator has it do."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq._pb.ditto.admin.v1 import admin_pb2_grpc
from dittomq.broker.mending import Mender
from dittomq.broker.watching import StatusWatches, WatchOrder
from dittomq.ha_status import HaStatus
from dittomq.wire import admin as wire

Context = grpc.aio.ServicerContext[Any, Any]
ChangeRole = Callable[[wire.RoleOrder], Awaitable[wire.RoleChange]]


class BrokerServicer(admin_pb2_grpc.BrokerServiceServicer):
    """`description`, `status` and `change_role` are the master's or the slave's."""

    def __init__(
        self,
        description: Callable[[], wire.BrokerDescription],
        status: Callable[[], HaStatus],
        watches: StatusWatches,
        change_role: ChangeRole,
        mender: Mender,
    ) -> None:
        self._description = description
        self._status = status
        self._watches = watches
        self._change_role = change_role
        self._mender = mender

    async def GetBroker(self, request: pb.GetBrokerRequest, context: Context) -> pb.GetBrokerResponse:
        return wire.get_broker_response(self._description())

    async def GetHaStatus(self, request: pb.GetHaStatusRequest, context: Context) -> pb.GetHaStatusResponse:
        return wire.get_ha_status_response(self._status())

    async def WatchHaStatus(self, request: pb.WatchHaStatusRequest, context: Context) -> None:
        order = WatchOrder(*wire.watch_limits(request))
        await self._watches.watch(order, lambda status: context.write(wire.watch_response(status)))

    async def ChangeRole(self, request: pb.ChangeRoleRequest, context: Context) -> pb.ChangeRoleResponse:
        return wire.change_role_response(await self._change_role(wire.role_order(request)))

    async def Repair(self, request: pb.RepairRequest, context: Context) -> pb.RepairResponse:
        return wire.repair_response(await self._mender.repair(wire.repair_order(request)))
