"""Pages that come before anybody wants them: a stream of pulls from the node that had the last page."""

import asyncio
from dataclasses import replace
from typing import Any, Final

import grpc.aio

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb
from dittomq.errors import Unavailable
from dittomq.reads import PullRequest
from dittomq.routes import Node

_COMES_WITHIN_S: Final = 3.0

Answer = tuple[pb.PullResponse | pb.PullStreamResponse, dict[str, Any]]
"""What a node answers, and its headers."""


class ReadAhead:
    """A stream that goes on where an answer ended. Its node makes one answer, and no more, before the last one is taken."""

    def __init__(self, node: Node, order: PullRequest, stream: Any) -> None:
        self._node = node
        self._order = _asked(order)
        self._stream = stream
        self._headers: dict[str, Any] | None = None

    def has(self, node: Node, order: PullRequest) -> bool:
        """Whether its next answer is what that node is to be asked for."""
        return order.offset == self._order.offset and node == self._node and _asked(order) == self._order

    async def next(self, who: str) -> Answer | None:
        """The next answer, and the headers of the stream; None where that has ended, for whatever reason: the node is to be asked anew.

        Raises Unavailable where nothing comes.
        """
        try:
            async with asyncio.timeout(_COMES_WITHIN_S):
                response: Any = await self._stream.read()
                if self._headers is None:
                    self._headers = dict(await self._stream.initial_metadata() or ())
        except TimeoutError:
            raise Unavailable(who, f"no answer came within {_COMES_WITHIN_S:g} s") from None
        except grpc.aio.AioRpcError:
            return None
        if response is grpc.aio.EOF:
            return None
        self._order = replace(self._order, offset=response.next_offset)
        return response, self._headers

    def leave(self) -> None:
        """Nobody wants more of it."""
        self._stream.cancel()


def _asked(order: PullRequest) -> PullRequest:
    """What a stream is compared by: it waits by itself, and knows in which epoch it read."""
    return replace(order, wait_s=0.0, epoch=None)
