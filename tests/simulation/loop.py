"""An event loop with virtual time: no selector, no sockets, no threads; the same seed runs the same way."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Never, TypeVar, TypeVarTuple, Unpack

from tests.simulation import life

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_TURNS_WITHOUT_TIME = 100_000
_MOST_TURNS = 2_000_000


class Deadlock(BaseException):
    """Nothing is scheduled and nothing is ready: everyone waits for everyone. Carries the tasks' stacks."""


class Livelock(BaseException):
    """The loop turns and turns while no time passes. Carries the tasks' stacks."""


class SimulatedTask(asyncio.Task[T]):
    """A task whose hash is its number, so that sets of tasks (TaskGroup keeps one) have the same order in every run."""

    def __init__(
        self,
        work: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: "SimulatedLoop",
        name: str | None,
        context: contextvars.Context | None,
    ) -> None:
        self._number = loop.next_number()  # before the base class, which puts the task in a set
        self.owner = ""
        super().__init__(work, loop=loop, name=name or f"task {self._number}", context=context)

    def __hash__(self) -> int:
        return self._number


class SimulatedFuture(asyncio.Future[T]):
    """A future whose hash is its number."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def _stack(task: asyncio.Task[Any]) -> str:
    """Where a task waits, through every coroutine down to the innermost; Task.print_stack shows the outermost alone."""
    lines = []
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "ag_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            lines.append(f"    {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "ag_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return "\n".join(lines)


class _VirtualTime:
    """Stands where BaseEventLoop has its selector: waiting moves the clock and nothing ever arrives from outside."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop
        self.now = 0.0
        self._turns = self._all_turns = 0

    def select(self, timeout: float | None) -> list[Never]:
        if timeout is None:
            raise Deadlock(f"at {self.now:.6f} s nothing is left to happen\n{self._loop.stacks()}")
        self._turns = self._turns + 1 if timeout == 0 else 0
        if self._turns > _TURNS_WITHOUT_TIME:
            raise Livelock(f"at {self.now:.6f} s time stands still\n{self._loop.stacks()}")
        self._all_turns += 1
        if self._all_turns > _MOST_TURNS:
            raise Livelock(
                f"at {self.now:.6f} s the run has taken {_MOST_TURNS:,} turns and does not come to an end\n{self._loop.stacks()}"
            )
        self.now += timeout
        return []


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs coroutines under virtual time. Use it through `run_until_complete`, then `close`."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = 0
        self._selector = _VirtualTime(self)
        self._clock_resolution = 1e-9
        self.set_debug(False)  # debug mode reads the machine's clock

    def time(self) -> float:
        return self._selector.now

    def next_number(self) -> int:
        """Numbers tasks and futures in the order in which they were made."""
        self._numbers += 1
        return self._numbers

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        owner = life.current.get() if context is None else context.get(life.current)
        if owner is not None and owner.phase is life.Phase.OVER:
            coro.close()
            raise life.SimCrashed(owner.name)
        task = SimulatedTask(coro, loop=self, name=None if name is None else str(name), context=context)
        if owner is not None:
            task.owner = owner.name
            owner.adopt(task)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(self)

    def stacks(self) -> str:
        """Every unfinished task with its stack, oldest first."""
        tasks = sorted((task for task in asyncio.all_tasks(self) if isinstance(task, SimulatedTask)), key=hash)
        return "\n".join(f"{task.get_name()} of {task.owner or 'the simulation'}:\n{_stack(task)}" for task in tasks)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if self.is_running() and threading.get_ident() != self._runs_in:
            raise RuntimeError("a thread reached into the simulation; use a Lane")
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: object, func: Callable[..., object], *args: object) -> Never:
        raise RuntimeError("the simulation has no threads; use a Lane")

    def run_forever(self) -> None:
        self._runs_in = threading.get_ident()
        super().run_forever()

    def _process_events(self, event_list: list[Never]) -> None:
        assert not event_list

    def _write_to_self(self) -> None:
        return
