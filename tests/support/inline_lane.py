"""A lane without threads: steps run on the loop, one piece of work after the other, with a turn of the loop between steps."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

P = TypeVar("P")
R = TypeVar("R")


class InlineLane:
    """Keeps a lane's promises at width 1, also that cancelled callers do not stop what has begun."""

    def __init__(self) -> None:
        self.busy = asyncio.Lock()

    async def run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None = None) -> R:
        return await asyncio.shield(self._run(steps, progress))

    async def call(self, work: Callable[[], R]) -> R:
        async with self.busy:
            return work()

    async def _run(self, steps: Generator[P, None, R], progress: Callable[[P], None] | None) -> R:
        async with self.busy:
            while True:
                try:
                    value = next(steps)
                except StopIteration as end:
                    result: R = end.value
                    return result
                if progress is not None:
                    progress(value)
                await asyncio.sleep(0)
