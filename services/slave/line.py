"""A stream to the master's ReplicationService, in values."""

import asyncio

import grpc.aio

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1.replication_pb2_grpc import ReplicationServiceStub
from dittomq.errors import OutOfReach
from dittomq.rpc.channel import Channels, typed
from dittomq.wire import replication as wire
from services.slave.stream import MasterSaid, SlaveSays


class ReplicationLine:
    """Opened when made; hang up when done."""

    def __init__(self, channels: Channels, address: str) -> None:
        self._address = address
        self._call = channels.stub(ReplicationServiceStub, address).Replicate()

    async def read(self) -> MasterSaid | None:
        """What the master says next, None when it has left."""
        try:
            frame = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise typed(error, self._address) from error
        return wire.master_event_from_pb(frame) if isinstance(frame, pb.ReplicateResponse) else None  # grpc.aio.EOF

    async def write(self, message: SlaveSays) -> None:
        """Say it."""
        try:
            await self._call.write(wire.slave_frame(message))
        except grpc.aio.AioRpcError as error:
            raise typed(error, self._address) from error
        except asyncio.InvalidStateError as error:
            raise OutOfReach(self._address, "the stream has ended") from error

    def hang_up(self) -> None:
        """End the stream."""
        self._call.cancel()
