"""A client that asks for pages and reads none of them."""

import asyncio
from typing import Any

import grpc.aio

from dittomq.rpc.admission import CONNECTION_BYTES
from tests.support.waiting import PATIENCE_S

_WINDOW_BYTES = 65_535  # HTTP/2's own


async def refused_when_unread(address: str, method: str, request: Any) -> None:
    """Ask for more of these answers than a connection may leave unread: the rest is refused, and another connection is answered.

    They must be long: what fits the window of a stream is at the client, and none of the server's memory.
    """
    async with (
        grpc.aio.insecure_channel(address, [("grpc.http2.bdp_probe", 0)]) as deaf,  # a small window: soon full
        grpc.aio.insecure_channel(address) as other,
    ):
        read: Any = other.unary_unary(f"/{method}")
        ask: Any = deaf.unary_stream(f"/{method}")
        size = len(await read(request.SerializeToString(), timeout=PATIENCE_S))
        assert size > _WINDOW_BYTES
        unread = [ask(request.SerializeToString(), timeout=PATIENCE_S) for _ in range(CONNECTION_BYTES // size + 5)]
        codes = {asyncio.create_task(each.code()) for each in unread}
        waiting = codes
        while len(waiting) * size > CONNECTION_BYTES:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

        assert {code.result() for code in codes - waiting} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert waiting
        assert len(await read(request.SerializeToString(), timeout=PATIENCE_S)) == size
        for code in waiting:
            code.cancel()
