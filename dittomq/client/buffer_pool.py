"""A bound on bytes that wait: who brings more waits in turn until there is room."""

import asyncio
from collections import deque


class BufferPool:
    """At most `limit` bytes at once; one message larger than that passes alone."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()  # callers of `take`, the first come first

    def has_room(self, size: int) -> bool:
        """`take` would not wait."""
        return not self._queue and (self._used == 0 or self._used + size <= self._limit)

    async def take(self, size: int) -> None:
        """Wait for room, in the order of the calls."""
        if self.has_room(size):
            self._used += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """These bytes wait no longer."""
        self._used -= size
        while self._queue:
            wanted, turn = self._queue[0]
            if turn.cancelled():
                self._queue.popleft()
            elif self._used == 0 or self._used + wanted <= self._limit:
                self._queue.popleft()
                self._used += wanted
                turn.set_result(None)
            else:
                return
