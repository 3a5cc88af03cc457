"""BrokerService: what this node is, how its group stands, and what an operator has it do."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2 as pb
from dittomq._pb.ditto.admin.v1 import admin_pb2_grpc
from dittomq.broker.repair import Repairer
from dittomq.broker.status_watch import StatusWatches, WatchOrder
from dittomq.ha_status import HaStatus
from dittomq.wire import admin as wire

Context = grpc.aio.ServicerContext[Any, Any]


class Operator(Protocol):
    """What operators ask of a node. Each call raises the Refused that says why not."""

    async def switchover(self, order: wire.SwitchoverOrder) -> wire.SwitchoverAnswer:
        """Give the master's place to another node."""
        ...

    async def failover(self, order: wire.FailoverOrder) -> wire.FailoverAnswer:
        """Stand for election."""
        ...

    async def set_paused(self, order: wire.PauseOrder) -> bool:
        """Stop or start automatic failover; whether the flag was another one before."""
        ...

    async def history(self) -> tuple[wire.HaChange, ...]:
        """The last changes of the group record, oldest first."""
        ...


class BrokerServicer(admin_pb2_grpc.BrokerServiceServicer):
    """`description`, `status` and `operator` are the master's or the slave's."""

    def __init__(
        self,
        description: Callable[[], wire.BrokerDescription],
        status: Callable[[], HaStatus],
        watches: StatusWatches,
        operator: Operator,
        *,
        mender: Repairer,
    ) -> None:
        self._description = description
        self._status = status
        self._watches = watches
        self._operator = operator
        self._mender = mender

    async def GetBroker(self, request: pb.GetBrokerRequest, context: Context) -> pb.GetBrokerResponse:
        return wire.get_broker_response(self._description())

    async def GetHaStatus(self, request: pb.GetHaStatusRequest, context: Context) -> pb.GetHaStatusResponse:
        return wire.get_ha_status_response(self._status())

    async def WatchHaStatus(self, request: pb.WatchHaStatusRequest, context: Context) -> None:
        order = WatchOrder(*wire.watch_limits(request))
        await self._watches.watch(order, lambda status: context.write(wire.watch_response(status)))

    async def Switchover(self, request: pb.SwitchoverRequest, context: Context) -> pb.SwitchoverResponse:
        return wire.switchover_response(await self._operator.switchover(wire.switchover_order(request)))

    async def Failover(self, request: pb.FailoverRequest, context: Context) -> pb.FailoverResponse:
        return wire.failover_response(await self._operator.failover(wire.failover_order(request)))

    async def SetPaused(self, request: pb.SetPausedRequest, context: Context) -> pb.SetPausedResponse:
        return wire.set_paused_response(await self._operator.set_paused(wire.pause_order(request)))

    async def GetHaHistory(self, request: pb.GetHaHistoryRequest, context: Context) -> AsyncIterator[pb.GetHaHistoryResponse]:
        for part in wire.ha_history_responses(await self._operator.history()):
            yield part

    async def Repair(self, request: pb.RepairRequest, context: Context) -> pb.RepairResponse:
        return wire.repair_response(await self._mender.repair(wire.repair_order(request)))
