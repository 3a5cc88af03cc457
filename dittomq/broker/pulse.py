"""A pulse: it is set once, and wakes all who wait for it. Thousands of held pulls wait, so a wait is a future and a timer, and no more."""

import asyncio


class GrowthPulse:
    """Not set when made."""

    __slots__ = ("__weakref__", "_waiting", "is_set")

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self.is_set = False

    def set(self) -> None:
        """Wake everybody, once for all."""
        self.is_set = True
        for waiter in self._waiting:
            _wake(waiter)

    async def wait(self, seconds: float | None = None) -> None:
        """Return when it is set, or after so many seconds; None: however long that takes."""
        if self.is_set:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if timer is not None:
                timer.cancel()


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
