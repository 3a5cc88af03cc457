"""The least code that moves and flushes the same bytes: raw frames on gRPC streams, `pwrite` and `fdatasync` at both ends.

`python -m bench.least serve FILE [SLAVE_ADDRESS]` serves a slave, or a master that has one, and prints its port. It keeps no format, no checksums,
no queues, no receipts, and recovers nothing: it is the floor that a broker with all of these is measured against.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import grpc.aio

PREALLOCATED_BYTES = 4 * 1024 * 1024 * 1024
OPTIONS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
METHOD = "/bench.Least/Append"


def identity(data: bytes) -> bytes:
    """Frames travel as they are."""
    return data


class Disk:
    """One preallocated file, written and synced by one thread."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._descriptor, PREALLOCATED_BYTES)
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


class Appender:
    """Group commit: all frames that wait are written together, and sent on together when there is somebody to send to."""

    def __init__(self, disk: Disk, onward: "grpc.aio.StreamStreamCall[bytes, bytes] | None") -> None:
        self._disk = disk
        self._onward = onward
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._arrived = asyncio.Event()

    async def append(self, frame: bytes) -> None:
        """Return when the frame is flushed here and there."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((frame, done))
        self._arrived.set()
        await done

    async def run(self) -> None:
        """Write groups until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch, self._waiting = self._waiting, []
            frames = [frame for frame, _ in batch]
            if self._onward is None:
                await self._disk.append(frames)
            else:
                await asyncio.gather(self._disk.append(frames), self._send_on(frames))
            for _, done in batch:
                done.set_result(None)

    async def _send_on(self, frames: list[bytes]) -> None:
        assert self._onward is not None
        await self._onward.write(b"".join(frames))
        await self._onward.read()


async def serve(path: str, slave: str) -> None:
    """Serve one role until killed."""
    onward = None
    if slave:
        channel = grpc.aio.insecure_channel(slave, options=OPTIONS)
        onward = channel.stream_stream(METHOD, request_serializer=identity, response_deserializer=identity)()
    appender = Appender(Disk(path), onward)

    async def append(frames: AsyncIterator[bytes], context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        async with asyncio.TaskGroup() as tasks:
            async for frame in frames:
                tasks.create_task(answer(frame, context))

    async def answer(frame: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> None:
        await appender.append(frame)
        await context.write(b"\x01")

    server = grpc.aio.server(options=OPTIONS)
    handler = grpc.stream_stream_rpc_method_handler(append, identity, identity)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Least", {"Append": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await appender.run()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
