"""One run of a simulated process, from its start to its end, and what belongs to it."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import Any

_TURNS_TO_DIE = 200

current: contextvars.ContextVar["Life | None"] = contextvars.ContextVar("life", default=None)


class SimCrashed(BaseException):
    """Stops what a dead process still tries. Not an Exception, so that no handler of the product can carry on."""


class Phase(Enum):
    """Whether the process still runs."""

    RUNNING = "running"
    OVER = "over"


class Life:
    """Owns every task that one process started; after `end` nothing of it reaches the world."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = Phase.RUNNING
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closers: list[Callable[[], None]] = []
        self._context = contextvars.copy_context()
        self._context.run(current.set, self)

    @property
    def tasks(self) -> int:
        """How many of them have not ended."""
        return len(self._tasks)

    def check(self) -> None:
        """Raise SimCrashed when this process is gone; every door asks first."""
        if self.phase is Phase.OVER:
            raise SimCrashed(self.name)

    def new_context(self) -> contextvars.Context:
        """In which what runs is this process's."""
        return self._context.copy()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` as a task of this process."""
        return asyncio.get_running_loop().create_task(work, context=self.new_context())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Remember a task until it ends."""
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    def at_end(self, close: Callable[[], None]) -> None:
        """Call `close` when the process ends, before its tasks hear of it."""
        self._closers.append(close)

    def end(self) -> None:
        """Close the doors, then cancel the tasks: a `finally` meets a dead disk and a dead network."""
        if self.phase is Phase.OVER:
            return
        self.phase = Phase.OVER
        for close in self._closers:
            close()
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()

    async def buried(self) -> None:
        """Wait until the last task has ended; raise AssertionError when one refuses to die."""
        for _ in range(_TURNS_TO_DIE):
            rest = [task for task in self._tasks if task is not asyncio.current_task()]
            if not rest:
                return
            for task in rest:
                task.cancel()
            await asyncio.sleep(0)
        names = [str(task.get_coro()) for task in self._tasks]
        raise AssertionError(f"tasks of {self.name} go on after its crash: {names}")
