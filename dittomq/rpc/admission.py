"""What calls hold of a node's memory: answers that their callers have not taken yet, and requests that nobody has dealt with.

So many bytes for each connection, and so many in all.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

import grpc.aio

from dittomq.errors import InvalidField, LimitReached
from dittomq.reads import MAX_PULL_BYTES
from dittomq.rpc.permits import check_permitted

Context = grpc.aio.ServicerContext[Any, Any]

CONNECTION_BYTES = 4 * MAX_PULL_BYTES
_PAGE_BYTES = MAX_PULL_BYTES  # more than all but strange tables have on a page
_REQUEST_BYTES = 1024 * 1024  # of a request that has not come yet; so much of it may wait in the window of its stream anyway
_MOST_BYTES = 128 * 1024 * 1024
_PART_OF_MEMORY = 16  # an answer or a request lies in memory three times: as messages, encoded, and in what gRPC sends or has received
_COMES_WITHIN_S = 60.0  # 4 MiB take 34 s over a line of 1 Mbit/s; room is held for them meanwhile
_WAIT_S = 2.0  # less than clients add to the wait that they ask for


class Sized(Protocol):
    """A message that knows how long it is, as gRPC's do."""

    def ByteSize(self) -> int:  # noqa: N802  # protobuf's name
        """Its length in bytes, encoded."""


_A = TypeVar("_A", bound=Sized)


class AdmissionControl:
    """Grants room first come first served; a connection that has all of its part waits, and holds up no other.

    Who waits is bounded by the calls that a connection may have. One page, or one request, a connection may always have, whatever others
    hold: a few that never read keep nobody from a route.
    """

    def __init__(self, memory_bytes: int, what: str = "answers that nobody has read", wait_s: float = _WAIT_S) -> None:
        """Who waits for longer than `wait_s` is refused, and told `what` it is that the memory is for."""
        self._what = what
        self._wait_s = wait_s
        self._limit = min(max(CONNECTION_BYTES, memory_bytes // _PART_OF_MEMORY), _MOST_BYTES)
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[Share]] = {}
        self.taken = 0

    async def take(self, connection: str, size: int, *, always_one: bool = False) -> "Share":
        """Room for `size` bytes, at most MAX_PULL_BYTES; LimitReached when there is none in time. The caller gives it back."""
        share = Share(self, connection, size, always_one=always_one)
        self._waiting.setdefault(connection, deque()).append(share)
        self._admit()
        if not share.is_admitted:
            await self._wait_for(share)
        return share

    def page(self, connection: str) -> AbstractAsyncContextManager["Share"]:
        """Room for a page of a table or a list, to be made and yielded inside the block: that ends when the answer is sent.

        Raises LimitReached.
        """
        return self._held(connection, _PAGE_BYTES)

    @contextlib.asynccontextmanager
    async def request(self, context: Context) -> AsyncIterator[Any]:
        """The only request of a call, taken in when there is room, and held until the block ends.

        Raises LimitReached, InvalidField, and PermissionDenied for one that its caller may not make.
        """
        async with self._held(context.peer(), _REQUEST_BYTES) as share:
            request = share.of(await _only_request(context))
            check_permitted(request)
            yield request

    def count(self, connection: str, change: int) -> None:
        """So many bytes more, or less, are taken by this connection."""
        self.taken += change
        self._taken[connection] = self._taken.get(connection, 0) + change
        if not self._taken[connection]:
            del self._taken[connection]
        if change < 0:
            self._admit()

    @contextlib.asynccontextmanager
    async def _held(self, connection: str, size: int) -> AsyncIterator["Share"]:
        share = await self.take(connection, size, always_one=True)
        try:
            yield share
        finally:
            share.give_back()

    async def _wait_for(self, share: "Share") -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await share.admission()
        except BaseException as left:
            if share.is_admitted:
                share.give_back()
            else:
                self._remove(share)
            if isinstance(left, TimeoutError):
                raise LimitReached(f"the memory for {self._what}", self._limit) from None
            raise

    def _remove(self, share: "Share") -> None:
        queue = self._waiting[share.connection]
        queue.remove(share)
        if not queue:
            del self._waiting[share.connection]

    def _admit(self) -> None:
        while (share := self._next()) is not None:
            queue = self._waiting.pop(share.connection)
            queue.popleft()
            if queue:
                self._waiting[share.connection] = queue  # behind the other connections now
            self.count(share.connection, share.size)
            share.admit()

    def _next(self) -> "Share | None":
        """The first one whose connection has room, if the node has; else what a connection that holds nothing may always have."""
        node_is_full = False
        for connection, queue in self._waiting.items():
            share, taken = queue[0], self._taken.get(connection, 0)
            if not node_is_full and taken + share.size <= CONNECTION_BYTES:
                node_is_full = self.taken + share.size > self._limit
                if not node_is_full:
                    return share
            if share.always_one and not taken:
                return share
        return None


class Share:
    """What one answer, or one request, takes of the room, until it is given back."""

    def __init__(self, room: AdmissionControl, connection: str, size: int, *, always_one: bool) -> None:
        self.connection = connection
        self.always_one = always_one
        self.size = size
        self.is_admitted = False
        self._admitted: asyncio.Event | None = None  # where somebody waits
        self._room = room

    def admit(self) -> None:
        """It has its room."""
        self.is_admitted = True
        if self._admitted is not None:
            self._admitted.set()

    async def admission(self) -> None:
        """Return when it has."""
        self._admitted = asyncio.Event()
        await self._admitted.wait()

    def settle(self, size: int) -> None:
        """Take as much as it came to: mostly less than was asked for, and more where a single message is larger."""
        change, self.size = size - self.size, size
        self._room.count(self.connection, change)

    def of(self, message: _A) -> _A:
        """That message, which takes as much as it is long."""
        self.settle(message.ByteSize())
        return message

    def give_back(self) -> None:
        """The answer is taken, or will not be."""
        self.settle(0)


async def _only_request(context: Context) -> Any:
    """It is not asked for by iteration: an iterator would hold it for as long as the call lasts."""
    try:
        async with asyncio.timeout(_COMES_WITHIN_S):
            request = await context.read()
    except TimeoutError:
        raise InvalidField("request", f"did not come within {_COMES_WITHIN_S:g} s") from None
    if request is grpc.aio.EOF:
        raise InvalidField("request", "is missing; a call of this method has one")
    return request
