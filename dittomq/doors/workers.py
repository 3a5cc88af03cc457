"""Threads, for work that blocks: the writer's lane and a bounded pool for reads.

Work is a generator of *steps*. It yields between steps that a crash may separate (write, then sync); what it yields
is progress, handed to the event loop while the work goes on. A production lane runs the steps through in a thread;
the simulator drives the same generator and lets time pass at each yield.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Generator
from queue import SimpleQueue
from typing import Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")


class Executor(Protocol):
    """Runs blocking work off the loop; a lane of width 1 runs it in the order of the calls."""

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        """Run all steps, return the generator's value, raise what it raises.

        `progress` is called on the loop with each yielded value, in order, all before this returns. A caller that is
        cancelled does not stop the steps: what was started on a disk runs to its end.
        """
        ...

    async def call(self, work: Callable[[], R]) -> R:
        """Run a single step."""
        ...


class Workers(Protocol):
    """Makes lanes; owned by the composition root."""

    def lane(self, name: str, width: int = 1) -> Executor:
        """A new lane of `width` threads. At width 1 its work runs one after the other."""
        ...

    def close(self) -> None:
        """Wait for running work and end all threads."""
        ...


class ThreadLane:
    """A lane of real threads, which start with its first calls.

    Several calls are on the path of every message, and one costs half of what it costs with `ThreadPoolExecutor` and its two futures.
    """

    def __init__(self, name: str, width: int) -> None:
        self._name = name
        self._width = width
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        loop = asyncio.get_running_loop()

        def drive() -> R:
            while True:
                try:
                    value = next(steps)
                except StopIteration as end:
                    result: R = end.value
                    return result
                if progress is not None:
                    loop.call_soon_threadsafe(progress, value)

        return await self.call(drive)

    async def call(self, work: Callable[[], R]) -> R:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def job() -> None:
            try:
                outcome = functools.partial(_succeed, future, work())
            except BaseException as error:  # noqa: BLE001  # it is the caller's
                outcome = functools.partial(_fail, future, error)
            try:
                loop.call_soon_threadsafe(outcome)
            except RuntimeError:  # the loop is closed: nobody waits any more
                return

        self._jobs.put(job)
        if len(self._threads) < self._width:
            self._start()
        return await future

    def close(self) -> None:
        """Wait until what was given has run to its end; nothing is given any more."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # what it holds may be large, and nobody knows when the next one comes


def _succeed(future: "asyncio.Future[R]", value: R) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: "asyncio.Future[R]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


class ThreadWorkers:
    """Lanes of real threads."""

    def __init__(self) -> None:
        self._lanes: list[ThreadLane] = []

    def lane(self, name: str, width: int = 1) -> Executor:
        lane = ThreadLane(name, width)
        self._lanes.append(lane)
        return lane

    def close(self) -> None:
        for lane in reversed(self._lanes):
            lane.close()
