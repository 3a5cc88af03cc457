"""Bare gRPC: `python -m bench.clients.bare FILE` streams the frames of a file as they are, and holds calls that it never answers.

It prints its port, and has the product's options and loop, and nothing else: no log, no queue, no check.
"""

import asyncio
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import uvloop

from dittomq.rpc.buffers import keep_buffers
from dittomq.rpc.server import SERVER_OPTIONS

READ = "/bench.Bare/Read"
HOLD = "/bench.Bare/Hold"
_LENGTH = struct.Struct(">I")
_END_S = 10.0

Context = grpc.aio.ServicerContext[bytes, bytes]


def unchanged(data: bytes) -> bytes:
    """Frames travel as they are."""
    return data


def write_frames(file: Path, frames: Sequence[bytes]) -> None:
    """Let a server have them."""
    file.write_bytes(b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames))


def _read_frames(file: Path) -> Iterator[bytes]:
    data, at = file.read_bytes(), 0
    while at < len(data):
        start = at + _LENGTH.size
        at = start + _LENGTH.unpack_from(data, at)[0]
        yield data[start:at]


class Bare:
    """Both methods."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = frames

    async def read(self, _: bytes, context: Context) -> None:
        """All frames, once."""
        for frame in self._frames:
            await context.write(frame)

    async def hold(self, _: bytes, __: Context) -> bytes:
        """Never answer."""
        await asyncio.Event().wait()
        return b""


@contextmanager
def bare_server(file: Path) -> Iterator[tuple[str, int]]:
    """A server of that file's frames, ended on leaving; its address and its process."""
    process = subprocess.Popen([sys.executable, "-m", "bench.clients.bare", str(file)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError("the bare server ended before it printed its port; see what it wrote above")
        yield f"127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait(_END_S)


async def _serve(file: Path) -> None:
    bare = Bare(list(_read_frames(file)))
    server = grpc.aio.server(options=list(SERVER_OPTIONS))
    methods: dict[str, Any] = {
        "Read": grpc.unary_stream_rpc_method_handler(bare.read, unchanged, unchanged),
        "Hold": grpc.unary_unary_rpc_method_handler(bare.hold, unchanged, unchanged),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bare", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    keep_buffers()  # as the product's processes do
    uvloop.run(_serve(Path(sys.argv[1])))
