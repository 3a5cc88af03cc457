"""Group records on one named nameserver: `ditto.coordination.v1.CoordinationService`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from dittomq._pb.ditto.coordination.v1 import coordination_pb2 as pb
from dittomq._pb.ditto.coordination.v1.coordination_pb2_grpc import CoordinationServiceStub
from dittomq.coordination.endpoints import EndpointConnection, Endpoints
from dittomq.coordination.of_group import of_group
from dittomq.doors.coordination import GroupKey, Versioned, WriteOutcome, WriteUnknown
from dittomq.errors import Unavailable
from dittomq.group_record import GroupRecord
from dittomq.rpc.channel import breaking, call, peers_disk
from dittomq.wire import coordination as wire

T = TypeVar("T")


class NameserverCoordination:
    """A CoordinationStore. While the nameserver is away, nobody is elected."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints

    @property
    def name(self) -> str:
        return self._endpoints.name

    async def read(self, key: GroupKey) -> Versioned | None:
        line = await self._endpoints.connected()
        response: pb.GetResponse = await self._call(line, line.stub(CoordinationServiceStub).Get, wire.get_request(key))
        return of_group(wire.versioned(response, self.name), key, self.name)

    async def write(self, key: GroupKey, record: GroupRecord, expected: Versioned | None) -> WriteOutcome:
        return await self._compare_and_set(wire.compare_and_set_request(key, record, expected))

    async def delete(self, key: GroupKey, expected: Versioned) -> WriteOutcome:
        return await self._compare_and_set(wire.compare_and_set_request(key, None, expected))

    async def watch(self, key: GroupKey) -> AsyncIterator[None]:
        line = await self._endpoints.connected()
        with peers_disk(self.name), breaking(self.name):
            hints: Any = line.stub(CoordinationServiceStub).Watch(wire.watch_request(key))
            try:
                async for _ in hints:
                    yield
            finally:
                hints.cancel()

    async def show_role(self, role: str) -> None:
        return

    async def close(self) -> None:
        await self._endpoints.close()

    async def _compare_and_set(self, request: pb.CompareAndSetRequest) -> WriteOutcome:
        line = await self._endpoints.connected()
        try:
            response: pb.CompareAndSetResponse = await self._call(line, line.stub(CoordinationServiceStub).CompareAndSet, request)
        except Unavailable as error:
            return WriteUnknown(str(error))
        return wire.write_outcome(response, deletes=not request.record)

    async def _call(self, line: EndpointConnection, method: Callable[..., Awaitable[T]], request: object) -> T:
        """One call on an open connection. Raises Unavailable where it may have been obeyed; other errors are refusals."""
        try:
            with peers_disk(self.name):
                return await call(method, request, who=self.name, deadline_s=line.left_s)
        except Unavailable:
            await self._endpoints.failed(line.address)
            raise
