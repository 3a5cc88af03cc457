"""The floor's processes, and the three things they are asked for: moved frames, a stream of chunks, a written file."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc.aio

from bench.least import APPEND, CHUNK_BYTES, READ, open_preallocated, read_request, unchanged
from dittomq.rpc.channel import CHANNEL_OPTIONS

_END_S = 10.0


@contextmanager
def least_pair(folder: Path) -> Iterator[str]:
    """A master and its slave, ended on leaving; the master's address."""
    with _process(folder / "least-slave", "") as slave, _process(folder / "least-master", slave) as master:
        yield master


@contextmanager
def _process(file: Path, slave: str) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.least", str(file), slave],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"GRPC_VERBOSITY": "NONE"},
    )
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the floor's server ended before it printed its port; see what it wrote above")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(_END_S)
        file.unlink(missing_ok=True)


class Floor:
    """A connection to the floor's master."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel
        self._stream: Any = channel.stream_stream(APPEND, request_serializer=unchanged, response_deserializer=unchanged)()

    async def round_trip(self, frame: bytes) -> None:
        """Send one frame and wait until it is flushed on both."""
        await self._stream.write(frame)
        await self._stream.read()

    async def call_times(self, frame: bytes, calls: int) -> list[float]:
        """Milliseconds of as many round trips, one after the other."""
        times = []
        for _ in range(calls):
            began = time.perf_counter()
            await self.round_trip(frame)
            times.append((time.perf_counter() - began) * 1000)
        return times

    async def publish(self, frame: bytes, *, tasks: int, rounds: int) -> float:
        """Send `tasks` × `rounds` frames, `tasks` of them in flight; the seconds until the last is flushed on both."""
        room = asyncio.Semaphore(tasks)
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._send(frame, tasks * rounds, room))
            group.create_task(self._hear(tasks * rounds, room))
        return time.perf_counter() - began

    async def _send(self, frame: bytes, count: int, room: asyncio.Semaphore) -> None:
        for _ in range(count):
            await room.acquire()
            await self._stream.write(frame)

    async def _hear(self, count: int, room: asyncio.Semaphore) -> None:
        for _ in range(count):
            await self._stream.read()
            room.release()

    async def stream(self, size: int) -> float:
        """The seconds a bare server stream of 1 MiB chunks takes for that many bytes."""
        call: Any = self._channel.unary_stream(READ, request_serializer=unchanged, response_deserializer=unchanged)
        began = time.perf_counter()
        received = 0
        async for chunk in call(read_request(size)):
            received += len(chunk)
        if received < size:
            raise RuntimeError(f"the floor sent {received:,} of {size:,} bytes")
        return time.perf_counter() - began


@asynccontextmanager
async def floor_at(address: str) -> AsyncIterator[Floor]:
    """Connected, until left."""
    async with grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS)) as channel:
        await channel.channel_ready()
        yield Floor(channel)


def write_raw(file: Path, size: int) -> float:
    """The seconds it takes to write that many bytes into a preallocated file, synced after each 1 MiB."""
    chunk = os.urandom(CHUNK_BYTES)
    descriptor = open_preallocated(str(file), size)
    try:
        began = time.perf_counter()
        for at in range(0, size, CHUNK_BYTES):
            os.pwrite(descriptor, chunk[: size - at], at)
            os.fdatasync(descriptor)
        return time.perf_counter() - began
    finally:
        os.close(descriptor)
        file.unlink()
