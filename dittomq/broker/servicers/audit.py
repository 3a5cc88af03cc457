# methods are named by the .proto files
"""AuditService: this copy's digests and bytes, for comparison, and pins that keep them until then."""

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from dittomq._pb.ditto.audit.v1 import audit_pb2 as pb
from dittomq._pb.ditto.audit.v1 import audit_pb2_grpc
from dittomq.broker.audit_reads import AuditReads
from dittomq.broker.retention_pins import Pins
from dittomq.offsets import PhysicalOffset
from dittomq.wire import audit as wire

Context = grpc.aio.ServicerContext[Any, Any]


class AuditServicer(audit_pb2_grpc.AuditServiceServicer):
    """Reads, and holds back what is read."""

    def __init__(self, auditing: AuditReads, pins: Pins) -> None:
        self._auditing = auditing
        self._pins = pins

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeResponse:
        return wire.describe_response(await self._auditing.describe())

    async def Pin(self, request: pb.PinRequest, context: Context) -> pb.PinResponse:
        return wire.pin_response(await self._pins.pin(*wire.pin_request(request)))

    async def RenewPin(self, request: pb.RenewPinRequest, context: Context) -> pb.RenewPinResponse:
        pin = await self._pins.renew(wire.pin_id(request.pin_id), wire.lease_s(request.lease))
        return pb.RenewPinResponse(start_offset=pin.start)

    async def Unpin(self, request: pb.UnpinRequest, context: Context) -> pb.UnpinResponse:
        return pb.UnpinResponse(held=await self._pins.unpin(wire.pin_id(request.pin_id)))

    async def DigestRange(self, request: pb.DigestRangeRequest, context: Context) -> AsyncIterator[pb.DigestRangeResponse]:
        start, end = PhysicalOffset(request.start_offset), PhysicalOffset(request.end_offset)
        async for digests in self._auditing.digests(start, end, request.salt, request.leaves):
            yield wire.digest_range_response(digests)

    async def ReadRange(self, request: pb.ReadRangeRequest, context: Context) -> AsyncIterator[pb.ReadRangeResponse]:
        async for piece in self._auditing.read(PhysicalOffset(request.start_offset), PhysicalOffset(request.end_offset)):
            yield wire.read_range_response(piece.start, piece.data)
