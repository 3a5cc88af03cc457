"""A thread with an event loop, for callers that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from dittomq.errors import InvalidField, Unavailable

T = TypeVar("T")


class SyncBridge:
    """Runs coroutines for any number of threads. Not to be called from code that itself runs on the loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._lock = threading.RLock()  # of whoever hands something to the loop, so that nothing comes behind its end
        self._runs = False
        self.blocks: WeakSet[asyncio.Task[Any]] = WeakSet()
        """Tasks that hold a context manager open."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()
        self._runs = True

    def stop(self) -> None:
        """End what still runs, the loop and the thread."""
        with self._lock:
            self._runs = False
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end; a caller that is interrupted cancels it. Raises InvalidField unless started, Unavailable if stopped meanwhile."""
        future = self.begin(work)
        try:
            return future.result()
        except CancelledError as stopped:
            raise left_meanwhile() from stopped
        except BaseException:
            future.cancel()
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start without waiting; raises InvalidField unless started."""
        with self._lock:
            if self._runs:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise InvalidField("client", "is not open; use it, and all that is made of it, inside its block: with Client(…) as mq")

    def call_soon(self, work: Callable[[], object]) -> None:
        """Call on the loop, later; never when that is stopped."""
        with self._lock:
            if self._runs:
                self._loop.call_soon_threadsafe(work)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())

    async def _end(self) -> None:
        """Blocks are ended first: a producer's block settles what it has, so that whoever waits for that hears it."""
        await _cancel(self.blocks)
        await _cancel(asyncio.all_tasks() - {asyncio.current_task()})
        await self._loop.shutdown_asyncgens()


async def _cancel(tasks: Iterable[asyncio.Task[Any]]) -> None:
    doomed = list(tasks)
    for task in doomed:
        task.cancel()
    if doomed:
        await asyncio.wait(doomed)


def left_meanwhile() -> Unavailable:
    """What a thread hears whose call ran on when another one left the client's block."""
    return Unavailable("the cluster", "the client's block was left meanwhile; leave it when all threads that use it are done")


class OneTaskContext(Generic[T]):
    """An async context manager that one task of the loop enters and leaves: task groups insist on that."""

    def __init__(self, thread: SyncBridge, manager: AbstractAsyncContextManager[T]) -> None:
        self._thread = thread
        self._manager = manager
        self._entered: Future[T] = Future()
        self._leave: asyncio.Future[None] | None = None
        self._done: Future[None] | None = None

    def enter(self) -> T:
        """Enter; the value of the context manager."""
        self._done = self._thread.begin(self._keep_open())
        self._done.add_done_callback(self._pass_on)
        try:
            return self._entered.result()
        except CancelledError as stopped:
            raise left_meanwhile() from stopped

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
        except CancelledError as stopped:
            if error is None:
                raise left_meanwhile() from stopped

    async def _keep_open(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._thread.blocks.add(task)
        self._leave = asyncio.get_running_loop().create_future()
        async with self._manager as value:
            self._entered.set_result(value)
            await self._leave

    def _pass_on(self, done: "Future[None]") -> None:
        """Who waits to enter hears why that failed."""
        if self._entered.done():
            return
        failure = CancelledError() if done.cancelled() else done.exception()
        self._entered.set_exception(failure)


class _Raised(Exception):  # carries another error into the loop
    """The block raised `error`."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error
