"""Reads the copies of a cluster for comparison: who is registered, what each holds, digests and raw bytes of ranges."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import grpc.aio

from dittomq._pb.ditto.admin.v1 import admin_pb2, admin_pb2_grpc
from dittomq._pb.ditto.audit.v1 import audit_pb2, audit_pb2_grpc
from dittomq.copies import Pin, RangeDigests, ReplicaDescription
from dittomq.doors.clock import OsClock  # noqa: TID251  # a list of nodes has no age
from dittomq.errors import Unavailable
from dittomq.naming.route_cache import RouteCache
from dittomq.offsets import PhysicalOffset
from dittomq.rpc.channel import Channels, call, typed
from dittomq.wire import audit as wire


class NodeAddress(NamedTuple):
    """A registered broker node; `broker_id` is the one in its name, whatever a role change made of it, `address` where clients reach it."""

    broker: str
    broker_id: int
    cluster: str
    address: str

    @property
    def name(self) -> str:
        """ "broker/id"."""
        return f"{self.broker}/{self.broker_id}"


class ReplicaReader:
    """Asks nodes about their copies. Every failure is a DittoError; `deadline_s` bounds one call to a node, or one stream."""

    def __init__(self, channels: Channels, deadline_s: float) -> None:
        self._channels = channels
        self._deadline_s = deadline_s
        self._routes: dict[str, RouteCache] = {}

    async def nodes(self, nameservers: str) -> list[NodeAddress]:
        """All nodes that are registered with any nameserver of the cluster, in the order of broker name and id.

        `nameservers`: "host:port", several separated by commas. Raises Unavailable when none answers.
        """
        if nameservers not in self._routes:
            addresses = [each.strip() for each in nameservers.split(",") if each.strip()]
            self._routes[nameservers] = RouteCache(addresses, self._channels, OsClock())
        nodes = await self._routes[nameservers].brokers()
        return [NodeAddress(node.broker, node.named_id, node.cluster, node.address) for node in nodes]

    async def slaves_expected(self, node: NodeAddress) -> int:
        """How many slaves the node's configuration says its group has."""
        stub = admin_pb2_grpc.BrokerServiceStub(self._channels.to(node.address))
        status = await call(stub.GetHaStatus, admin_pb2.GetHaStatusRequest(), who=node.name, deadline_s=self._deadline_s)
        return int(status.replicas_expected)

    async def describe(self, node: NodeAddress) -> ReplicaDescription:
        """What the node holds now."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        message = await call(stub.Describe, audit_pb2.DescribeRequest(), who=node.name, deadline_s=self._deadline_s)
        return wire.replica_description(message)

    async def pin(self, node: NodeAddress, run: str, lease_s: float) -> Pin:
        """Let the node hold back its retention, from the first byte it has, until the lease ends."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        request = audit_pb2.PinRequest(run=run, lease=wire.lease(lease_s))
        return wire.pin(await call(stub.Pin, request, who=node.name, deadline_s=self._deadline_s))

    async def renew(self, node: NodeAddress, pin: Pin, lease_s: float) -> None:
        """Let a pin's lease begin anew. Raises SessionExpired when it has ended."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        request = audit_pb2.RenewPinRequest(pin_id=pin.pin_id, lease=wire.lease(lease_s))
        await call(stub.RenewPin, request, who=node.name, deadline_s=self._deadline_s)

    async def unpin(self, node: NodeAddress, pin: Pin) -> bool:
        """Give a pin up; whether it had held until now."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        answer = await call(stub.Unpin, audit_pb2.UnpinRequest(pin_id=pin.pin_id), who=node.name, deadline_s=self._deadline_s)
        return bool(answer.held)

    async def digests(self, node: NodeAddress, start: int, end: int, salt: int, *, leaves: bool) -> RangeDigests:
        """Digests of [start, end), which must lie in one segment."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        request = audit_pb2.DigestRangeRequest(start_offset=start, end_offset=end, salt=salt, leaves=leaves)
        try:
            answers = [wire.range_digests(message) async for message in stub.DigestRange(request, timeout=self._deadline_s)]
        except grpc.aio.AioRpcError as error:
            raise typed(error, node.name) from error
        if len(answers) != 1 or (answers[0].start, answers[0].end) != (start, end):
            raise Unavailable(node.name, f"it answered for other bytes than [{start:,}, {end:,})")
        return answers[0]

    async def read(self, node: NodeAddress, start: int, end: int) -> AsyncIterator[bytes]:
        """The raw bytes of [start, end) in pieces, all of them or an error; at most 64 MiB."""
        stub = audit_pb2_grpc.AuditServiceStub(self._channels.to(node.address))
        request = audit_pb2.ReadRangeRequest(start_offset=start, end_offset=end)
        at = PhysicalOffset(start)
        try:
            async for piece in stub.ReadRange(request, timeout=self._deadline_s):
                if piece.offset != at:
                    raise Unavailable(node.name, f"it sent byte {piece.offset:,} where {at:,} was next")
                at = PhysicalOffset(at + len(piece.data))
                yield piece.data
        except grpc.aio.AioRpcError as error:
            raise typed(error, node.name) from error
        if at != end:
            raise Unavailable(node.name, f"it sent {at - start:,} bytes of [{start:,}, {end:,})")
