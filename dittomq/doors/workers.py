"""Threads, for work that blocks: the writer's lane and a bounded pool for reads.

Work is a generator of *steps*. It yields between steps that a crash may separate (write, then sync); what it yields
is progress, handed to the event loop while the work goes on. A production lane runs the steps through in a thread;
the simulator drives the same generator and lets time pass at each yield.
"""

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

P = TypeVar("P")
R = TypeVar("R")


class Lane(Protocol):
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

    def lane(self, name: str, width: int = 1) -> Lane:
        """A new lane of `width` threads. At width 1 its work runs one after the other."""
        ...

    def close(self) -> None:
        """Wait for running work and end all threads."""
        ...


class ThreadLane:
    """A lane of real threads."""

    def __init__(self, name: str, width: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=width, thread_name_prefix=name)

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

        return await loop.run_in_executor(self._executor, drive)

    async def call(self, work: Callable[[], R]) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class ThreadWorkers:
    """Lanes of real threads."""

    def __init__(self) -> None:
        self._lanes: list[ThreadLane] = []

    def lane(self, name: str, width: int = 1) -> Lane:
        lane = ThreadLane(name, width)
        self._lanes.append(lane)
        return lane

    def close(self) -> None:
        for lane in reversed(self._lanes):
            lane.close()
