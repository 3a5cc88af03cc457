"""A master that says what it is told to, at the far end of a slave's real stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from dittomq._pb.ditto.replication.v1 import replication_pb2 as pb
from dittomq.replication.events import Chunk, HandshakeResult, Heartbeat, LeafProbe
from dittomq.rpc.channel import Channels
from dittomq.wire import replication as wire


class ScriptedMaster(Channels):
    """Takes the place of a slave's channels. `said` is what slaves say, all streams one after the other; `handshakes` their first
    frames."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[Any] = asyncio.Queue()
        self.gives_up = False  # the next stream, before it is connected
        self._frames: asyncio.Queue[pb.ReplicateResponse | None] = asyncio.Queue()

    def stub(self, kind: Callable[..., Any], address: str) -> Any:
        """Its only service is this one."""
        return self

    def Replicate(self) -> "ScriptedMaster":
        """The next stream."""
        self._frames = asyncio.Queue()
        return self

    async def FetchLogStart(self, request: pb.FetchLogStartRequest, timeout: float) -> AsyncIterator[pb.FetchLogStartResponse]:
        """Its log begins at 0."""
        yield pb.FetchLogStartResponse()

    def say(self, *messages: HandshakeResult | Chunk | Heartbeat | LeafProbe) -> None:
        """Say all of it on the stream that is open."""
        for message in messages:
            self.say_frame(pb.ReplicateResponse.FromString(wire.master_frame(message, 0)))

    def say_frame(self, frame: pb.ReplicateResponse) -> None:
        """The same for what may be no message."""
        self._frames.put_nowait(frame)

    def leave(self) -> None:
        """End the stream."""
        self._frames.put_nowait(None)

    async def read(self) -> pb.ReplicateResponse | None:
        """What the slave reads; of a stream that is given up, gRPC says that it was cancelled."""
        if self.gives_up:
            self.gives_up = False
            raise asyncio.CancelledError
        return await self._frames.get()

    async def write(self, frame: pb.ReplicateRequest) -> None:
        """What the slave says; on a stream that is given up before it is connected, gRPC lets it wait for ever."""
        if self.gives_up:
            await asyncio.get_running_loop().create_future()
        self.said.put_nowait(wire.slave_event_from_pb(frame))

    def cancel(self) -> None:
        """The slave has hung up."""

    async def forget(self, address: str) -> None:
        """The slave dials anew each time."""
