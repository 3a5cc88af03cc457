"""What a consumer's queues bring and its caller has not had yet: a bounded number of messages."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class MessageBuffer(Generic[T]):
    """First in, first out. Those who bring some wait in turn for room, and go on when half of it is free: not once for each message."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: deque[T] = deque()
        self._bringing: deque[asyncio.Future[None]] = deque()  # who waits for room, in turn
        self._is_one_let_in = False  # and has not come yet
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_full(self) -> bool:
        """Whether `put` must wait for `room`."""
        return len(self._items) >= self._most

    def put(self, item: T) -> None:
        """Add one; the caller has seen that there is room."""
        self._items.append(item)
        if not self._news.is_set():
            self._news.set()

    async def room(self) -> None:
        """Return when there is room and everybody who waited before had a turn."""
        place = len(self._bringing)
        while self.is_full or place:
            turn = asyncio.get_running_loop().create_future()
            self._bringing.insert(place, turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._bringing = deque(each for each in self._bringing if each is not turn)
                else:
                    self._is_one_let_in = False
                    self._let_in()  # the next one, instead
                raise
            self._is_one_let_in, place = False, 0  # whoever comes too late for the room goes before those who wait

    def take(self) -> T | None:
        """The first one; None where there is none now."""
        if not self._items:
            return None
        item = self._items.popleft()
        if 2 * len(self._items) <= self._most:
            self._let_in()
        return item

    async def wait(self) -> None:
        """Return when something came since there was none, or somebody called `wake`."""
        if not self._items:
            self._news.clear()
        await self._news.wait()

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._news.set()

    def _let_in(self) -> None:
        """One at a time: the others have their turn when it has brought what there is room for, or all that it has."""
        while self._bringing and not self._is_one_let_in:
            turn = self._bringing.popleft()
            if not turn.done():  # it was cancelled
                turn.set_result(None)
                self._is_one_let_in = True
