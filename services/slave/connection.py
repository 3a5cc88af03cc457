"""A stream to the master's ReplicationService, in values."""

import asyncio

import grpc.aio

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq._pb.ditto.replication.v1.replication_pb2_grpc import ReplicationServiceStub
from dittomq.errors import Unavailable
from dittomq.replication.events import Goodbye
from dittomq.rpc.channel import Channels, breaking, peers_disk
from dittomq.wire import replication as wire
from services.slave.replication_stream import FromMaster, FromSlave

_Call = grpc.aio.StreamStreamCall[pb.ReplicateRequest, pb.ReplicateResponse]


class ReplicationConnection:
    """Opened by the first word on it, for a master does not wait long for a handshake, which may take long to make; hang up when done."""

    def __init__(self, channels: Channels, address: str) -> None:
        self._address = address
        self._channels = channels
        self._opened: _Call | None = None
        self._breaking = breaking(address)
        self._peers_disk = peers_disk(address)

    async def read(self) -> FromMaster | None:
        """What the master says next, None when it has left."""
        with self._peers_disk, self._breaking:
            frame = await self._call.read()
        return wire.master_event_from_pb(frame) if isinstance(frame, pb.ReplicateResponse) else None  # grpc.aio.EOF

    async def write(self, message: FromSlave) -> None:
        """Say it."""
        try:
            with self._peers_disk, self._breaking:
                await self._call.write(wire.slave_frame(message))
        except asyncio.InvalidStateError as error:
            raise Unavailable(self._address, "the stream has ended") from error

    async def send_goodbye(self) -> None:
        """This node stops, and the master need not wait for it: it ends the stream then."""
        if self._opened is not None:
            with self._breaking:
                await self._opened.write(wire.slave_frame(Goodbye()))

    def hang_up(self) -> None:
        """End the stream."""
        if self._opened is not None:
            self._opened.cancel()

    @property
    def _call(self) -> "_Call":
        if self._opened is None:
            self._opened = self._channels.stub(ReplicationServiceStub, self._address).Replicate()
        return self._opened
