"""An event loop with virtual time: no selector, no sockets, no threads; the same seed runs the same way."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Never, TypeVar, TypeVarTuple, Unpack

from tests.simulation import simulated_process

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_CALLS_AT_ONE_TIME = 200_000
_MOST_CALLS = 2_000_000


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


def _nothing() -> None:
    return


class _Call(asyncio.TimerHandle):
    """What is to be called, soon or at its time: a handle of asyncio's at a third of its cost."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None, when: float) -> None:
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._when = when
        self._cancelled = False

    def call(self) -> None:
        """Do it; what it raises, raises here."""
        self._context.run(self._callback, *self._args)

    def owner(self) -> simulated_process.Life | None:
        """Whose process it is of."""
        return self._context.get(simulated_process.current)

    def cancel(self) -> None:
        """Let it not be called, and forget what it would be called with."""
        self._cancelled = True
        self._callback, self._args = _nothing, ()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs coroutines under virtual time. Use it through `run_until_complete`, then `close`.

    What is ready is called in the order in which it became so; when nothing is, the clock moves to the next timer. Timers of one time
    come in the order in which they were set.
    """

    def __init__(self) -> None:
        super().__init__()
        self._numbers = 0
        self._now = 0.0
        self._ready: deque[_Call] = deque()
        self._scheduled: list[tuple[float, int, _Call]] = []
        self._calls = self._calls_now = 0
        self._given_up = ""
        self._still: dict[simulated_process.Life | None, list[_Call]] = {}  # what waits for processes that stand still
        self.set_debug(False)  # debug mode reads the machine's clock

    def freeze(self, process: simulated_process.Life) -> None:
        """Let nothing of that process happen until `thaw`, while time passes for it too: as a stopped process, or a paused machine."""
        self._still.setdefault(process, [])

    def thaw(self, process: simulated_process.Life) -> None:
        """Let it go on: what became ready meanwhile happens now, in that order."""
        self._ready.extend(self._still.pop(process, ()))

    @property
    def calls(self) -> int:
        """How much it has called, which is what a run costs."""
        return self._calls

    def time(self) -> float:
        return self._now

    def give_up(self, why: str) -> None:
        """Raise Livelock after what is being called, whatever becomes of that."""
        self._given_up = why
        self._stopping = True

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None) -> asyncio.Handle:
        call = _Call(callback, args, context, self._now)
        self._ready.append(call)
        return call

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        call = _Call(callback, args, context, when)
        self._numbers += 1
        heappush(self._scheduled, (when, self._numbers, call))
        return call

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
        owner = simulated_process.current.get() if context is None else context.get(simulated_process.current)
        if owner is not None and owner.phase is simulated_process.Phase.OVER:
            coro.close()
            raise simulated_process.SimCrashed(owner.name)
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

    def _run_once(self) -> None:
        """Call what is ready and let time pass, until the loop is stopped."""
        ready, still = self._ready, self._still
        while not self._stopping:
            if not ready:
                self._let_time_pass()
            call = ready.popleft()
            if call.cancelled():
                continue
            if still and (waiting := still.get(call.owner())) is not None:
                waiting.append(call)
                continue
            self._calls_now += 1
            if self._calls_now > _CALLS_AT_ONE_TIME:
                raise Livelock(f"at {self._now:.6f} s time stands still\n{self.stacks()}")
            try:
                call.call()
            except (SystemExit, KeyboardInterrupt, Livelock):
                raise
            except BaseException as error:  # noqa: BLE001  # as asyncio does: the loop goes on
                self.call_exception_handler({"message": "Exception in a callback", "exception": error})
        if self._given_up:
            why, self._given_up = self._given_up, ""
            raise Livelock(f"at {self._now:.6f} s {why}\n{self.stacks()}")

    def _let_time_pass(self) -> None:
        """Move the clock to the next timer, and let all of its time be ready."""
        scheduled, ready = self._scheduled, self._ready
        self._calls, self._calls_now = self._calls + self._calls_now, 0
        if self._calls > _MOST_CALLS:
            self._calls = 0
            raise Livelock(f"at {self._now:.6f} s the run has made {_MOST_CALLS:,} calls and does not come to an end\n{self.stacks()}")
        while scheduled and scheduled[0][2].cancelled():
            heappop(scheduled)
        if not scheduled:
            raise Deadlock(f"at {self._now:.6f} s nothing is left to happen\n{self.stacks()}")
        self._now = max(self._now, scheduled[0][0])
        while scheduled and scheduled[0][0] <= self._now:
            ready.append(heappop(scheduled)[2])

    def _write_to_self(self) -> None:
        return
