"""The least code that moves and flushes the same bytes: raw frames on gRPC streams, `pwrite` and `fdatasync` at both ends.

`python -m bench.least FILE [SLAVE_ADDRESS]` serves a slave, or a master that has one, and prints its port. It keeps no format,
no checksums, no queues, no receipts, refuses nothing and recovers nothing: it is the floor that a broker with all of these is measured
against. Like the product it writes all that waits as one group, sends it on while it is synced, and takes the next group meanwhile.
"""

import asyncio
import os
import struct
import sys
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import grpc.aio
import uvloop

from dittomq.rpc.buffers import keep_buffers
from dittomq.rpc.channel import CHANNEL_OPTIONS
from dittomq.rpc.server import SERVER_OPTIONS

APPEND = "/bench.Least/Append"
READ = "/bench.Least/Read"
CHUNK_BYTES = 1024 * 1024
FILE_BYTES = 4 * 1024 * 1024 * 1024
_COUNT = struct.Struct(">q")

Context = grpc.aio.ServicerContext[bytes, bytes]


def unchanged(data: bytes) -> bytes:
    """Frames travel as they are."""
    return data


def open_preallocated(path: str, size: int) -> int:
    """A descriptor of a new file of that size, as sparse as a new segment of the product."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(descriptor, size)
    return descriptor


class Disk:
    """A preallocated file, written and synced by one thread."""

    def __init__(self, path: str) -> None:
        self._descriptor = open_preallocated(path, FILE_BYTES)
        self._at = 0
        self._thread = ThreadPoolExecutor(1)

    async def append(self, frames: list[bytes]) -> None:
        """Write all frames and sync once."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._append, frames)

    def _append(self, frames: list[bytes]) -> None:
        data = frames[0] if len(frames) == 1 else b"".join(frames)
        os.pwrite(self._descriptor, data, self._at)
        self._at += len(data)
        os.fdatasync(self._descriptor)


class Backlog:
    """Frames that wait; whoever takes them takes all."""

    def __init__(self) -> None:
        self._frames: list[bytes] = []
        self._arrived = asyncio.Event()

    def put(self, frame: bytes) -> None:
        self._frames.append(frame)
        self._arrived.set()

    async def take(self) -> list[bytes]:
        """All that wait, at least one."""
        await self._arrived.wait()
        self._arrived.clear()
        frames, self._frames = self._frames, []
        return frames


class LeastAppender:
    """Group commit here, and onward to a slave when there is one; frames are done in their order."""

    def __init__(self, disk: Disk, onward: "grpc.aio.StreamStreamCall[bytes, bytes] | None") -> None:
        self._disk = disk
        self._onward = onward
        self._to_write = Backlog()
        self._to_send = Backlog()
        self._taken = self._flushed = self._acked = self._done = 0  # in bytes of the stream
        self._waiting: deque[tuple[int, asyncio.Event]] = deque()

    async def append(self, frame: bytes) -> None:
        """Return when the frame is flushed here and there."""
        done = asyncio.Event()
        self._taken += len(frame)
        self._waiting.append((self._taken, done))
        self._to_write.put(frame)
        if self._onward is not None:
            self._to_send.put(frame)
        await done.wait()

    async def run(self) -> None:
        """Write and send groups until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write())
            if self._onward is not None:
                tasks.create_task(self._send(self._onward))
                tasks.create_task(self._hear(self._onward))

    async def _write(self) -> None:
        while True:
            frames = await self._to_write.take()
            await self._disk.append(frames)
            self._flushed += sum(map(len, frames))
            self._release()

    async def _send(self, onward: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        while True:
            frames = await self._to_send.take()
            await onward.write(frames[0] if len(frames) == 1 else b"".join(frames))

    async def _hear(self, onward: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        while True:
            ack: Any = await onward.read()
            self._acked += _COUNT.unpack(ack)[0]
            self._release()

    def _release(self) -> None:
        done = self._flushed if self._onward is None else min(self._flushed, self._acked)
        while self._waiting and self._waiting[0][0] <= done:
            self._waiting.popleft()[1].set()


class Least:
    """Both methods."""

    def __init__(self, appender: LeastAppender) -> None:
        self._appender = appender

    async def append(self, frames: AsyncIterator[bytes], context: Context) -> None:
        """Answer each frame, in order, with its size."""
        writing = asyncio.Lock()

        async def answer(frame: bytes) -> None:
            await self._appender.append(frame)
            async with writing:
                await context.write(_COUNT.pack(len(frame)))

        async with asyncio.TaskGroup() as tasks:
            async for frame in frames:
                tasks.create_task(answer(frame))

    async def read(self, request: bytes, context: Context) -> None:
        """As many bytes as asked for, in chunks of 1 MiB."""
        (remaining,) = _COUNT.unpack(request)
        chunk = bytes(CHUNK_BYTES)
        while remaining > 0:
            await context.write(chunk[:remaining])
            remaining -= CHUNK_BYTES


def read_request(size: int) -> bytes:
    """Asks for that many bytes."""
    return _COUNT.pack(size)


async def serve(path: str, slave: str) -> None:
    """Serve one role until killed."""
    async with AsyncExitStack() as stack:
        onward: Any = None
        if slave:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(slave, options=list(CHANNEL_OPTIONS)))
            onward = channel.stream_stream(APPEND, request_serializer=unchanged, response_deserializer=unchanged)()
        appender = LeastAppender(Disk(path), onward)
        least = Least(appender)
        server = grpc.aio.server(options=list(SERVER_OPTIONS))
        methods = {
            "Append": grpc.stream_stream_rpc_method_handler(least.append, unchanged, unchanged),
            "Read": grpc.unary_stream_rpc_method_handler(least.read, unchanged, unchanged),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Least", methods),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await appender.run()


if __name__ == "__main__":
    keep_buffers()  # as the product's processes do
    uvloop.run(serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""))
