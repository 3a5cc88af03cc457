"""A thread with an event loop, for callers that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for any number of threads. Not to be called from code that itself runs on the loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the loop and the thread; nothing may run on it any more."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end; a caller that is interrupted cancels it."""
        future = self.begin(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start without waiting."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, work: Callable[[], object]) -> None:
        """Call on the loop, later."""
        self._loop.call_soon_threadsafe(work)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())


class Held(Generic[T]):
    """An async context manager that one task of the loop enters and leaves: task groups insist on that."""

    def __init__(self, thread: LoopThread, manager: AbstractAsyncContextManager[T]) -> None:
        self._thread = thread
        self._manager = manager
        self._entered: Future[T] = Future()
        self._leave: asyncio.Future[None] | None = None
        self._done: Future[None] | None = None

    def enter(self) -> T:
        """Enter; the value of the context manager."""
        self._done = self._thread.begin(self._hold())
        return self._entered.result()

    def exit(self, error: BaseException | None) -> None:
        """Leave with the error that the block raised, or with none; raises what leaving raises, but not that error again."""
        assert self._leave is not None  # entered
        assert self._done is not None
        leave = self._leave
        self._thread.call_soon(lambda: leave.set_exception(_Raised(error)) if error is not None else leave.set_result(None))
        try:
            self._done.result()
        except _Raised:
            return

    async def _hold(self) -> None:
        self._leave = asyncio.get_running_loop().create_future()
        try:
            async with self._manager as value:
                self._entered.set_result(value)
                await self._leave
        except BaseException as error:
            if not self._entered.done():
                self._entered.set_exception(error)
            raise


class _Raised(Exception):  # carries another error into the loop
    """The block raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
